"""The six top-level packages are ours, and their modules carry the names the house allows."""

import re
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("console", "node", "gossip", "registry", "accounting", "placer")
EMPTY_WORDS = {
    "manager",
    "helper",
    "helpers",
    "util",
    "utils",
    "handler",
    "handlers",
    "service",
    "services",
    "data",
    "info",
}
MAX_LINES = 400


def modules():
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def test_nobody_else_installs_our_packages():
    owners = packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, [])) <= {"tela-overlay"}, f"{package} also belongs to {owners[package]}"


def test_no_file_holds_a_second_noun():
    long = {
        str(path.relative_to(ROOT)): count
        for path in modules()
        if (count := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert not long


def test_modules_and_classes_have_names_that_say_something():
    words = {
        str(path.relative_to(ROOT)): name
        for path in modules()
        for name in [path.stem, *re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)]
        if set(re.findall(r"[A-Z]?[a-z]+", name.replace("_", " ")))
        & (EMPTY_WORDS | {word.title() for word in EMPTY_WORDS})
    }
    assert not words


def test_every_module_says_what_it_is_for():
    assert not [str(path.relative_to(ROOT)) for path in modules() if not path.read_text().lstrip().startswith('"""')]


def test_packages_re_export_nothing():
    inits = [path for path in modules() if path.name == "__init__.py"]
    assert not [str(path) for path in inits if re.search(r"^(from|import) ", path.read_text(), re.MULTILINE)]


def test_no_work_is_left_for_later():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert not [str(path) for path in modules() if marks.search(path.read_text())]
