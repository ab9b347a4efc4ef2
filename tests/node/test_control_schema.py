"""The objects of the control API are those that were published."""

from pathlib import Path

import msgspec

from node.control import schema
from node.control.app import ControlApp
from tests.node.control import Shown

ROOT = Path(__file__).parents[2]
REMAKE = 'python -c "from node.control.schema import json_schema; import sys; sys.stdout.buffer.write(json_schema())"'


def test_the_published_schema_is_what_the_code_says():
    published = (ROOT / "docs" / "control-api.json").read_bytes()
    assert published == schema.json_schema(), (
        f"faces depend on it; when it should change: {REMAKE} > docs/control-api.json"
    )


def test_every_object_is_published():
    ours = {
        value
        for value in vars(schema).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and not value.__name__.startswith("_")
    }
    names = set(msgspec.json.decode(schema.json_schema())["$defs"])
    assert {each.__name__ for each in ours} == names


def test_every_path_is_in_the_page():
    page = (ROOT / "docs" / "control-api.md").read_text()
    for path, methods in ControlApp(Shown().source)._routes.items():
        for method in methods:
            assert f"`{method} {path}" in page
