"""`tela operators`: who may do what in a fabric. Each change is a successor of the charter, signed here by an owner."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from console.commands.sealing import Keeping, keeping_options, new_operator

if TYPE_CHECKING:
    from console.charters import Known
    from console.removing import Prospect
    from console.signer import Signer
    from registry.kinds import Charter


class Signing(NamedTuple):
    """What every command takes that signs."""

    fabric: str | None
    passphrase_file: str | None
    recovery: bool


FABRIC = click.option("--fabric", help="Which fabric, when this account belongs to several.")
JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
SCOPE = click.option("--scope", default="fabric", show_default=True, help="fabric, provider:NAME or project:NAME.")


def _signing(command: Callable[..., None]) -> Callable[..., None]:
    """What every command takes that signs."""
    for option in (
        FABRIC,
        click.option("--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="For the operator key."),
        click.option("--recovery", is_flag=True, help="Sign with the recovery key, read from the terminal or stdin."),
    ):
        command = option(command)
    return command


@click.group()
def operators() -> None:
    """Who may do what: list, request, add, grant, remove, revoke; hubs and issuers of the charter."""


@operators.command(name="list")
@FABRIC
@JSON
def list_(fabric: str | None, as_json: bool) -> None:
    """List operators, hubs and issuers, and what was signed by somebody who may not."""
    from console.charters import covered
    from console.views.authority import authority, lines

    now = _known(fabric)
    view = now.control.get("/view") if now.control is not None else None
    shown = authority(now.in_force, view, mine=_own_key(now))
    if as_json:
        click.echo(json.dumps(shown))
        return
    for line in lines(shown, covered(now.control, shown["refused"]) if now.control is not None else ()):
        click.echo(line)
    if view is None:
        click.echo("no node of yours runs here, so this is what was known when one last did: tela start", err=True)


@operators.command()
@click.option("--operator", "who", metavar="WHO", required=True, help="Your name as an operator.")
@keeping_options
@FABRIC
@JSON
def request(
    *,
    who: str,
    ssh_agent: str | None,
    passphrase_file: str | None,
    no_passphrase: bool,
    fabric: str | None,
    as_json: bool,
) -> None:
    """Make a key of your own, and say what an owner types to make you an operator.

    The key stays here; only its public half is shown. Asked again, it shows the key that is there.
    """
    from console.founding import checked_word
    from console.sealed import encode
    from console.signer import sealed_key
    from console.thishost import shown_path

    now = _known(fabric)
    sealed = sealed_key(now.fabric)
    if sealed is None:
        keeping = Keeping(ssh_agent, passphrase_file, no_passphrase)
        sealed, _ = new_operator(checked_word("--operator", who), keeping)
        now.fabric.save_operator_key(encode(sealed))
    command = f"tela operators add {sealed.name} --key {sealed.key.hex()} --verbs fleet"
    if as_json:
        path = str(now.fabric.operator_path)
        click.echo(json.dumps({"name": sealed.name, "key": sealed.key.hex(), "path": path, "command": command}))
        return
    from console.charters import owners

    click.echo(command)
    click.echo(
        f"Your key is {shown_path(now.fabric.operator_path)}, and may nothing yet. Give the line above to an owner of "
        f"{now.fabric.name} ({', '.join(owners(now.charter)) or 'nobody is one'}), who says which verbs:\n"
        "fleet (drain, evict), keys (API keys), placement, owner (invites, operators).\n"
        "`tela whoami` shows when it counts.",
        err=True,
    )


@operators.command()
@click.argument("who")
@click.option("--key", required=True, metavar="HEX", help="Their public key, as tela operators request says.")
@click.option("--verbs", multiple=True, default=("fleet",), show_default=True, help="fleet, keys, placement, owner.")
@SCOPE
@_signing
def add(*, who: str, key: str, verbs: tuple[str, ...], scope: str, **signing: object) -> None:
    """Make WHO an operator. Compare the key with them by another way than the one it came by."""
    from console.founding import checked_word
    from console.naming import added, public_key, scope_of, verbs_of

    name, theirs = checked_word("WHO", who), public_key(key)
    may, within = verbs_of(verbs), scope_of(scope)
    _change(
        signing, lambda charter: added(charter, name, theirs, may, within), f"{name} may {', '.join(may)} ({within})"
    )


@operators.command()
@click.argument("who")
@click.option("--verbs", multiple=True, required=True, help="fleet, keys, placement, owner; commas.")
@SCOPE
@_signing
def grant(*, who: str, verbs: tuple[str, ...], scope: str, **signing: object) -> None:
    """Let an operator do more, or something in another scope."""
    from console.naming import granted, scope_of, verbs_of

    may, within = verbs_of(verbs), scope_of(scope)
    _change(signing, lambda charter: granted(charter, who, may, within), f"{who} may {', '.join(may)} ({within}) too")


@operators.command()
@click.argument("who")
@click.option("--verbs", multiple=True, help="Only these; everything unless told.")
@click.option("--scope", help="Only in this scope; in every one unless told.")
@click.option("--void", is_flag=True, help="Take nothing over: members they invited and keys they granted end.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_signing
def remove(*, who: str, verbs: tuple[str, ...], scope: str | None, void: bool, yes: bool, **signing: object) -> None:
    """Take an operator's verbs away. What they signed before would count no more, so you take it over.

    The members they invited, the keys they granted and the orders they gave are signed again by you, before the
    charter goes on without them. With --void they end.
    """
    from console.naming import scope_of, verbs_of
    from console.removing import Removal, check, finish, prospect, take_over, taken
    from registry.text import clean

    removal = Removal(who, verbs_of(verbs) if verbs else None, scope_of(scope) if scope else None)
    now = _known(_signing_of(signing).fabric, accounts=True)
    name, what = clean(who, 80), ", ".join(removal.verbs) if removal.verbs else "everything"
    removal.of(now.charter)  # what cannot be is said before a passphrase is asked for
    if not void:
        check(now, removal)
        _confirm(f"take {what} from {name}{f' in {scope}' if scope else ''}?", yes=yes)
    signer = _signer(now, _signing_of(signing))
    seen = prospect(now, signer, removal)
    if void:
        _confirm(f"take {what} from {name}? {_ends(seen, name)}.", yes=yes)
    held = None if void else take_over(now, signer, removal, seen)
    after = finish(now, seen)
    for line in taken(held) if held is not None else ():
        click.echo(f"taken over from {name}: {line}")
    if void or held is None:
        click.echo(_ends(seen, name), err=True)
    _changed(after, f"{name} may {what} no more")


@operators.command()
@click.argument("target")
@click.option("--reason", default="", help="Why; everybody sees it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_signing
def revoke(*, target: str, reason: str, yes: bool, **signing: object) -> None:
    """Take an invite, or the membership of a person, back: their nodes' links close within seconds.

    TARGET is the id of an invite or a member, or the beginning of one.
    """
    from console.revoking import revocable, revoke_act

    now = _known(_signing_of(signing).fabric)
    found = revocable(now, target)
    _confirm(f"revoke {found.what} {found.id} ({found.about})?", yes=yes)
    revoke_act(now, found, _signer(now, _signing_of(signing)), reason)
    click.echo(f"{found.what} {found.id} is revoked")
    for line in found.ends:
        click.echo(f"{line} ends with it")
    click.echo("nothing takes it back; whoever should come again needs a new invite", err=True)


@operators.group()
def hub() -> None:
    """Hubs the charter names: they accept members, and everybody dials them first."""


@hub.command(name="add")
@click.argument("node")
@click.option("--url", "urls", multiple=True, metavar="URL", help="Where others reach it; as it says unless told.")
@_signing
def hub_add(*, node: str, urls: tuple[str, ...], **signing: object) -> None:
    """Name NODE a hub in the charter, or give one new URLs."""
    from console.founding import link_url, reachable
    from console.naming import hub_added, hub_of, node_of

    now = _known(_signing_of(signing).fabric)
    told = tuple(link_url(each) for each in urls)
    named = hub_of(now.charter, node)
    found = named if named is not None and told else node_of(now, node)
    where = told or found.urls
    if not where:
        raise click.UsageError(f"{found.name} takes no links: start it with --listen, or say where with --url")
    _change(signing, lambda charter: hub_added(charter, found.key, where), f"{found.name} is a hub: {', '.join(where)}")
    if not reachable(where):
        click.echo("only its own host can reach that", err=True)


@hub.command(name="remove")
@click.argument("node")
@click.option("--evict", is_flag=True, help="Put the node out of the fabric too, and hear it on members no more.")
@click.option("--yes", is_flag=True, help="Do not ask before that.")
@_signing
def hub_remove(*, node: str, evict: bool, yes: bool, **signing: object) -> None:
    """Take a hub out of the charter; the node goes on.

    Whom it let in stays, so what it says of new members is still heard, after all other hubs. --evict ends that.
    """
    from console.charters import change
    from console.evicting import evict_hub, refuse_eviction
    from console.naming import hub_named, hub_removed

    now = _known(_signing_of(signing).fabric)
    found = hub_named(now, node)
    hub_removed(now.charter, found.key)
    if evict:
        refuse_eviction(now)
        _confirm(f"evict {found.name}? Its links close, and what it serves is gone at once.", yes=yes)
    signer = _signer(now, _signing_of(signing))
    if evict:
        refuse_eviction(now, signer)
    after = change(now, signer, lambda charter: hub_removed(charter, found.key))
    _changed(after, f"{found.name} is no hub of the charter any more")
    if evict:
        evict_hub(after, found.key, signer)
        click.echo(f"{found.name} is evicted: whom it let in before stays, and it lets in nobody more")
    else:
        click.echo(
            f"{found.name} is still heard on new members, after all other hubs; if it is not to be trusted: "
            f"tela evict {found.name}",
            err=True,
        )


@operators.group()
def issuer() -> None:
    """Ingresses that may mint a key that is claimed; while none is named, every ingress may."""


@issuer.command(name="add")
@click.argument("node")
@_signing
def issuer_add(*, node: str, **signing: object) -> None:
    """Let NODE mint claimed keys."""
    from console.naming import issuer_added, node_of

    found = node_of(_known(_signing_of(signing).fabric), node)
    _change(signing, lambda charter: issuer_added(charter, found.key), f"{found.name} may mint claimed keys")


@issuer.command(name="remove")
@click.argument("node")
@_signing
def issuer_remove(*, node: str, **signing: object) -> None:
    """Let NODE mint no more; keys it minted are not honoured any more."""
    from console.naming import issuer_named, issuer_removed

    found = issuer_named(_known(_signing_of(signing).fabric), node)
    _change(signing, lambda charter: issuer_removed(charter, found.key), f"{found.name} may mint claimed keys no more")


# --- shared


def _known(fabric: str | None, *, accounts: bool = False) -> "Known":
    from console.charters import known, node_here
    from console.here import named_fabric, places_here
    from node.fabricdir import find

    places = places_here()
    held = find(places.config, named_fabric(fabric, places))
    return known(held, node_here(places, held, accounts=accounts))


def _own_key(now: "Known") -> bytes:
    """The operator key here; nothing is unlocked. Empty when there is none, or it cannot be read."""
    from console.signer import sealed_key
    from registry.errors import TelaError

    try:
        sealed = sealed_key(now.fabric)
    except TelaError:
        return b""  # tela whoami says what is wrong with it
    return sealed.key if sealed is not None else b""


def _signing_of(asked: Mapping[str, object]) -> Signing:
    return Signing(**asked)  # type: ignore[arg-type] # click made them what they are


def _change(asked: Mapping[str, object], new: "Callable[[Charter], Charter]", what: str) -> None:
    from console.charters import change

    signing = _signing_of(asked)
    now = _known(signing.fabric)
    new(now.charter)  # what cannot be is said before a passphrase is asked for
    _changed(change(now, _signer(now, signing), new), what)


def _changed(after: "Known", what: str) -> None:
    from registry.text import clean

    record = after.in_force.current.record
    click.echo(clean(what, 400))
    waits = (
        "" if after.control is not None else "; it waits in this account until a node of yours carries it: tela start"
    )
    click.echo(f"charter {record.order.seq} of {after.fabric.name}{waits}", err=True)


def _signer(now: "Known", signing: Signing) -> "Signer":
    from console.signer import operator_signer, recovery_signer

    if not signing.recovery:
        return operator_signer(now.fabric, signing.passphrase_file)
    if sys.stdin.isatty():
        return recovery_signer(click.prompt("Recovery key", err=True, hide_input=True))
    return recovery_signer(sys.stdin.read(4_096))


def _ends(seen: "Prospect", name: str) -> str:
    """What ends with an operator when nothing is taken over."""
    from console.removing import said_of

    if seen.before is None:
        return f"what {name} signed could not be looked at, and counts no more"
    keys = "" if seen.has_keys else f"; keys that {name} granted, if any, end too: the node here does not hold them"
    return (said_of(seen.lost) or "no member and no key that is held here ends") + keys


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
        return
    from registry.errors import TelaError

    raise TelaError(f"{question} Not asked, for stdin is no terminal", hint="add --yes", code="usage")
