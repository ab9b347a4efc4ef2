"""From what was typed to what a node runs as; a refusal leaves nothing behind."""

import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from node.fabricdir import FabricDir
from node.places import control_path, places
from node.starting import hostname, log_path, prepare, want
from node.statedir import holders
from node.unixsocket import bind_unix
from registry.errors import TelaError
from registry.record import decode
from tests.people import FOUNDING, MEMBER, membership

NOW = 1_800_000_000.0
PROCESS = "vllm serve org/m --port {port}"


@pytest.fixture
def where(tmp_path):
    env = {name: str(tmp_path / name) for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "TELA_HOME")}
    (tmp_path / "XDG_RUNTIME_DIR").mkdir(mode=0o700)
    return places(env, os.getuid(), tmp_path)


def belong(where, name="lab", **more):
    return FabricDir.create(where.config, name, [FOUNDING.charter, membership(**more)], member_seed=MEMBER.seed)


def refused(where, flags, env=None, *, code="usage"):
    with pytest.raises(TelaError) as caught:
        prepare(want(flags, where, env or {}), NOW)
    assert caught.value.code == code
    return caught.value


def ready(where, env=None, **flags):
    return prepare(want(flags, where, env or {}), NOW)


def nobody_holds_anything(where):
    return holders(where.state, None) == []


# --- roles


@pytest.mark.parametrize(
    ("flags", "roles"),
    [
        ({"process": (PROCESS,)}, ("worker",)),
        ({"listen": "127.0.0.1:0"}, ("relay",)),
        ({"http": "127.0.0.1:0"}, ("ingress",)),
        ({"process": (PROCESS,), "listen": "127.0.0.1:0", "http": "127.0.0.1:0"}, ("worker", "relay", "ingress")),
        ({"role": ("ingress,relay", "ingress")}, ("ingress", "relay")),
        ({"role": ("observer, accounts",)}, ("observer", "accounts")),
        ({"role": ("worker,ingress",)}, ("worker", "ingress")),
    ],
)
def test_a_node_is_what_it_is_told_to_be_or_what_its_flags_make_it(where, flags, roles):
    belong(where)
    assert want(flags, where, {}).roles == roles


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "nothing to start"),
        ({"role": ("wurker",)}, "--role wurker"),
        ({"role": ("worker",)}, "without an engine"),
        ({"role": ("ingress",), "process": (PROCESS,)}, "an engine, but --role ingress"),
        ({"process": ("vllm serve m",)}, "{port}"),
        ({"role": ("observer",), "listen": "0.0.0.0:1"}, "--listen"),
        ({"role": ("ingress",), "http": "0.0.0.0:1"}, "--http"),
    ],
)
def test_what_does_not_go_together_is_used_wrongly_and_takes_no_slot(where, flags, says):
    belong(where)
    error = refused(where, flags)
    assert says in error.message
    assert error.hint
    assert not where.state.exists()


def test_a_mistyped_role_is_answered_with_the_nearest(where):
    belong(where)
    assert "did you mean worker?" in refused(where, {"role": ("wurker",)}).hint


# --- fabric and settings


def test_without_a_fabric_it_says_how_to_come_by_one_before_anything_else(where):
    error = refused(where, {"role": ("nonsense",)}, code="no_fabric")
    assert "tela join" in error.hint


def test_of_several_fabrics_one_is_named_by_flag_environment_or_file(where):
    for name in ("lab", "other", "third"):
        belong(where, name)
    refused(where, {"role": ("observer",)}, code="which_fabric")
    observer = {"role": ("observer",)}
    (where.config / "config.toml").write_text('fabric = "third"')
    assert want(observer, where, {}).fabric.name == "third"
    assert want(observer, where, {"TELA_FABRIC": "other"}).fabric.name == "other"
    assert want({**observer, "fabric": "lab"}, where, {"TELA_FABRIC": "other"}).fabric.name == "lab"


def test_values_of_the_file_are_used(where):
    belong(where)
    (where.config / "config.toml").write_text('role = ["observer"]\nhost = "named"\nslot = 7\ndrain_s = 5')
    prepared = ready(where)
    assert (prepared.config.roles, prepared.config.host, prepared.config.slot) == (("observer",), "named", 7)
    assert prepared.config.drain_s == 5.0
    prepared.state.release()


