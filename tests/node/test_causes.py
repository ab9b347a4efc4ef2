"""What class of trouble an engine died of: real last lines of real engines."""

import signal

import pytest

from node.engine.causes import WORDS, classify

LAST_LINES = {
    "out-of-memory-gpu": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "ValueError: Free memory on device cuda:0 (3.1/79.3 GiB) is less than desired GPU memory utilization",
        "alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB",
    ],
    "out-of-memory-host": [
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
    "port-in-use": [
        "OSError: [Errno 98] Address already in use",
        "ERROR: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
    ],
    "model-not-found": [
        "OSError: no/such is not a local folder and is not a valid model identifier listed on 'https://huggingface.co'",
        "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
        "ValueError: Invalid repository ID or local directory specified: '/scratch/x'.",
        "llama_model_load_from_file_impl: failed to load model",
        "FileNotFoundError: [Errno 2] No such file or directory: '/models/x/config.json'",
    ],
    "missing-library": [
        "vllm: error while loading shared libraries: libcudart.so.12: cannot open shared object file",
        "ModuleNotFoundError: No module named 'vllm'",
        "/usr/bin/python3: No module named sglang",
    ],
    "bad-arguments": [
        "vllm: error: unrecognized arguments: --max-model-length 4096",
        "launch_server.py: error: argument --tp: invalid int value: 'two'",
        "error: invalid argument: --ctxsize",
        "api_server.py: error: the following arguments are required: --model",
    ],
}


@pytest.mark.parametrize(("reason", "line"), [(reason, line) for reason, lines in LAST_LINES.items() for line in lines])
def test_an_engine_says_what_it_died_of(reason, line):
    assert classify(1, None, f"INFO 01-01 loading\n{line}\nINFO done\n") == reason


def test_every_class_has_words_and_is_a_name():
    assert set(LAST_LINES) == set(WORDS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside_is_not_blamed_on_what_was_printed_before(number):
    assert classify(None, number, "CUDA out of memory, request dropped\n") == "killed"


def test_a_crash_that_is_a_signal_is_explained_by_what_was_printed():
    assert classify(None, signal.SIGABRT, "terminate called after std::bad_alloc") == "out-of-memory-host"
    assert classify(None, signal.SIGSEGV, "") == "killed"


@pytest.mark.parametrize(("code", "number"), [(None, signal.SIGKILL), (137, None), (1, None)])
def test_what_the_kernel_killed_for_memory_is_out_of_memory(code, number):
    assert classify(code, number, "", oom_kills=1) == "out-of-memory-host"


def test_a_shell_tells_of_a_child_that_was_killed():
    assert classify(137, None, "") == "killed"


def test_an_engine_that_ends_well_is_in_no_trouble():
    assert classify(0, None, "warning: address already in use", oom_kills=1) == "exited"


def test_a_warning_about_a_library_is_not_what_it_died_of():
    assert classify(1, None, "WARNING: ImportError: no flash attention, going on\n") == "exited"


def test_what_nobody_knows_is_an_exit():
    assert classify(3, None, "") == "exited"
