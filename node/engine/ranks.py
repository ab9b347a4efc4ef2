"""Whether a command line is one of the other ranks of an engine that spans hosts.

Pure. Only the first rank serves requests, so only it is wrapped: another one would never become ready, and nobody
would see why.
"""

from collections.abc import Iterable, Mapping, Sequence

from node.engine.words import flattened, starts, value_of

# What says which of several nodes a command is for, by engine. vLLM: engine/arg_utils.py, SGLang: server_args.py.
_RANKS = {
    "vllm": ("--node-rank", "-r"),
    "sglang": ("--node-rank",),
    "torchrun": ("--node-rank", "--node_rank"),
    "torch.distributed": ("--node-rank", "--node_rank"),
}
_NODES = {"vllm": ("--nnodes", "-n")}
_LAUNCHED_AS = ("RANK", "GROUP_RANK", "SLURM_PROCID", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def rank_refusal(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Say why a command is not to be wrapped here; None: it may be.

    Args:
        words: of the engine's command.
        env: of this process: a launcher says in it which of several we are.
    """
    said = list(flattened(words))
    engine = next((engine for engine in _RANKS if starts(said, engine)), None)
    if engine is None:
        return None
    if engine == "vllm" and "--headless" in said:
        return "this is a vLLM rank without an API (--headless); the node with the API serves for it"
    told = value_of(said, *_RANKS[engine])
    if told is not None:
        rank, by = _number(told, env), "its command"
    else:
        spans = _number(value_of(said, *_NODES.get(engine, ("--nnodes",))), env) > 1
        rank, by = _launched(env) if spans else (0, "")
    if rank == 0:
        return None
    return f"this is rank {rank} of a {engine} engine on several hosts ({by} says so); rank 0 serves for it"


def _launched(env: Mapping[str, str]) -> tuple[int, str]:
    ranks: Iterable[tuple[int, str]] = ((_number(env.get(name), env), name) for name in _LAUNCHED_AS)
    return next((each for each in ranks if each[0] > 0), (0, ""))


def _number(text: str | None, env: Mapping[str, str]) -> int:
    """A rank: digits, or a variable that a shell will fill in, as `$SLURM_PROCID`; 0 when it is neither."""
    if text is None:
        return 0
    if text.startswith("$"):
        text = env.get(text.strip("${}"), "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0
