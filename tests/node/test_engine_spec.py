"""What an operator may ask of a slot, and what is refused before anything is started."""

import pytest

from node.engine.aliases import Alias
from node.engine.credential import NO_WAY, KeyWay
from node.engine.spec import EngineSpec
from registry.errors import TelaError


def spec(path, command="engine --port {port}", **more):
    return EngineSpec(slot="gpu0", command=command, log=path / "log", **more)


def test_with_a_port_of_its_own_a_command_needs_no_place_for_one(tmp_path):
    assert spec(tmp_path, "engine", port=8000).port == 8000


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(tmp_path, port):
    with pytest.raises(TelaError, match="is no port"):
        spec(tmp_path, port=port)


def test_aliases_are_read_once_they_are_given(tmp_path):
    assert spec(tmp_path, aliases=("a", "b=m")).named == (Alias("a", None), Alias("b", "m"))
    with pytest.raises(TelaError, match="no usable name"):
        spec(tmp_path, aliases=("a b",))


def test_the_way_of_the_key_follows_from_the_command(tmp_path):
    assert spec(tmp_path, "vllm serve M --port {port}").key_how == KeyWay(variable="VLLM_API_KEY")
    foreign = EngineSpec(slot="gpu0", url="http://127.0.0.1:8000", log=tmp_path / "log", api_key="secret")
    assert foreign.key_how == NO_WAY
    assert "secret" not in repr(foreign)


def test_what_can_be_done_about_a_key_depends_on_who_started_it(tmp_path):
    foreign = EngineSpec(slot="gpu0", url="http://127.0.0.1:8000", log=tmp_path / "log")
    assert "{api_key}" in spec(tmp_path).key_advice
    assert "TELA_ENGINE_API_KEY" in foreign.key_advice
