"""How each kind of engine is told its key, and what its process may know."""

import shlex
from random import Random

import pytest

from node.engine.credential import NO_WAY, KeyWay, key_for, surroundings, way_of


def way(command):
    return way_of(shlex.split(command))


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("vllm serve M --port {port}", "VLLM_API_KEY"),
        ("env A=b /opt/venv/bin/vllm serve M", "VLLM_API_KEY"),
        ("python -m vllm.entrypoints.openai.api_server", "VLLM_API_KEY"),
        ("bash -c 'exec vllm serve M'", "VLLM_API_KEY"),
        ("/usr/local/bin/llama-server -m x.gguf", "LLAMA_API_KEY"),
        ("python -I -m node.engine.demo --port {port}", "TELA_ENGINE_API_KEY"),
    ],
)
def test_a_known_engine_reads_it_from_its_environment(command, variable):
    assert way(command) == KeyWay(variable=variable)


def test_another_engine_gets_it_where_its_command_says():
    assert way("sglang serve --api-key {api_key} --port {port}") == KeyWay(is_marked=True)


@pytest.mark.parametrize("command", ["sglang serve --port {port}", "engine vllm-like", "my-vllm {port}"])
def test_an_engine_nobody_knows_gets_none(command):
    assert way(command) == NO_WAY
    assert key_for(way(command), {}, Random(1)) is None


@pytest.mark.parametrize(
    "command", ["vllm serve M --api-key mine", "vllm serve M --api-key=mine", "env VLLM_API_KEY=mine vllm serve M"]
)
def test_a_key_in_the_command_is_the_key(command):
    assert key_for(way(command), {"VLLM_API_KEY": "another"}, Random(1)) == "mine"


def test_a_key_that_a_shell_fills_in_is_read_from_the_environment():
    assert key_for(way("bash -c 'vllm serve M --api-key $K'"), {"K": "mine"}, Random(1)) == "mine"


def test_a_key_in_the_engine_s_own_variable_is_the_key():
    assert key_for(way("vllm serve M"), {"VLLM_API_KEY": "mine"}, Random(1)) == "mine"


def test_otherwise_each_start_has_another_one():
    rng = Random(1)
    keys = [key_for(way("vllm serve M"), {}, rng) for _ in range(2)]
    assert len({*keys}) == 2
    assert all(key and key.isalnum() and len(key) == 48 for key in keys)


def test_a_key_is_not_shown_by_accident():
    assert "mine" not in repr(way("vllm serve M --api-key mine"))


def test_what_is_tela_s_own_stays_out_of_the_environment_of_an_engine():
    environ = {"TELA_HOME": "/x", "TELA_TOKEN": "secret", "PATH": "/bin", "VLLM_USE_V1": "1"}
    assert surroundings(environ, KeyWay(variable="VLLM_API_KEY"), "k") == {
        "PATH": "/bin",
        "VLLM_USE_V1": "1",
        "VLLM_API_KEY": "k",
    }
    assert surroundings(environ, NO_WAY, None) == {"PATH": "/bin", "VLLM_USE_V1": "1"}
