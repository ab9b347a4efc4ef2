"""Keys of an ssh-agent: a real one, and one that answers whatever it likes."""

import contextlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from nacl import bindings

from console.agent_keys import Agent, AgentKey, agent_of, blob_of, chosen, read_keys, read_signature
from registry.errors import TelaError
from tests.people import Person

ADA, BOB = Person(1), Person(2)
needs_ssh = pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="no ssh-agent here")


def string(text):
    return struct.pack(">I", len(text)) + text


@pytest.fixture
def short():
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:  # a socket's path has to be short
        yield Path(name)


@contextlib.contextmanager
def ssh_agent(directory):
    """A real ssh-agent; ends with the block."""
    path = directory / "agent.sock"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stdout is not None
        agent.stdout.readline()  # it says where it listens once it does
        yield path
    finally:
        agent.terminate()
        agent.wait(10)
        agent.stdout.close()


def add(path, directory, name, kind="ed25519"):
    """Make a key and give it to an agent; its fingerprint."""
    key = directory / name
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(key)], check=True)
    env = {"SSH_AUTH_SOCK": str(path), "HOME": str(directory)}
    subprocess.run(["ssh-add", "-q", str(key)], check=True, env=env, capture_output=True)
    shown = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True)
    return shown.stdout.split()[1]


@contextlib.contextmanager
def answering(path, *answers):
    """An agent that gives each connection the next answer and hangs up."""

    def serve():
        for answer in answers:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Agent(path)
        thread.join(5.0)


def refused(what, *args):
    with pytest.raises(TelaError) as caught:
        what(*args)
    return caught.value


@needs_ssh
def test_a_real_agent_signs_with_the_key_it_shows(short):
    with ssh_agent(short) as path:
        fingerprint = add(path, short, "ada@laptop")
        add(path, short, "other", "ecdsa")
        agent = Agent(path)
        (key,) = agent.identities()
        assert (key.fingerprint, key.comment) == (fingerprint, "ada@laptop")
        signature = agent.sign(key.key, b"a record")
    assert bindings.crypto_sign_open(signature + b"a record", key.key) == b"a record"


@needs_ssh
def test_a_real_agent_without_the_key_would_not_sign(short):
    with ssh_agent(short) as path:
        error = refused(Agent(path).sign, ADA.key, b"a record")
        assert error.code == "agent_refused"
        assert refused(chosen, Agent(path).identities(), None).code == "no_agent_key"


def test_a_signature_of_another_key_is_refused(short):
    answer = bytes((14,)) + string(string(b"ssh-ed25519") + string(BOB.sign(b"a record")))
    with answering(short / "s", string(answer)) as agent:
        assert "does not verify" in refused(agent.sign, ADA.key, b"a record").message


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        struct.pack(">I", 0),
        struct.pack(">I", 1 << 31) + b"\x0c",
        string(bytes((5,))),
        string(bytes((12,)) + struct.pack(">I", 1 << 30)),
        string(bytes((12,)) + struct.pack(">I", 1)),
        string(bytes((12,)) + struct.pack(">I", 1) + string(string(b"ssh-ed25519") + string(b"short")) + string(b"")),
    ],
)
def test_an_answer_that_is_none_is_an_error_and_no_hang(short, answer):
    with answering(short / "s", answer) as agent:
        assert refused(agent.identities).code == "no_agent"


def test_an_agent_that_went_away_is_named(short):
    error = refused(Agent(short / "gone").identities)
    assert error.code == "no_agent"
    assert "ssh-add" in error.hint


def test_an_environment_without_an_agent_is_told_how_to_get_one():
    assert "SSH_AUTH_SOCK" in refused(agent_of, {}).message


def test_keys_of_other_kinds_are_passed_over():
    other = string(string(b"ssh-rsa") + string(b"\x01\x00\x01") + string(b"n")) + string(b"old")
    ours = string(blob_of(ADA.key)) + string(b"\xffada")
    assert [each.key for each in read_keys(struct.pack(">I", 2) + other + ours)] == [ADA.key]


def test_a_signature_of_another_kind_is_refused():
    with pytest.raises(ValueError):  # noqa: PT011 - it says nothing
        read_signature(string(string(b"ssh-rsa") + string(ADA.sign(b"m"))), ADA.key, b"m")


def test_the_beginning_of_a_fingerprint_chooses():
    keys = [AgentKey(ADA.key, "ada"), AgentKey(BOB.key, "bob\x1b[31m")]
    assert chosen(keys, keys[1].fingerprint[:15]).key == BOB.key
    assert chosen(keys, keys[0].fingerprint.removeprefix("SHA256:")).key == ADA.key
    several = refused(chosen, keys, None)
    assert several.code == "usage"
    assert keys[0].fingerprint in several.hint
    assert "\x1b" not in several.hint
    assert "no Ed25519 key SHA256:zzz" in refused(chosen, keys, "SHA256:zzz").message
