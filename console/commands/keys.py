"""`tela keys`: API keys are offered as claims, claimed by whom they are for, listed and revoked."""

import json
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from console.commands.completion import model_names

if TYPE_CHECKING:
    from console.accounts import Accounts
    from console.credentials import Credential
    from registry.kinds import KeyGrant

CLAIM_DAYS = 7
DEFAULT_DAYS = 90
DAY_S = 86_400.0
MAX_TEXT = 256  # of a record

FABRIC = click.option("--fabric", metavar="NAME", help="Which fabric, when this account belongs to several.")
PASSPHRASE = click.option(
    "--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="Unlocks the operator key."
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
INSECURE = click.option("--insecure-http", is_flag=True, help="Send a secret over plain HTTP beyond this host.")


@click.group(name="keys")
def keys_() -> None:
    """API keys: offer, claim, list, revoke."""


@keys_.command()
@click.option("--for", "user", default="", metavar="USER", help="Whose key it is, as usage will name them.")
@click.option("--project", default="", metavar="NAME", help="What it is charged to.")
@click.option("--label", default="", metavar="TEXT", help="What it is for, as `laptop` or `nightly-eval`.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    shell_complete=model_names,
    help="A model it may call; every one unless told. Repeatable.",
)
@click.option(
    "--days", default=DEFAULT_DAYS, show_default=True, type=click.IntRange(1, 3660), help="How long it lasts."
)
@click.option("--no-expiry", is_flag=True, help="It lasts until it is revoked.")
@click.option("--show-secret", is_flag=True, help="Make the secret here and show it, for a program's own key.")
@FABRIC
@PASSPHRASE
@JSON
def create(
    *,
    days: int,
    no_expiry: bool,
    show_secret: bool,
    fabric: str | None,
    passphrase_file: str | None,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - user, project, label and models, as click read them
) -> None:
    """Offer a key: prints a claim that one person may use once, within seven days.

    Whoever claims it is the only one who ever sees the secret. With --show-secret the secret is made here instead,
    for a program that cannot claim.
    """
    from accounting.claims import claim_digest, mint_claim
    from accounting.keys import digest, mint
    from console.accounts import Accounts
    from registry.kinds import KeyGrant

    _check(**asked)
    accounts = Accounts.open(fabric, passphrase_file)
    secret = mint(secrets.token_bytes(32)) if show_secret else ""
    claim = "" if show_secret else mint_claim(secrets.token_bytes(32))
    grant = KeyGrant(
        label=asked["label"],
        user=asked["user"],
        project=asked["project"],
        models=asked["models"] or None,
        expires_at=None if no_expiry else accounts.now + days * DAY_S,
        claim=claim_digest(claim) if claim else b"",
        claim_by=accounts.now + CLAIM_DAYS * DAY_S if claim else 0.0,
        digest=digest(secret) if secret else b"",
    )
    key = accounts.publish_grant(grant)
    if as_json:
        shown = {"id": key, "claim": claim, "secret": secret, "expires_at": grant.expires_at, "url": accounts.url}
        click.echo(json.dumps(shown))
        return
    click.echo(secret or claim)
    _show_offer(key, grant, claim, accounts)


def _check(*, user: str, project: str, label: str, models: tuple[str, ...]) -> None:
    """Refuse names that no record could carry, or no rule could name.

    Raises:
        click.UsageError: saying which.
    """
    from registry.text import clean, is_id

    names = [("--for", user), ("--project", project), *(("--model", model) for model in models)]
    for flag, name in names:
        if name and not is_id(name):
            raise click.UsageError(f"{flag} {clean(name, 80)!r}: letters, digits and . _ : / @ + - only, at most 128")
    if len(label) > MAX_TEXT or clean(label) != label:
        raise click.UsageError(f"--label {clean(label, 80)!r}: at most {MAX_TEXT} characters that can be printed")


def _show_offer(key: str, grant: "KeyGrant", claim: str, accounts: "Accounts") -> None:
    from console.views.words import moment

    url = accounts.url or "URL"
    if claim:
        click.echo(f"key {key} is offered until {moment(grant.claim_by)}; whoever gets the line above types:", err=True)
        click.echo(f"  tela keys claim {claim} --url {url}", err=True)
    else:
        click.echo(f"key {key}, shown once. Base URL: {url}/v1", err=True)
    if not accounts.url:
        click.echo("no door is known here: put the ingress's address in the place of URL", err=True)
    for model in accounts.unknown(grant.models or ()):
        click.echo(f"nobody serves {model} now; is it spelled so?", err=True)


@keys_.command()
@click.argument("offer", metavar="CLAIM")
@click.option("--url", required=True, help="The door, as the operator gave it.")
@INSECURE
@click.option("--no-keep", is_flag=True, help="Do not write the key into this account's credentials.")
@JSON
def claim(offer: str, url: str, insecure_http: bool, no_keep: bool, as_json: bool) -> None:
    """Claim a key that was offered to you: the secret is made here, and only its digest is sent.

    CLAIM may be - to read it from stdin, or @FILE.
    """
    from console.claiming import claimed
    from console.credentials import keep, read
    from console.here import places_here

    config = places_here().config
    if not no_keep:
        read(config)  # what stands in the way of keeping it is said before the claim is used up
    answer, kept = claimed(offer, url, secrets.token_bytes(32), insecure=insecure_http)
    path = None if no_keep else str(keep(config, kept))
    _show_claimed(answer, kept, path, as_json=as_json)


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
@click.option("--all", "everything", is_flag=True, help="Revoked, expired and lapsed ones too.")
@FABRIC
@JSON
def list_(everything: bool, fabric: str | None, as_json: bool) -> None:
    """List keys: whose, what for, until when. Secrets are nowhere; only their digests are kept."""
    from console.accounts import KEY_COLUMNS, key_states, rows_of
    from console.here import control_here
    from console.printing import lines, table

    rows = [
        row
        for row in rows_of(control_here(fabric, accounts=True))
        if everything or row["state"] in {"active", "unclaimed"}
    ]
    if as_json:
        lines(rows)
    else:
        table(key_states(rows), KEY_COLUMNS, "no keys yet; tela keys create --for USER offers one")


@keys_.command()
@click.argument("key")
@click.option("--reason", default="", metavar="TEXT", help="Shown to operators and in the records.")
@click.option("--self", "own", is_flag=True, help="Your own key, by that key itself: no operator is needed.")
@INSECURE
@FABRIC
@PASSPHRASE
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
def revoke(
    key: str,
    reason: str,
    own: bool,
    insecure_http: bool,
    fabric: str | None,
    passphrase_file: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Revoke a key: every ingress refuses it within seconds. Nothing takes that back.

    KEY is its id, or the beginning of one.
    """
    from console.accounts import Accounts, revoke_own
    from registry.text import clean

    if own:
        _show_revoked(revoke_own(key, reason, insecure=insecure_http), None, as_json=as_json)
        return
    accounts = Accounts.open(fabric, passphrase_file)
    row = accounts.row(key)
    if not yes and sys.stdin.isatty():
        whose = f"{clean(str(row['user'])) or 'nobody named'} ({clean(str(row['label'])) or 'no label'})"
        click.confirm(f"revoke {row['id']} of {whose}?", abort=True, err=True)
    record = accounts.publish_revocation(str(row["id"]), reason)
    _show_revoked(str(row["id"]), record.order.hash.hex(), as_json=as_json)


def _show_revoked(key: str, record: str | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"id": key, "revoked": True, "record": record}))
        return
    click.echo(f"{key} is revoked")
    click.echo("every ingress that is linked refuses it from now on", err=True)
