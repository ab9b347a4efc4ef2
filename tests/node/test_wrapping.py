"""Which engines somebody asked for."""

import pytest

from node.config import EngineConfig
from node.settings import resolve
from node.wrapping import engine_name, engines_of
from registry.errors import TelaError

VLLM = "vllm serve org/m --port {port}"


def engines(*, env=None, file=None, **flags):
    return engines_of(flags, resolve(flags, {}, file or {}), env or {})


def refused(*words, **flags):
    with pytest.raises(TelaError) as caught:
        engines(**flags)
    assert caught.value.code == "usage"
    assert caught.value.hint
    assert caught.value.message.isprintable()
    for word in words:
        assert word in caught.value.message


def test_without_engines_there_are_none():
    assert engines() == ()


def test_commands_come_before_urls_each_in_its_slot():
    assert engines(engine_url=("http://127.0.0.1:8000",), process=(VLLM,)) == (
        EngineConfig(slot="e0", command=VLLM, engine="vllm"),
        EngineConfig(slot="e1", url="http://127.0.0.1:8000"),
    )


def test_models_go_with_engines_in_their_order():
    assert [each.model for each in engines(process=(VLLM, VLLM), model=("a", "b"))] == ["a", "b"]


def test_an_alias_and_a_port_are_for_one_engine():
    (engine,) = engines(process=(VLLM,), alias=("chat=org/m",), engine_port=8001)
    assert (engine.aliases, engine.port) == (("chat=org/m",), 8001)


def test_a_port_that_was_not_typed_is_for_starts_with_one_engine():
    assert [each.port for each in engines(process=(VLLM, VLLM), file={"engine_port": 8001})] == [None, None]
    assert [each.port for each in engines(process=(VLLM,), file={"engine_port": 8001})] == [8001]


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (("1 --model", "2"), {"process": (VLLM, VLLM), "model": ("a",)}),
        (("--model",), {"model": ("a",)}),
        (("--alias x", "2 engines"), {"process": (VLLM, VLLM), "alias": ("x",)}),
        (("--alias x", "0 engines"), {"alias": ("x",)}),
        (("--engine-port 1", "2 --process"), {"process": (VLLM, VLLM), "engine_port": 1}),
        (("--engine-port 1", "0 --process"), {"engine_url": ("http://127.0.0.1:1",), "engine_port": 1}),
        (("--process 'vllm serve m'", "{port}"), {"process": ("vllm serve m",)}),
        (("--process ''", "empty"), {"process": ("",)}),
        (("--process", "quotation"), {"process": ("vllm 'x {port}",)}),
        (("--engine-url 'http://other:1'", "loopback"), {"engine_url": ("http://other:1",)}),
        (("--engine-url", "loopback"), {"engine_url": ("\x1b[2J",)}),
        (("model",), {"process": (VLLM,), "model": ("two words",)}),
        (("alias",), {"process": (VLLM,), "alias": ("two words",)}),
        (("--process", "rank 1"), {"process": ("vllm serve m --port {port} --node-rank 1 --nnodes 2",)}),
        (("--process", "--headless"), {"process": ("vllm serve m --port {port} --headless",)}),
    ],
)
def test_what_could_never_work_is_refused_with_flag_value_and_remedy(words, flags):
    refused(*words, **flags)


def test_a_rank_a_launcher_gave_is_seen():
    command = "sglang serve --model-path m --port {port} --nnodes 2"
    with pytest.raises(TelaError) as caught:
        engines(process=(command,), env={"SLURM_PROCID": "1"})
    assert caught.value.code == "usage"
    assert engines(process=(command,), env={"SLURM_PROCID": "0"})


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (VLLM, "vllm"),
        ("python -m vllm.entrypoints.openai.api_server", "vllm"),
        ("python3 -m sglang.launch_server", "sglang"),
        ("/opt/llama/llama-server -m x", "llama.cpp"),
        ("python -m node.engine.demo", "demo"),
        ("./my-engine_2.sh", "my-engine_2.sh"),
        ("'odd name' x", "engine"),
        ("/opt/\u00fc", "engine"),
    ],
)
def test_an_engine_is_called_in_one_word(command, name):
    assert engine_name(command) == name
