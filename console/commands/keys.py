"""`tela keys`: API keys are offered as claims, claimed by whom they are for, listed and revoked."""

import json
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from console.credentials import Credential
    from registry.record import Record

CLAIM_DAYS = 7
DEFAULT_DAYS = 90
DAY_S = 86_400.0


@click.group(name="keys")
def keys_() -> None:
    """API keys: offer, claim, list, revoke."""


@keys_.command()
@click.option("--for", "user", default="", metavar="USER", help="Whose key it is, as usage will name them.")
@click.option("--project", default="", help="What it is charged to.")
@click.option("--label", default="", help="What it is for, as `laptop` or `nightly-eval`.")
@click.option("--model", "models", multiple=True, help="A model it may call; every one unless told. Repeatable.")
@click.option(
    "--days", default=DEFAULT_DAYS, show_default=True, type=click.IntRange(1, 3660), help="How long it lasts."
)
@click.option("--no-expiry", is_flag=True, help="It lasts until it is revoked.")
@click.option("--show-secret", is_flag=True, help="Make the secret here and show it, for a program's own key.")
@click.option("--fabric", help="Which fabric, when this account belongs to several.")
@click.option("--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="Unlocks the operator key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def create(
    *,
    user: str,
    project: str,
    label: str,
    models: tuple[str, ...],
    days: int,
    no_expiry: bool,
    show_secret: bool,
    fabric: str | None,
    passphrase_file: str | None,
    as_json: bool,
) -> None:
    """Offer a key: prints a claim that one person may use once, within seven days.

    Whoever claims it is the only one who ever sees the secret. With --show-secret the secret is made here instead,
    for a program that cannot claim.
    """
    from accounting.claims import claim_digest, mint_claim

    from accounting import keys as api_keys
    from console.accounts import Accounts
    from registry.kinds import KeyGrant

    accounts = Accounts.open(fabric, passphrase_file)
    now = accounts.now
    secret = api_keys.mint(secrets.token_bytes(32)) if show_secret else ""
    claim = "" if show_secret else mint_claim(secrets.token_bytes(32))
    expires_at = None if no_expiry else now + days * DAY_S
    grant = KeyGrant(
        label=label,
        user=user,
        project=project,
        models=models or None,
        expires_at=expires_at,
        claim=claim_digest(claim) if claim else b"",
        claim_by=now + CLAIM_DAYS * DAY_S if claim else 0.0,
        digest=api_keys.digest(secret) if secret else b"",
    )
    key = accounts.publish_grant(grant)
    shown = {"id": key, "claim": claim, "secret": secret, "expires_at": expires_at, "url": accounts.url}
    if as_json:
        click.echo(json.dumps(shown))
        return
    click.echo(secret or claim)
    if secret:
        click.echo(f"key {key}, shown once. Base URL: {accounts.url}/v1", err=True)
    else:
        click.echo(f"key {key} is offered until {_day(grant.claim_by)}; whoever gets the line above types:", err=True)
        click.echo(f"  tela keys claim {claim} --url {accounts.url}", err=True)


@keys_.command()
@click.argument("offer", metavar="CLAIM")
@click.option("--url", required=True, help="The door, as the operator gave it.")
@click.option("--insecure-http", is_flag=True, help="Send the claim over plain HTTP beyond this host.")
@click.option("--no-keep", is_flag=True, help="Do not write the key into this account's credentials.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def claim(offer: str, url: str, insecure_http: bool, no_keep: bool, as_json: bool) -> None:
    """Claim a key that was offered to you: the secret is made here, and only its digest is sent.

    CLAIM may be - to read it from stdin.
    """
    from accounting.keys import digest, mint
    from console import credentials
    from console.caller import Caller
    from console.here import places_here

    text = sys.stdin.readline().strip() if offer == "-" else offer.strip()
    caller = Caller(url, text, insecure=insecure_http)
    secret = mint(secrets.token_bytes(32))
    answer = Caller(url).post("/v1/keys/claim", {"claim": text, "digest": digest(secret).hex()})
    kept = credentials.Credential(caller.url, str(answer.get("id", "")), secret, str(answer.get("label", "")))
    path = None if no_keep else credentials.keep(places_here().config, kept)
    _show_claimed(answer, kept, str(path) if path else None, as_json=as_json)


def _show_claimed(answer: dict[str, Any], kept: "Credential", path: str | None, *, as_json: bool) -> None:
    from registry.text import clean

    base = clean(str(answer.get("base_url") or f"{kept.url}/v1"))
    models = [clean(str(name)) for name in answer.get("models") or []]
    if as_json:
        shown = {"id": kept.id, "secret": kept.secret, "base_url": base, "models": models, "kept": path}
        click.echo(json.dumps(shown))
        return
    click.echo(f"OPENAI_BASE_URL={base}")
    click.echo(f"OPENAI_API_KEY={kept.secret}")
    click.echo(f"key {clean(kept.id)} is yours; the two lines above are a .env, shown once.", err=True)
    if path:
        click.echo(f"kept in {path}", err=True)
    if not models:
        click.echo("no model can be called with it now; tela try lists them when there are some", err=True)
        return
    body = json.dumps({"model": models[0], "messages": [{"role": "user", "content": "hello"}]})
    click.echo(f"try it: tela try {models[0]}\nor:", err=True)
    click.echo(
        f"  curl {base}/chat/completions -H 'Authorization: Bearer {kept.secret}' \\\n"
        f"       -H 'Content-Type: application/json' -d '{body}'",
        err=True,
    )


@keys_.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Revoked and expired ones too.")
@click.option("--fabric", help="Which fabric, when this account belongs to several.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(everything: bool, fabric: str | None, as_json: bool) -> None:
    """List keys: whose, what for, until when. Secrets are nowhere; only their digests are kept."""
    from console.accounts import key_states, rows_of
    from console.here import control_here
    from console.views.table import plain

    rows = key_states(rows_of(control_here(fabric)))
    shown = rows if everything else [row for row in rows if row["state"] in {"active", "unclaimed"}]
    if as_json:
        for row in shown:
            click.echo(json.dumps(row))
        return
    if not shown:
        click.echo("no keys yet; tela keys create --for USER offers one", err=True)
        return
    click.echo(plain(shown, ("id", "state", "user", "project", "label", "models", "expires")))


@keys_.command()
@click.argument("key")
@click.option("--reason", default="", help="Shown to operators and in the records.")
@click.option("--self", "own", is_flag=True, help="Your own key, by that key itself: no operator is needed.")
@click.option("--fabric", help="Which fabric, when this account belongs to several.")
@click.option("--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="Unlocks the operator key.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def revoke(key: str, reason: str, own: bool, fabric: str | None, passphrase_file: str | None, yes: bool) -> None:
    """Revoke a key: every ingress refuses it within seconds. Nothing takes that back.

    KEY is its id, or the beginning of one.
    """
    from console.accounts import Accounts, revoke_own

    if own:
        click.echo(revoke_own(key, reason))
        return
    accounts = Accounts.open(fabric, passphrase_file)
    row = accounts.row(key)
    if not yes and sys.stdin.isatty():
        whose = row.get("user") or "nobody named"
        click.confirm(f"revoke {row['id']} of {whose} ({row.get('label') or 'no label'})?", abort=True, err=True)
    record: Record = accounts.publish_revocation(str(row["id"]), reason)
    click.echo(f"{row['id']} is revoked")
    click.echo(f"record {record.order.hash.hex()[:12]}; every linked ingress refuses it from now on", err=True)


def _day(unix_s: float) -> str:
    from console.views.words import moment

    return moment(unix_s)
