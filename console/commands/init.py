"""`tela init`: found a fabric. Writes the first keys and records, starts nothing, and says what to type next."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from console.commands.sealing import Keeping, keeping_options, new_operator

if TYPE_CHECKING:
    from console.sealed import Sealed
    from console.signer import Signer
    from node.fabricdir import FabricDir
    from node.places import Places
    from registry.record import Record

DOOR = "127.0.0.1:7480"
WIDTH = 13


class Plan(NamedTuple):
    """What was asked for, checked before anything is made."""

    name: str
    who: str
    provider: str
    listen: str
    advertise: tuple[str, ...]  # as typed, for the next command
    urls: tuple[str, ...]
    http: str  # as typed; empty: not
    url: str  # the same
    door: str
    host: str | None
    slot: int | None
    places: "Places"


class Made(NamedTuple):
    """What there is now."""

    plan: Plan
    fabric: "FabricDir"
    node: str  # its id
    host: str
    slot: int
    node_path: Path
    sealed: "Sealed"
    recovery: str  # as it is written down


@click.command()
@click.argument("name")
@click.option(
    "--listen", required=True, metavar="HOST:PORT", help="Where this host takes links; 0.0.0.0:7481 is usual."
)
@click.option(
    "--advertise", multiple=True, metavar="URL", help="How others reach that, as ws://login1:7481. Repeatable."
)
@click.option("--operator", "who", required=True, metavar="WHO", help="Your name as an operator.")
@click.option("--provider", help="The organisation behind your own nodes; NAME unless told.")
@click.option("--http", default="", metavar="HOST:PORT", help="Where the door to the models will be.")
@click.option("--url", default="", help="Where people reach that door, as https://llm.example.org.")
@click.option("--host", help="The name of this host; the system's own unless told.")
@click.option("--slot", type=click.IntRange(0, 999), help="Which of several nodes on this host; the first free one.")
@keeping_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout. The recovery key stays on stderr.")
def init(
    *,
    name: str,
    listen: str,
    advertise: tuple[str, ...],
    who: str,
    provider: str | None,
    http: str,
    url: str,
    host: str | None,
    slot: int | None,
    ssh_agent: str | None,
    passphrase_file: str | None,
    no_passphrase: bool,
    as_json: bool,
) -> None:
    """Found the fabric NAME, with this host as its first hub and you as its first operator.

    \b
    tela init lab --listen 0.0.0.0:7481 --advertise ws://login1.example.org:7481 --operator ada

    Writes keys and records of this account and starts nothing; the commands that come next are on stdout.
    """  # noqa: D301 - click reads the character
    from console.founding import advertised, checked_word, door_url
    from console.here import places_here
    from console.thishost import host_names
    from node.fabricdir import checked_name

    plan = Plan(
        name=checked_name(name),
        who=checked_word("--operator", who),
        provider=checked_word("--provider", provider or name),
        listen=listen,
        advertise=advertise,
        urls=advertised(listen, advertise, host_names()),
        http=http,
        url=url,
        door=door_url(url, http or DOOR),
        host=host,
        slot=slot,
        places=places_here(),
    )
    _refuse_leftovers(plan)
    sealed, signer = new_operator(plan.who, Keeping(ssh_agent, passphrase_file, no_passphrase))
    made = _make(plan, sealed, signer)
    _tell(made, quiet=as_json)
    if as_json:
        click.echo(json.dumps(_object(made)))
    else:
        for line in next_commands(made):
            click.echo(line)


def _refuse_leftovers(plan: Plan) -> None:
    from node.fabricdir import names
    from registry.errors import TelaError

    if plan.name in names(plan.places.config):
        path = plan.places.config / "fabrics" / plan.name
        raise TelaError(
            f"{path} exists: this account knows a fabric {plan.name} already; nothing was changed",
            hint=f"tela whoami shows it. Choose another name, or move it away: mv {path} {path}.old",
            code="fabric_exists",
        )
    state = plan.places.state / plan.name
    if _has_lived(state):
        raise TelaError(
            f"{state} holds nodes of an earlier fabric {plan.name}; nothing was changed",
            hint=f"choose another name, or move them away: mv {state} {state}.old",
            code="fabric_exists",
        )


def _has_lived(state: Path) -> bool:
    """Whether nodes ran there; a key alone is what a founding that broke off leaves."""
    try:
        return any(each.name not in {"node.key", "lock"} for slot in state.iterdir() for each in slot.iterdir())
    except OSError:
        return False


def _make(plan: Plan, sealed: "Sealed", signer: "Signer") -> Made:
    from console.founding import Seeds
    from console.recovery import recovery_text
    from console.sealed import encode
    from node.clock import SystemClock
    from node.config import HubAddress
    from node.fabricdir import FabricDir
    from node.statedir import StateDir, boot_id, process_start
    from registry.ids import key_id
    from registry.record import seed_signer

    recovery, pid = os.urandom(32), os.getpid()
    slot, host = _settled(plan)
    state = StateDir.claim(
        plan.places.state, plan.name, host, slot=slot, boot_id=boot_id(), pid=pid, start=process_start(pid)
    )
    try:
        seeds = Seeds(node=state.seed(), member=os.urandom(32), invite=os.urandom(32))
        node, _ = seed_signer(seeds.node)
        fabric = FabricDir.create(
            plan.places.config,
            plan.name,
            _records(plan, signer, seeds, recovery, SystemClock().wall()),
            (HubAddress(key=node, urls=plan.urls),),
            plan.door,
            member_seed=seeds.member,
            operator_key=encode(sealed),
        )
    finally:
        state.release()
    return Made(plan, fabric, key_id(node), state.host, state.slot, state.path, sealed, recovery_text(recovery))


def _records(plan: Plan, signer: "Signer", seeds: object, recovery: bytes, now: float) -> "tuple[Record, ...]":
    from console.founding import FOUNDER_DAYS, FOUNDER_NODES, HOUR_S, Seeds, Terms, found_fabric
    from node.starting import ROLES
    from registry.record import seed_signer

    assert isinstance(seeds, Seeds)
    terms = Terms(plan.provider, ROLES, FOUNDER_NODES, FOUNDER_DAYS, now + HOUR_S)
    return found_fabric(plan.name, signer, terms, seeds, plan.urls, seed_signer(recovery)[0], now)


def _settled(plan: Plan) -> tuple[int | None, str]:
    """Slot and host, as `tela start` will find them."""
    from node.settings import read_file, resolve
    from node.starting import hostname

    told = {"host": plan.host, "slot": plan.slot}
    settings = resolve(told, os.environ, read_file(plan.places.config / "config.toml"))
    slot = settings["slot"].value
    return slot if isinstance(slot, int) else None, str(settings["host"].value or hostname())


# --- what is said


def next_commands(made: Made) -> list[str]:
    """The three commands that come next, filled in."""
    from node.fabricdir import names

    plan = made.plan
    which = ["--fabric", plan.name] if len(names(plan.places.config)) > 1 else []
    return [
        _start_command(plan, which),
        " ".join(["tela invite", *which, f"--provider {plan.provider} --out invite.txt"]),
        'tela join @invite.txt && tela start --process "vllm serve MODEL --port {port}"',
    ]


def _start_command(plan: Plan, which: list[str]) -> str:
    import shlex

    words = ["tela", "start", *which, "--role", "ingress,relay", "--listen", plan.listen]
    for each in plan.advertise:
        words += ["--advertise", each]
    words += ["--http", plan.http] if plan.http else []
    words += ["--url", plan.url] if plan.url else []
    words += ["--host", plan.host] if plan.host else []
    words += ["--slot", str(plan.slot)] if plan.slot is not None else []
    return shlex.join([*words, "--detach"])


def _tell(made: Made, *, quiet: bool) -> None:
    from console.founding import reachable
    from console.thishost import is_loopback

    if not quiet:
        for line in _summary(made):
            click.echo(line, err=True)
    click.echo(
        "\nRecovery key, shown this once. Write it down and keep the paper away from this host: whoever\n"
        "has it can take the fabric over, and when every operator key is lost it is the only way back.\n\n"
        f"{_in_lines(made.recovery)}\n",
        err=True,
    )
    if not reachable(made.plan.urls):
        click.echo(
            f"Only this host can reach {made.plan.urls[0]}: good for a try, and nobody else can join.\n"
            "`tela invite` will say how to change that.\n",
            err=True,
        )
    if made.plan.http and not made.plan.http.startswith("unix:") and not is_loopback(made.plan.http):
        click.echo(
            f"A door at {made.plan.http} is open beyond this host, and API keys pass through it: add --tls-cert and\n"
            "--tls-key, or --behind-proxy CIDR, or --insecure-http to the first command.\n",
            err=True,
        )
    if not quiet:
        click.echo("Nothing runs yet. Next: start the hub here, invite somebody, and what they type then:\n", err=True)


def _summary(made: Made) -> list[str]:
    from console.thishost import shown_path

    plan, fabric = made.plan, made.fabric
    how = {
        "passphrase": "sealed by your passphrase; tela asks for it when you sign",
        "none": "NOT sealed: whoever can read this file is this operator",
        "ssh-agent": "the key itself stays in your ssh-agent",
    }[made.sealed.how]
    rows = [
        ("id", fabric.fabric_id.hex()),
        ("you", f"operator {plan.who} (may do everything), member of {plan.provider}"),
        ("first hub", f"this host, as {made.host}-{made.slot}; others reach it at {', '.join(plan.urls)}"),
        ("operator key", f"{shown_path(fabric.operator_path)}: {how}"),
        ("member key", f"{shown_path(fabric.member_path)}: certifies your nodes"),
        ("node key", f"{shown_path(made.node_path / 'node.key')}: of the first hub"),
    ]
    return [f"The fabric {plan.name} is founded.\n", *(f"  {what:{WIDTH}} {text}" for what, text in rows)]


def _in_lines(recovery: str) -> str:
    groups = recovery.split("-")
    half = len(groups) // 2
    return "\n".join("  " + "-".join(each) for each in (groups[:half], groups[half:]))


def _object(made: Made) -> dict[str, object]:
    fabric, plan = made.fabric, made.plan
    return {
        "fabric": {"id": fabric.fabric_id.hex(), "name": plan.name},
        "operator": {"name": plan.who, "key": made.sealed.key.hex(), "kept": made.sealed.how},
        "provider": plan.provider,
        "node": {"id": made.node, "host": made.host, "slot": made.slot, "urls": list(plan.urls)},
        "door": plan.door,
        "paths": {
            "fabric": str(fabric.path),
            "operator_key": str(fabric.operator_path),
            "member_key": str(fabric.member_path),
            "node_key": str(made.node_path / "node.key"),
        },
        "next": next_commands(made),
    }
