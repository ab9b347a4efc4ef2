"""What class of trouble an engine died of, from how it ended and the last it printed.

Pure. The class goes into a record that every node reads; the text it was read from does not.
"""

import re

HOST_MEMORY = "out-of-memory-host"
GPU_MEMORY = "out-of-memory-gpu"
PORT_IN_USE = "port-in-use"
MODEL_NOT_FOUND = "model-not-found"
MISSING_LIBRARY = "missing-library"
BAD_ARGUMENTS = "bad-arguments"
KILLED = "killed"
EXITED = "exited"

WORDS = {
    HOST_MEMORY: "out of memory on the host",
    GPU_MEMORY: "out of memory on the GPU",
    PORT_IN_USE: "its port is in use",
    MODEL_NOT_FOUND: "no such model",
    MISSING_LIBRARY: "a library is missing",
    BAD_ARGUMENTS: "it does not understand its arguments",
}

# A signal that comes from outside says nothing of the engine; what it printed long before is another matter.
_SIGKILL = 9
_FROM_OUTSIDE = frozenset({1, 2, 3, _SIGKILL, 15})  # HUP, INT, QUIT, KILL, TERM: the same on every POSIX system
_SHELL_KILLED = 128 + _SIGKILL  # a shell around the engine says so of its child

# In the order of trust: an engine out of memory may then fail in any way, and one whose library is missing may
# blame its arguments. Each is what vLLM, SGLang, llama.cpp, PyTorch or the C library prints.
_PRINTED = tuple(
    (reason, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for reason, pattern in (
        (
            GPU_MEMORY,
            r"cuda out of memory|cuda error: out of memory|outofmemoryerror|hip out of memory|cudamalloc failed"
            r"|no available memory for the cache blocks|larger than the available kv cache memory"
            r"|free memory on device .{0,120}less than desired|not enough memory\. please try to increase",
        ),
        (HOST_MEMORY, r"std::bad_alloc|cannot allocate memory|memoryerror|defaultcpuallocator: can't allocate"),
        (PORT_IN_USE, r"address already in use|errno 98\b|couldn't bind http server socket|port \d+ is already in use"),
        (
            MISSING_LIBRARY,
            r"error while loading shared libraries|cannot open shared object file|\bmodulenotfounderror:|^importerror:"
            r"|no module named|libcuda\.so|nvml shared library not found|undefined symbol:",
        ),
        (
            MODEL_NOT_FOUND,
            r"repositorynotfounderror|repository not found|gatedrepoerror|is not a local folder and is not a valid"
            r"|can't load the configuration of|can't find .{0,200}config\.json|hfvalidationerror"
            r"|localentrynotfounderror|failed to (?:load|open) (?:model|gguf)|invalid repository id or local directory"
            r"|does not appear to have a file named"
            r"|no such file or directory: '[^']{0,300}(?:config\.json|\.gguf|\.safetensors)",
        ),
        (
            BAD_ARGUMENTS,
            r"error: unrecognized arguments|error: argument |the following arguments are required|invalid choice:"
            r"|error: invalid argument|unknown argument|no such option|error: ambiguous option",
        ),
    )
)


def classify(exit_code: int | None, number: int | None, log_tail: str, oom_kills: int = 0) -> str:
    """Name the cause of an end.

    Args:
        exit_code: None when a signal ended it.
        number: that signal; None when it exited.
        log_tail: the last it printed in this run.
        oom_kills: processes the kernel killed here for want of memory while it ran.
    """
    was_killed = number == _SIGKILL or exit_code == _SHELL_KILLED
    if oom_kills > 0 and exit_code != 0:
        return HOST_MEMORY
    if was_killed or number in _FROM_OUTSIDE:
        return KILLED
    if exit_code == 0:
        return EXITED
    for reason, printed in _PRINTED:
        if printed.search(log_tail):
            return reason
    return KILLED if number is not None else EXITED
