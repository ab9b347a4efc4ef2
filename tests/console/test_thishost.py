"""What a host says of itself, and which addresses reach it from elsewhere."""

import os
from pathlib import Path

import pytest

from console.thishost import host_names, host_of, is_loopback, is_wildcard, others_here, shown_path


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:7481", "ws://127.8.8.8:1", "wss://[::1]:7481", "ws://localhost:7481", "127.0.0.1:80"]
)
def test_these_reach_this_host_alone(url):
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url", ["ws://login1:7481", "ws://10.0.0.1:1", "wss://[fd00::1]:1", "localhost.example:1", "x["]
)
def test_these_may_be_reached_from_elsewhere(url):
    assert not is_loopback(url)


@pytest.mark.parametrize("address", ["0.0.0.0:7481", "[::]:7481", ":7481", "*:7481"])
def test_these_are_every_address(address):
    assert is_wildcard(address)
    assert not is_wildcard("10.0.0.1:7481")


def test_a_host_is_found_in_urls_and_addresses():
    assert [host_of(each) for each in ("ws://[fd00::1]:1/x", "h:1", "http://h", "ws://[")] == ["fd00::1", "h", "h", ""]


def test_no_name_of_this_host_is_loopback():
    names = host_names()
    assert len(set(names)) == len(names)
    assert not any(is_loopback(f"[{name}]:1" if ":" in name else f"{name}:1") for name in names)


def test_others_are_people_and_not_the_system_or_oneself(tmp_path, monkeypatch):
    owners = {"1": 0, "20": 998, "300": 1000, "301": 1000, "302": 1001, "303": 65534, "self": 1002, "400": 1003}

    class Entry:
        def __init__(self, name, uid):
            self.name, self._uid = name, uid

        def stat(self):
            return os.stat_result((0, 0, 0, 0, self._uid, 0, 0, 0, 0, 0))

    monkeypatch.setattr(os, "scandir", lambda path: [Entry(name, uid) for name, uid in owners.items()])
    monkeypatch.setattr(os, "getuid", lambda: 1001)
    assert others_here(tmp_path) == 2


def test_a_host_that_hides_processes_counts_nobody(tmp_path):
    assert others_here(tmp_path / "none") == 0


def test_paths_are_shown_from_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert shown_path(Path("/home/ada/.config/x")) == "~/.config/x"
    assert shown_path(Path("/srv/x")) == "/srv/x"
