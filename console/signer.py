"""Whoever signs in a person's own process: an operator whose key was unlocked, the recovery key, or a member.

A passphrase comes from the terminal or from a file, never from the command line; nothing unlocked is kept on disk.
"""

import os
import stat
import sys
from collections.abc import Mapping
from getpass import getpass
from pathlib import Path
from typing import NamedTuple

from console.agent_keys import Agent, agent_of
from console.recovery import recovery_seed
from console.sealed import Sealed, read, unseal
from node.fabricdir import FabricDir
from node.private import blame, read_private
from registry.errors import TelaError
from registry.ids import key_id
from registry.record import Sign, seed_signer

VARIABLE = "TELA_PASSPHRASE_FILE"
TRIES = 3
MAX_PASSPHRASE_B = 1024
NO_PASSPHRASE = "give --passphrase-file FILE (or set TELA_PASSPHRASE_FILE), or do it on a terminal"  # noqa: S105 - advice


class Signer(NamedTuple):
    """A key that can sign now."""

    key: bytes
    name: str  # of the operator; the id of a member
    sign: Sign


def member_signer(seed: bytes) -> Signer:
    """The member whose seed this is."""
    key, sign = seed_signer(seed)
    return Signer(key, key_id(key), sign)


def recovery_signer(text: str) -> Signer:
    """The recovery key as it was written down.

    Raises:
        TelaError: it is none.
    """
    key, sign = seed_signer(recovery_seed(text))
    return Signer(key, "recovery key", sign)


def operator_signer(fabric: FabricDir, passphrase_file: str | None) -> Signer:
    """The operator whose key lies in a fabric's directory.

    Args:
        fabric: whose.
        passphrase_file: holds the passphrase; None: TELA_PASSPHRASE_FILE, else the terminal is asked.

    Raises:
        TelaError: there is no key here, or it stays locked.
    """
    sealed = sealed_key(fabric)
    if sealed is None:
        raise TelaError(
            f"this account has no operator key of {fabric.name}",
            hint="tela operators list names who has one; tela operators request makes yours, for an owner to add",
            code="no_operator_key",
        )
    if sealed.how == "ssh-agent":
        return _of_agent(sealed, agent_of(os.environ))
    return _of_seed(sealed, _unlocked(sealed, passphrase_path(passphrase_file, os.environ)))


def sealed_key(fabric: FabricDir) -> Sealed | None:
    """The operator's key as it lies here; None when there is none.

    Raises:
        TelaError: others may read the file, or it is no key.
    """
    raw = fabric.operator_key()
    return None if raw is None else read(raw, str(fabric.operator_path))


def passphrase_path(told: str | None, env: Mapping[str, str]) -> str | None:
    """The file with the passphrase: told, or named by the environment; None: neither."""
    return told or env.get(VARIABLE) or None


def read_passphrase(path: str) -> bytes:
    """The first line of a file, or of a pipe such as <(pass show tela).

    Raises:
        TelaError: others may read it, or it holds no passphrase.
    """
    try:
        if stat.S_ISREG(Path(path).stat().st_mode):
            content = read_private(Path(path).resolve()) or b""  # mounted secrets are links
        else:
            with open(path, "rb") as pipe:  # noqa: PTH123 - a descriptor's name
                content = pipe.read(MAX_PASSPHRASE_B + 1)
    except OSError as error:
        raise blame(error, Path(path)) from error
    line = content.split(b"\n", 1)[0].removesuffix(b"\r")
    if not line or len(line) > MAX_PASSPHRASE_B:
        what = "is empty" if not line else f"has a line of more than {MAX_PASSPHRASE_B} bytes"
        raise TelaError(f"{path} {what}", hint="its first line is the passphrase", code="bad_passphrase")
    return line


def ask_passphrase(prompt: str) -> bytes:
    """Ask the terminal, without showing what is typed.

    Raises:
        TelaError: there is no terminal (`usage`).
    """
    if not sys.stdin.isatty():
        raise TelaError("no terminal to ask for the passphrase", hint=NO_PASSPHRASE, code="usage")
    try:
        return getpass(prompt, sys.stderr).encode()
    except EOFError:
        raise TelaError("no passphrase was typed", hint=NO_PASSPHRASE, code="wrong_passphrase") from None


def _unlocked(sealed: Sealed, path: str | None) -> bytes:
    if sealed.how == "none":
        return unseal(sealed, b"")
    if path is not None:
        return unseal(sealed, read_passphrase(path))
    for _ in range(TRIES - 1):
        try:
            return unseal(sealed, ask_passphrase(f"Passphrase of operator {sealed.name}: "))
        except TelaError as error:
            if error.code != "wrong_passphrase":
                raise
            sys.stderr.write("that is not it\n")
    return unseal(sealed, ask_passphrase(f"Passphrase of operator {sealed.name}: "))


def _of_seed(sealed: Sealed, seed: bytes) -> Signer:
    key, sign = seed_signer(seed)
    return Signer(key, sealed.name, sign)


def _of_agent(sealed: Sealed, agent: Agent) -> Signer:
    if not any(each.key == sealed.key for each in agent.identities()):
        raise TelaError(
            f"the ssh-agent does not hold the key of operator {sealed.name}",
            hint="ssh-add adds it; ssh-add -l shows what is there",
            code="no_agent_key",
        )
    return Signer(sealed.key, sealed.name, lambda message: agent.sign(sealed.key, message))
