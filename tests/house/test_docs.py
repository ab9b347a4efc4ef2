"""What the documents say exists, and what exists is said."""

import re
from pathlib import Path

from click.testing import CliRunner

from console.cli import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PACKAGES = ("console", "node", "gossip", "registry", "accounting", "placer")


def text(name):
    return (ROOT / name).read_text()


def test_every_command_is_in_the_table_and_the_table_names_no_other():
    rows = set(re.findall(r"^\| `tela ([a-z-]+)", text("docs/cli.md"), re.MULTILINE))
    assert rows == {name for name, (_, _, shown) in COMMANDS.items() if shown}


def test_every_option_is_in_its_page():
    page = text("docs/cli.md")
    for name, (_, _, shown) in COMMANDS.items():
        if shown:
            said = CliRunner().invoke(cli, [name, "--help"]).output
            for option in re.findall(r"(--[a-z-]+)", said):
                assert option in page, f"{name} {option}"


def test_every_package_and_module_is_in_the_architecture():
    page = text("ARCHITECTURE.md")
    for package in PACKAGES:
        assert f"`{package}`" in page
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "__init__.py":
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                assert f"`{name}`" in page, name


def test_links_between_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_the_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"`make ([a-z-]+)", text(page))) <= targets


def test_every_dependency_gives_its_reason():
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text("pyproject.toml"), re.MULTILINE | re.DOTALL)
    assert block is not None
    assert all("#" in line for line in block[1].splitlines() if line.strip())


def test_documents_speak_of_the_project_alone():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("**/*.py")]:
        if ".venv" not in page.parts and page != Path(__file__):
            assert "/work/" not in page.read_text(), page
