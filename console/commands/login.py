"""`tela login` and `tela try`: keep an API key, and call a model with it."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from console.commands.completion import model_names

MAX_KEY_CHARS = 256


@click.command()
@click.argument("url")
@click.option("--insecure-http", is_flag=True, help="Send the key over plain HTTP beyond this host.")
def login(url: str, insecure_http: bool) -> None:
    """Keep the API key for a door, after asking the door whether it is valid.

    The key is read from the terminal without being shown, or from stdin: never from the command line, where every
    user of this host could read it.
    """
    from console import credentials
    from console.caller import Caller
    from console.here import places_here
    from registry.text import clean

    secret = _secret()
    caller = Caller(url, secret, insecure=insecure_http)
    about = caller.get("/v1/keys/self")
    label = clean(str(about.get("label", "")), 80)
    kept = credentials.Credential(caller.url, str(about.get("id", "")), secret, label)
    path = credentials.keep(places_here().config, kept)
    click.echo(f"{kept.id} {label}".strip())
    click.echo(f"kept in {path}; try it: tela try MODEL", err=True)


def _secret() -> str:
    from registry.errors import TelaError

    if sys.stdin.isatty():
        text = click.prompt("API key", hide_input=True, err=True, prompt_suffix=": ")
    else:
        text = sys.stdin.readline(MAX_KEY_CHARS + 2)
    text = str(text).strip()
    if not text:
        raise TelaError("no key came on stdin", hint="tela login URL < file-with-the-key", code="usage")
    return text


@click.command(name="try")
@click.argument("model", required=False, shell_complete=model_names)
@click.argument("prompt", default="Say hello in five words.")
@click.option("--url", help="The door; the one used last unless told.")
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(1, 4096))
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
        listed = caller.get("/v1/models").get("data", [])
        for each in listed:
            click.echo(_clean(str(each.get("id"))))
        if not listed:
            click.echo("no model can be called now", err=True)
        return
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    _show(caller.events("/v1/chat/completions", body), as_json=as_json)


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
