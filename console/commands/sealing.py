"""The options by which a new operator's key is kept, shared by `tela init` and `tela operators request`."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from console.sealed import Sealed
    from console.signer import Signer


class Keeping(NamedTuple):
    """How a new key is to be kept, as it was typed."""

    ssh_agent: str | None  # a fingerprint, or "" for the only key; None: not there
    passphrase_file: str | None
    no_passphrase: bool


def keeping_options(command: Callable[..., None]) -> Callable[..., None]:
    """How a new operator's key is kept."""
    for option in (
        click.option(
            "--no-passphrase", is_flag=True, help="Leave the key open; whoever reads its file is the operator."
        ),
        click.option(
            "--passphrase-file",
            type=click.Path(exists=True, dir_okay=False),
            help="Its first line seals the key; else TELA_PASSPHRASE_FILE, else the terminal is asked.",
        ),
        click.option(
            "--ssh-agent",
            is_flag=False,
            flag_value="",
            default=None,
            metavar="[FINGERPRINT]",
            help="Use an Ed25519 key of your ssh-agent instead of a new one.",
        ),
    ):
        command = option(command)
    return command


def new_operator(who: str, keeping: Keeping) -> "tuple[Sealed, Signer]":
    """A key for an operator, and how it signs now.

    Raises:
        TelaError: no passphrase can be had, or the agent has no such key.
    """
    from console.agent_keys import agent_of, chosen
    from console.sealed import ENTROPY_B, held_by_agent, seal
    from console.signer import Signer
    from registry.record import seed_signer

    if keeping.ssh_agent is not None:
        if keeping.no_passphrase or keeping.passphrase_file:
            raise click.UsageError("--ssh-agent keeps the key in the agent; a passphrase has no part in it")
        agent = agent_of(os.environ)
        key = chosen(agent.identities(), keeping.ssh_agent or None).key
        return held_by_agent(who, key), Signer(key, who, lambda message: agent.sign(key, message))
    passphrase = _passphrase(who, keeping)
    seed = os.urandom(32)
    key, sign = seed_signer(seed)
    return seal(who, seed, passphrase, os.urandom(ENTROPY_B)), Signer(key, who, sign)


def _passphrase(who: str, keeping: Keeping) -> bytes:
    from console.signer import NO_PASSPHRASE, ask_passphrase, passphrase_path, read_passphrase
    from registry.errors import TelaError

    if keeping.no_passphrase:
        if keeping.passphrase_file:
            raise click.UsageError("--no-passphrase and --passphrase-file exclude each other")
        return b""
    path = passphrase_path(keeping.passphrase_file, os.environ)
    if path is not None:
        return read_passphrase(path)
    if not _is_terminal():
        raise TelaError(
            "the operator key needs a passphrase, and there is no terminal to ask for one",
            hint=f"{NO_PASSPHRASE}; or --ssh-agent; or --no-passphrase",
            code="usage",
        )
    first = ask_passphrase(f"New passphrase for the key of operator {who}: ")
    if not first:
        raise TelaError(
            "an empty passphrase is none", hint="type one, or say --no-passphrase if that is meant", code="usage"
        )
    if ask_passphrase("The same again: ") != first:
        raise TelaError("the two differ; nothing was made", hint="begin again", code="wrong_passphrase")
    return first


def _is_terminal() -> bool:
    return sys.stdin.isatty()
