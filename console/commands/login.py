"""`tela login` and `tela try`: keep an API key, and call a model with it."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from console.commands.completion import model_names


@click.command()
@click.argument("url")
@click.option("--insecure-http", is_flag=True, help="Send the key over plain HTTP beyond this host.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def login(url: str, insecure_http: bool, as_json: bool) -> None:
    """Keep the API key for a door, after asking the door whether it is valid.

    The key is read from the terminal without being shown, or from stdin: never from the command line, where every
    user of this host could read it.
    """
    import json

    from console import credentials
    from console.caller import Caller
    from console.here import places_here
    from registry.text import clean

    caller = Caller(url, _secret(), insecure=insecure_http)
    about = caller.get("/v1/keys/self")
    key, label = (clean(str(about.get(name) or ""), 80) for name in ("id", "label"))
    path = credentials.keep(places_here().config, credentials.Credential(caller.url, key, caller.secret, label))
    if as_json:
        click.echo(json.dumps({"id": key, "label": label, "url": caller.url, "kept": str(path)}))
        return
    click.echo(f"{key} {label}".strip())
    click.echo(f"kept in {path}; try it: tela try MODEL", err=True)


def _secret() -> str:
    from console.presented import checked_key, read_word

    if sys.stdin.isatty():
        return checked_key(str(click.prompt("API key", hide_input=True, err=True)).strip())
    return checked_key(read_word("-"))


@click.command(name="try")
@click.argument("model", required=False, shell_complete=model_names)
@click.argument("prompt", default="Say hello in five words.")
@click.option("--url", help="The door; the one used last unless told.")
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(1, 4096), help="At most so many.")
@click.option("--insecure-http", is_flag=True, help="Send the key over plain HTTP beyond this host.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with the text and the times.")
def try_(model: str | None, prompt: str, url: str | None, max_tokens: int, insecure_http: bool, as_json: bool) -> None:
    """Call a model once, streamed, and say how long it took. Without MODEL: list what this key may call."""
    from console import credentials
    from console.caller import Caller
    from console.here import places_here

    key = credentials.chosen(places_here().config, os.environ, url)
    caller = Caller(key.url, key.secret, insecure=insecure_http)
    if model is None:
        _show_models(caller.get("/v1/models"), as_json=as_json)
        return
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    _show(caller.events("/v1/chat/completions", body), as_json=as_json)


def _show_models(answer: dict[str, Any], *, as_json: bool) -> None:
    import json

    models = [_clean(str(each.get("id"))) for each in answer.get("data") or [] if isinstance(each, dict)]
    for model in models:
        click.echo(json.dumps({"model": model}) if as_json else model)
    if not models:
        click.echo("no model can be called with this key now", err=True)


def _show(events: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    import json

    from node.clock import SystemClock

    now = SystemClock().now
    began, said = now(), list[str]()
    first: float | None = None
    usage: dict[str, Any] = {}
    for event in events:
        usage = event.get("usage") or usage
        for choice in event.get("choices") or []:
            text = _clean((choice.get("delta") or {}).get("content") or "")
            if text:
                first = first if first is not None else now() - began
                said.append(text)
                if not as_json:
                    click.echo(text, nl=False)
    took = now() - began
    tokens = usage.get("completion_tokens")
    if as_json:
        answer = {"text": "".join(said), "first_s": first, "total_s": took, "completion_tokens": tokens}
        click.echo(json.dumps(answer))
        return
    click.echo()
    waited = "nothing came" if first is None else f"first word after {first:.2f} s"
    click.echo(f"{waited} · {tokens if tokens is not None else '?'} tokens · {took:.2f} s in all", err=True)


def _clean(text: str) -> str:
    """What a model says may hold escape sequences; line ends and tabs are kept."""
    from registry.text import clean

    return "\n".join(clean(line.replace("\t", "    "), 65_536) for line in text.split("\n"))
