"""A process that is told to end and waited for."""

import signal
import subprocess
import time

import pytest

from node.platform import process
from node.platform.process import Running


@pytest.fixture(params=["handle", "number"])
def kernel(request, monkeypatch):
    """With handles on processes, and as before there were any."""
    if request.param == "number":
        monkeypatch.setattr(process, "_handle_on", lambda _: None)


@pytest.fixture
def sleeper():
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        yield child
        child.kill()


@pytest.mark.usefixtures("kernel")
def test_it_ends_when_it_is_told(sleeper):
    with Running(sleeper.pid) as running:
        assert running.is_alive
        assert not running.ends_within(0.1)
        running.tell(signal.SIGTERM)
        assert running.ends_within(10)  # although nobody has buried it yet


@pytest.mark.usefixtures("kernel")
def test_the_wait_is_over_as_soon_as_it_ends():
    with subprocess.Popen(["/bin/sleep", "0.2"]) as child, Running(child.pid) as running:
        begun = time.monotonic()
        assert running.ends_within(30)
        assert time.monotonic() - begun < 10


@pytest.mark.usefixtures("kernel")
def test_one_that_is_gone_is_not_alive_and_hears_nothing():
    with subprocess.Popen(["/bin/true"]) as child:
        pid = child.pid
    with Running(pid) as running:
        assert not running.is_alive
        running.tell(signal.SIGTERM)
        assert running.ends_within(5)


def test_another_process_with_its_number_is_left_alone(sleeper, monkeypatch):
    monkeypatch.setattr(process, "_handle_on", lambda _: None)
    with Running(sleeper.pid) as running:
        monkeypatch.setattr(process, "process_start", lambda _: 1)  # as if the number had been given away
        assert not running.is_alive
        running.tell(signal.SIGKILL)
    assert sleeper.poll() is None
