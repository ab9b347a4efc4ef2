"""`tela invite`: offer one person to join. Refuses while nobody on another host could."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from console.charters import Known
    from console.founding import Terms
    from console.signer import Signer
    from console.tokens import Invitation
    from node.config import HubAddress
    from registry.kinds import Charter

PORT = 7481


class Asked(NamedTuple):
    """What was typed."""

    provider: str | None
    roles: tuple[str, ...]
    max_nodes: int
    hours: float
    days: int
    out: Path | None
    hub: str | None
    loopback: bool


@click.command()
@click.option("--provider", help="The organisation behind their nodes; needed unless your scope names one.")
@click.option("--roles", multiple=True, default=("worker",), show_default=True, help="What their nodes may be; commas.")
@click.option("--max-nodes", default=100, show_default=True, type=click.IntRange(1, 100_000), help="At one time.")
@click.option("--hours", default=24.0, show_default=True, type=click.FloatRange(0.1, 8_760), help="To accept it in.")
@click.option(
    "--days", default=90, show_default=True, type=click.IntRange(1, 3_660), help="It lasts so long after use."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a new file only you can read."
)
@click.option("--hub", metavar="[NODE=]URL", help="Where they reach the hub, for this invite alone.")
@click.option("--loopback", is_flag=True, help="They join on this very host: loopback addresses will do.")
@click.option("--fabric", help="Which fabric, when this account belongs to several.")
@click.option("--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="Unlocks the operator key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def invite(*, fabric: str | None, passphrase_file: str | None, as_json: bool, **asked: object) -> None:
    """Invite one person to run nodes. The invite is one word on stdout, or a file with --out.

    \b
    tela invite --provider chem --max-nodes 50 --out invite.txt

    Whoever has it can use it, once, so give it as a file, not in a chat. It is used with `tela join @FILE`.

    Roles beyond worker and observer reach beyond one provider: an ingress holds everybody's keys, and a hub lets people
    in. So only an owner of the whole fabric can give them.
    """  # noqa: D301 - click reads the character
    from console.charters import keep_charters, known, node_here
    from console.here import named_fabric, places_here
    from console.signer import operator_signer
    from console.tokens import write_token
    from node.fabricdir import find
    from node.private import create_private
    from registry.errors import TelaError

    wanted = Asked(**asked)  # type: ignore[arg-type]
    places = places_here()
    held = find(places.config, named_fabric(fabric, places))
    now = known(held, node_here(places, held))
    hubs = _hubs(now, wanted)
    if wanted.out is not None and wanted.out.exists():
        raise TelaError(f"{wanted.out} exists", hint="choose another name, or remove it", code="file_exists")
    invitation = _signed(now, wanted, hubs, operator_signer(held, passphrase_file))
    keep_charters(held, now.charters)
    token = write_token(invitation)
    if wanted.out is not None and not create_private(wanted.out, token.encode() + b"\n"):
        raise TelaError(f"{wanted.out} exists", hint="choose another name, or remove it", code="file_exists")
    _tell(invitation, wanted, token, as_json=as_json)


def _signed(now: "Known", wanted: Asked, hubs: "tuple[HubAddress, ...]", signer: "Signer") -> "Invitation":
    from console.founding import invite_record
    from console.publishing import publish
    from console.tokens import Invitation
    from registry.kinds import Invite, read_body

    terms = _terms(now, wanted, signer)
    _check_right(now.charter, signer, terms.provider)
    _check_roles(now.charter, signer, terms.roles)
    seed = os.urandom(32)
    record = invite_record(terms, seed, signer)
    body = read_body(record)
    assert isinstance(body, Invite)
    if now.control is not None:
        publish(now.control, [record])
    return Invitation(now.fabric.name, now.charters, record, body, seed, hubs, _door(now))


def _terms(now: "Known", wanted: Asked, signer: "Signer") -> "Terms":
    from console.founding import HOUR_S, Terms, checked_roles, checked_word
    from node.clock import SystemClock
    from node.starting import ROLES

    clock = SystemClock()
    if now.control is not None:
        clock.offset_s = float(now.control.about["clock_offset_s"])
    return Terms(
        provider=checked_word("--provider", wanted.provider or _only_provider(now.charter, signer)),
        roles=checked_roles(wanted.roles, ROLES),
        max_nodes=wanted.max_nodes,
        days=wanted.days,
        accept_by=clock.fabric() + wanted.hours * HOUR_S,
    )


def _only_provider(charter: "Charter", signer: "Signer") -> str:
    scopes = {each.scope for each in charter.operators if each.key == signer.key and "owner" in each.verbs}
    named = [scope.partition(":")[2] for scope in scopes if scope.startswith("provider:")]
    if len(named) == 1 and len(scopes) == 1:
        return named[0]
    raise click.UsageError("whose nodes will they be? add --provider NAME, their organisation or group")


def _check_right(charter: "Charter", signer: "Signer", provider: str) -> None:
    from console.charters import owners
    from registry.charter import OWNER, may
    from registry.errors import TelaError
    from registry.text import clean

    if not may(charter, signer.key, OWNER, provider=provider):
        who = ", ".join(owners(charter, provider)) or "nobody but the recovery key"
        raise TelaError(
            f"{clean(signer.name)} may not invite for provider {provider}; nothing was made",
            hint=f"{who} may; `tela operators list` shows who may do what",
            code="not_entitled",
        )


def _check_roles(charter: "Charter", signer: "Signer", roles: tuple[str, ...]) -> None:
    from console.charters import owners
    from registry.errors import TelaError
    from registry.memberships import given_roles
    from registry.text import clean

    given = given_roles(charter, signer.key, roles)
    beyond = [role for role in roles if role not in given]
    if beyond:
        who = ", ".join(owners(charter, "")) or "nobody but the recovery key"
        raise TelaError(
            f"{clean(signer.name)} may not invite as {', '.join(beyond)}: that reaches beyond one provider; "
            "nothing was made",
            hint=f"invite as worker or observer, or ask an owner of the whole fabric: {who}",
            code="not_entitled",
        )


# --- where they dial


def _hubs(now: "Known", wanted: Asked) -> "tuple[HubAddress, ...]":
    """The hubs an invited person dials first: as told, else the charter's and this account's.

    Raises:
        TelaError: another host could reach none of them, or --hub names none.
    """
    from console.founding import choices, link_url, reachable
    from console.thishost import host_names
    from console.tokens import MAX_HUBS
    from node.config import HubAddress
    from registry.errors import TelaError

    urls: dict[bytes, tuple[str, ...]] = {}
    charters = [HubAddress(key=hub.key, urls=hub.urls) for hub in now.charter.hubs]
    for hub in (*charters, *now.fabric.hubs()):
        urls[hub.key] = tuple(dict.fromkeys((*urls.get(hub.key, ()), *hub.urls)))
    if wanted.hub is not None:
        node, _, url = wanted.hub.rpartition("=")
        key = _hub_key(now, node, list(urls))
        urls = {key: (link_url(url),), **{each: told for each, told in urls.items() if each != key}}
    every = [url for told in urls.values() for url in told]
    if not wanted.loopback and not reachable(every):
        told = f" ({', '.join(every)})" if every else ""
        raise TelaError(
            f"nobody on another host could join: every address of {now.fabric.name}'s hubs is loopback{told}",
            hint=f"name one they can reach: {choices('--hub', host_names(), _port(every))}. For good: start the hub "
            "with --advertise URL, then `tela operators hub add NODE`. On this host alone: --loopback",
            code="loopback_hubs",
        )
    return tuple(HubAddress(key=key, urls=told[:16]) for key, told in list(urls.items())[:MAX_HUBS] if told)


def _hub_key(now: "Known", node: str, keys: list[bytes]) -> bytes:
    """Which hub a --hub is about: the one named, else the only one, else the node here."""
    from registry.ids import key_id

    about = now.control.about if now.control is not None else {}
    mine = str(about.get("node", {}).get("id", ""))
    fitting = [key for key in keys if key_id(key).startswith(node)] if node else keys
    if len(fitting) != 1:
        fitting = [key for key in fitting if key_id(key) == mine]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(f"{key_id(key)[:8]}=URL" for key in keys) or "none"
    raise click.UsageError(f"--hub: which hub is it? there are {listed}")


def _port(urls: list[str]) -> int:
    from urllib.parse import urlsplit

    return next((port for url in urls if (port := urlsplit(url).port) is not None), PORT)


def _door(now: "Known") -> str:
    """The URL of the door, when it may be told to others."""
    from console.thishost import is_loopback

    door = now.fabric.door
    if now.control is not None:
        door = str(now.control.about.get("url") or door)
    return "" if not door or is_loopback(door) else door


# --- what is said


def _tell(invitation: "Invitation", wanted: Asked, token: str, *, as_json: bool) -> None:
    from console.founding import up_to
    from console.views.words import moment

    invite = invitation.invite
    if as_json:
        shown = {
            "id": invitation.record.key.id,
            "token": token,
            "file": str(wanted.out) if wanted.out else None,
            "fabric": invitation.name,
            "provider": invite.provider,
            "roles": list(invite.roles),
            "max_nodes": invite.max_nodes,
            "accept_by": invite.accept_by,
            "days": invite.days,
            "hubs": [url for hub in invitation.hubs for url in hub.urls],
        }
        click.echo(json.dumps(shown))
        return
    if wanted.out is None:
        click.echo(token)
    where = str(wanted.out) if wanted.out else "FILE"
    click.echo(
        f"One person may join {invitation.name} with it until {moment(invite.accept_by)}: "
        f"{up_to(invite.max_nodes)} at one time for {invite.provider}, as {', '.join(invite.roles)}.\n"
        f"Their membership ends {invite.days} days after its nodes were last seen.\n"
        f"Give it to them as a file; they type:\n\n  tela join @{where}\n\n"
        f"To take it back: tela operators revoke {invitation.record.key.id}",
        err=True,
    )
