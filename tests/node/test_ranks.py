"""Which ranks of an engine on several hosts are not to be wrapped."""

import shlex

import pytest

from node.engine.ranks import rank_refusal


def refusal(command, **env):
    return rank_refusal(shlex.split(command), env)


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve M --nnodes 2 --node-rank 1 --port {port}",
        "/opt/venv/bin/vllm serve M --nnodes=2 -r 1",
        "vllm serve M --node-rank=3 --headless",
        "vllm serve M --headless --data-parallel-start-rank 2",
        "python -m vllm.entrypoints.openai.api_server --node-rank 1",
        "python -m sglang.launch_server --model-path M --nnodes 2 --node-rank 1",
        "sglang serve --model-path M --nnodes 4 --node-rank=2",
        "torchrun --nnodes 2 --node_rank 1 serve.py",
        "bash -c 'exec vllm serve M --nnodes 2 --node-rank 1'",
        "apptainer exec --nv vllm.sif vllm serve M --nnodes 2 --node-rank 1",
    ],
)
def test_another_rank_is_refused_by_its_command(command):
    assert refusal(command)


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_NODEID", "RANK", "OMPI_COMM_WORLD_RANK"])
def test_another_rank_is_refused_by_what_launched_it(name):
    why = refusal("sglang serve --model-path M --nnodes 2", **{name: "1"})
    assert why is not None
    assert name in why


def test_a_rank_that_a_shell_fills_in_is_read_from_the_environment():
    command = "bash -c 'vllm serve M --nnodes 2 --node-rank $SLURM_PROCID'"
    assert refusal(command, SLURM_PROCID="1")
    assert refusal(command, SLURM_PROCID="0") is None


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve M --port {port}",
        "vllm serve M --nnodes 2 --node-rank 0 --port {port}",
        "python -m sglang.launch_server --model-path M --nnodes 2 --node-rank 0",
        "vllm serve M --data-parallel-rank 3 --port {port}",  # has an API of its own
        "llama-server -r 4 --port {port}",
        "engine --node-rank 1",
    ],
)
def test_what_serves_is_wrapped(command):
    assert refusal(command, SLURM_PROCID="1", SLURM_NODEID="1") is None


def test_one_task_of_many_with_an_engine_of_its_own_is_wrapped():
    assert refusal("sglang serve --model-path M --nnodes 1", SLURM_PROCID="7") is None


def test_a_rank_that_is_no_number_is_no_rank():
    assert refusal("vllm serve M --node-rank one") is None
    assert refusal("vllm serve M --node-rank") is None
