"""One process of the demo, as it is started, waited for and ended."""

import asyncio
import sys

import pytest

from node.config import NodeConfig
from node.demo_node import DemoNode
from registry.errors import TelaError

SLEEP = "import time; time.sleep(60)"


async def _node(directory, program, log=""):
    """A node whose process does something else than a node would."""
    config = NodeConfig(
        host="n1", state=str(directory / "n1"), seed=b"", charter=b"", membership=b"", certificate=b"", roles=()
    )
    (directory / "n1.log").write_text(log)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    return DemoNode(process, config, directory, asyncio.Event(), lambda _name, _event: None)


def _trouble(tmp_path, program, log, within_s):
    async def script():
        node = await _node(tmp_path, program, log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.listen())
            with pytest.raises(TelaError) as trouble:
                await node.until_ready(within_s)
            node.end(now=True)
            await node.ended()
        return trouble.value

    return asyncio.run(script())


def test_a_node_that_ends_before_it_is_ready_is_named_with_its_last_words(tmp_path):
    trouble = _trouble(tmp_path, "", "{}\ntela: no such thing\n      get one\n", 30.0)
    assert trouble.message == "n1 did not start: no such thing"
    assert trouble.hint == "get one"


def test_a_node_that_is_not_ready_in_time_is_named_with_what_its_log_says_last(tmp_path):
    trouble = _trouble(tmp_path, SLEEP, 'noise\n{"event": "dialling", "why": "nobody answers"}\n', 0.0)
    assert trouble.message == "n1 was not ready within 0 s: dialling nobody answers"
    assert trouble.hint


@pytest.mark.parametrize("log", ["", "[]\n", '{"event"\n', "\x1b[31m\n"])
def test_last_words_that_cannot_be_read_hide_nothing_and_break_nothing(tmp_path, log):
    trouble = _trouble(tmp_path, SLEEP, log, 0.0)
    assert trouble.message.startswith("n1 was not ready within 0 s: ")
    assert "\x1b" not in trouble.message


def test_what_a_node_says_that_is_no_event_is_passed_over(tmp_path):
    program = (
        "import time\n"
        'print(\'noise\'); print(\'[1]\'); print(\'{"event": "ready", "id": "n"}\', flush=True); time.sleep(60)'
    )

    async def script():
        node = await _node(tmp_path, program)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.listen())
            await node.until_ready(30.0)
            node.kill()
            await node.ended()
        return node

    node = asyncio.run(script())
    assert node.id == "n"
    assert node.is_gone