@pytest.mark.parametrize(
    ("text", "says"), [('rôle = "x"', "TOML"), ('rol = "x"', "did you mean role"), ("slot = 4000", "999")]
)
def test_a_file_that_is_wrong_is_said_to_be(where, text, says):
    belong(where)
    (where.config / "config.toml").write_text(text)
    error = refused(where, {"role": ("observer",)}, code="config")
    assert says in error.message + error.hint


# --- prepare


def test_a_node_gets_a_slot_an_identity_and_places(where):
    belong(where)
    prepared = ready(where, process=(PROCESS,), host="h1", serve_to=("fabric", "user:kim"))
    config = prepared.config
    assert (config.fabric, config.host, config.slot) == ("lab", "h1", 0)
    assert config.state == str(where.state / "lab" / "h1-0")
    assert config.control == str(where.runtime / "lab-h1-0.sock")
    assert log_path(prepared.state) == where.state / "lab" / "h1-0" / "node.log"
    assert decode(config.certificate).key.owner == MEMBER.key
    assert config.serve_to == ("user:kim",)
    assert (config.door, config.listen) == (None, None)
    assert [each.pid for each in holders(where.state, "lab")] == [os.getpid()]
    prepared.state.release()
    assert nobody_holds_anything(where)


def test_a_door_is_opened_where_it_is_told_and_named_without_v1(where):
    belong(where)
    prepared = ready(where, role=("ingress",), http="127.0.0.1:9", url="https://llm.example.org/v1/")
    assert (prepared.config.door.address, prepared.config.door.url) == ("127.0.0.1:9", "https://llm.example.org")
    prepared.state.release()


def test_an_address_meant_for_another_kind_of_node_is_left_out(where):
    belong(where)
    (where.config / "config.toml").write_text('listen = "0.0.0.0:1"\nhttp = "127.0.0.1:2"')
    prepared = ready(where, process=(PROCESS,), role=("worker",))
    assert (prepared.config.listen, prepared.config.door) == (None, None)
    prepared.state.release()


def test_a_second_node_on_a_host_takes_the_next_slot(where):
    belong(where)
    first, second = (ready(where, role=("observer",), host="h1") for _ in range(2))
    assert (first.config.slot, second.config.slot) == (0, 1)
    assert first.config.seed != second.config.seed
    first.state.release()
    second.state.release()


def test_a_node_of_another_home_on_this_host_keeps_its_slot(where):
    belong(where)
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as short:  # a socket's path has 100 characters
        where = where._replace(runtime=Path(short))
        with closing(bind_unix(control_path(where, "lab", "h1", 0), 1)):
            prepared = ready(where, role=("observer",), host="h1")
            assert prepared.config.slot == 1
            prepared.state.release()


def test_a_slot_that_is_taken_is_refused_with_who_has_it(where):
    belong(where)
    first = ready(where, role=("observer",), host="h1")
    error = refused(where, {"role": ("observer",), "host": "h1", "slot": 0}, code="slot_taken")
    assert str(os.getpid()) in error.message
    first.state.release()


def test_a_role_the_membership_does_not_give_lets_go_of_the_slot(where):
    belong(where, roles=("worker",))
    error = refused(where, {"role": ("ingress",)}, code="role_not_granted")
    assert "ingress" in error.message
    assert nobody_holds_anything(where)


def test_whoever_is_no_member_lets_go_of_the_slot(where):
    FabricDir.create(where.config, "lab", [FOUNDING.charter])
    refused(where, {"role": ("observer",)}, code="no_member")
    assert nobody_holds_anything(where)


def test_a_runtime_directory_of_somebody_else_lets_go_of_the_slot(where):
    belong(where)
    where.runtime.symlink_to(where.config)
    refused(where, {"role": ("observer",)}, code="not_private")
    assert nobody_holds_anything(where)


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("login1.cluster.example.org", "login1"),
        ("_odd_.x", "odd_"),
        ("m\u00fcller", "m-ller"),
        ("", "host"),
        ("h" * 64, "h" * 63),
    ],
)
def test_a_host_is_called_as_the_system_calls_it_as_far_as_a_node_may_be(monkeypatch, system, name):
    monkeypatch.setattr(socket, "gethostname", lambda: system)
    assert hostname() == name
