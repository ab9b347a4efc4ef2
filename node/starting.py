"""From what somebody typed to what a node runs as: settings, fabric, state directory, identity, in that order.

Nothing is started here. A refusal that is the caller's mistake has the code "usage".
"""

import difflib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from node.config import DoorConfig, EngineConfig, NodeConfig
from node.fabricdir import FabricDir, find
from node.flags import DOOR, Settings, check, is_hub, said, several_of, text_of, wrong
from node.identity import Credentials, identify
from node.places import Places, control_path, make_private
from node.settings import read_file, resolve
from node.statedir import MAX_SLOTS, StateDir, boot_id, process_start
from node.unixsocket import is_alive
from node.wrapping import engines_of
from registry.errors import TelaError

ROLES = ("worker", "ingress", "relay", "launcher", "placer", "observer", "accounts")


class Wanted(NamedTuple):
    """What was asked for, checked as far as it can be without touching anything."""

    settings: Settings
    engines: tuple[EngineConfig, ...]
    roles: tuple[str, ...]
    places: Places
    fabric: FabricDir


class Prepared(NamedTuple):
    """A node that may start: its state directory is ours now."""

    config: NodeConfig
    state: StateDir
    credentials: Credentials


def want(flags: Mapping[str, object], places: Places, env: Mapping[str, str]) -> Wanted:
    """Check what was asked for.

    Raises:
        TelaError: naming the field, the value and the remedy.
    """
    settings = resolve(flags, env, read_file(places.config / "config.toml"))
    fabric = find(places.config, text_of(settings, "fabric") or None)
    engines = engines_of(flags, settings, env)
    roles = _roles(settings, has_engines=bool(engines))
    check(settings, roles, has_engines=bool(engines))
    return Wanted(settings, engines, roles, places, fabric)


def log_path(state: StateDir) -> Path:
    """Where a node in the background logs."""
    return state.path / "node.log"


def prepare(wanted: Wanted, now: float) -> Prepared:
    """Take a slot of this host and the identity that belongs to it.

    Raises:
        TelaError: no slot is free, or the membership does not allow it.
    """
    slot = wanted.settings["slot"].value
    state = _claim(wanted, slot) if isinstance(slot, int) else _first_free(wanted)
    try:
        credentials = identify(wanted.fabric, state, wanted.roles, now=now)
        return Prepared(_config(wanted, state, credentials), state, credentials)
    except BaseException:
        state.release()
        raise


def _first_free(wanted: Wanted) -> StateDir:
    """The first slot of this host that nobody holds: neither its directory, nor, from another home, its socket."""
    for slot in range(MAX_SLOTS):
        try:
            state = _claim(wanted, slot)
        except TelaError as error:
            if error.code != "slot_taken":
                raise
            continue
        if not is_alive(control_path(wanted.places, wanted.fabric.name, state.host, slot)):
            return state
        state.release()
    return _claim(wanted, None)  # which says that there is none


def _claim(wanted: Wanted, slot: int | None) -> StateDir:
    return StateDir.claim(
        wanted.places.state,
        wanted.fabric.name,
        text_of(wanted.settings, "host") or hostname(),
        slot=slot,
        boot_id=boot_id(),
        pid=os.getpid(),
        start=process_start(os.getpid()),
    )


def hostname() -> str:
    """This host's short name, as a node may carry it."""
    short = socket.gethostname().partition(".")[0]
    name = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "-" for char in short)
    return name.lstrip("-_")[:63] or "host"


def _config(wanted: Wanted, state: StateDir, mine: Credentials) -> NodeConfig:
    settings = wanted.settings
    takes_links = is_hub(settings, wanted.roles)
    make_private(wanted.places.runtime)
    return NodeConfig(
        fabric=wanted.fabric.name,
        fabric_dir=str(wanted.fabric.path),
        host=state.host,
        slot=state.slot,
        state=str(state.path),
        seed=mine.seed,
        charter=mine.charters[0].raw,
        membership=mine.membership.raw,
        certificate=mine.certificate.raw,
        invite=mine.invite.raw if mine.invite else None,
        records=tuple(record.raw for record in wanted.fabric.records()),
        member_seed=mine.member_seed,
        roles=wanted.roles,
        listen=text_of(settings, "listen") if takes_links else None,
        advertise=several_of(settings, "advertise") if takes_links else (),
        door=_door(settings) if "ingress" in wanted.roles else None,
        control=str(control_path(wanted.places, wanted.fabric.name, state.host, state.slot)),
        hubs=mine.hubs,
        engines=wanted.engines,
        serve_to=tuple(whom for whom in several_of(settings, "serve_to") if whom != "fabric"),
        drain_s=float(str(settings["drain_s"].value)),
    )


def _door(settings: Settings) -> DoorConfig:
    return DoorConfig(
        address=text_of(settings, "http") or DOOR,
        url=text_of(settings, "url").rstrip("/").removesuffix("/v1"),
        tls_cert=text_of(settings, "tls_cert"),
        tls_key=text_of(settings, "tls_key"),
        behind_proxy=several_of(settings, "behind_proxy"),
        insecure_http=bool(settings["insecure_http"].value),
    )


def _roles(settings: Settings, *, has_engines: bool) -> tuple[str, ...]:
    told = [name.strip() for each in several_of(settings, "role") for name in each.split(",") if name.strip()]
    if not told:
        told = ["worker"] if has_engines else []
        if text_of(settings, "listen"):
            told += ["relay"]
        if text_of(settings, "http"):
            told += ["ingress"]
    if not told:
        raise wrong(
            "nothing to start: no engine and no role",
            'wrap one: --process "vllm serve MODEL --port {port}"; or be something: --role ingress,relay or observer',
        )
    unknown = [name for name in told if name not in ROLES]
    if unknown:
        near = difflib.get_close_matches(unknown[0], ROLES, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise wrong(f"{said(settings, 'role')} {unknown[0]}: no such role", f"{meant}There is {', '.join(ROLES)}")
    if has_engines and "worker" not in told:
        raise wrong(
            f"an engine, but {said(settings, 'role')} {','.join(told)}", "add worker to the roles, or leave --role out"
        )
    if not has_engines and told == ["worker"]:
        raise wrong(f"{said(settings, 'role')} worker without an engine", "add --process CMD or --engine-url URL")
    return tuple(dict.fromkeys(told))
