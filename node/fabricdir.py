"""What this account holds of a fabric: its first records, the member's key, the hubs and the door, in one directory.

Naming the fabrics costs nothing; what decodes records is imported when they are asked for.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from node.places import make_private
from node.private import blame, read_private, sync_directory, write_private
from node.recordfile import frames, unframe
from registry.errors import TelaError

if TYPE_CHECKING:
    from node.config import HubAddress
    from registry.record import Record

NO_FABRIC = "tela init NAME … founds one, tela join @FILE joins one, tela demo shows one"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_ID = re.compile(r"[0-9a-f]{64}\Z")
_SEED_B = 32


@dataclass(frozen=True, slots=True)
class FabricDir:
    """One fabric's directory, `…/fabrics/NAME`. Nothing is kept in memory: every question reads its file."""

    path: Path

    @property
    def name(self) -> str:
        """What its people call it here."""
        return self.path.name

    @property
    def operator_path(self) -> Path:
        """Where an operator's sealed key lies, if this person is one."""
        return self.path / "operator.key"

    @property
    def member_path(self) -> Path:
        """Where the member's key lies."""
        return self.path / "member.key"

    @property
    def fabric_id(self) -> bytes:
        """The hash of the founding charter.

        Raises:
            TelaError: there is none.
        """
        if found := _founding(self.records()):
            return bytes.fromhex(found)
        raise TelaError(
            f"{self.path / 'records'} holds no founding charter", hint="join again: tela join @FILE", code="bad_fabric"
        )

    @property
    def fabric_hex(self) -> str:
        """The same in hex, from a file of its own: looks decode no record.

        Raises:
            TelaError: there is none.
        """
        if text := self._read_id():
            return text
        text = self.fabric_id.hex()
        with contextlib.suppress(TelaError):  # a directory that cannot be written is read the long way each time
            self._save_id(text)
        return text

    @property
    def _id_path(self) -> Path:
        return self.path / "id"

    def _read_id(self) -> str:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = self._id_path.read_text("ascii").strip()
            return text if _ID.match(text) else ""
        return ""

    def _save_id(self, text: str) -> None:
        write_private(self._id_path, text.encode() + b"\n")

    def records(self) -> "tuple[Record, ...]":
        """Charters, invite, membership and acceptance, as far as they are held.

        Raises:
            TelaError: the file is missing or broken.
        """
        from registry.record import decode  # noqa: PLC0415 - libsodium, which look-commands do without

        path = self.path / "records"
        try:
            found = unframe(path.read_bytes())
            fault = found.fault or ("it was cut short" if found.is_torn else "")
            if not fault:
                return tuple(decode(raw) for raw in found.raws)
        except OSError as error:
            raise blame(error, path) from error
        except TelaError as error:
            fault = error.message
        raise TelaError(f"{path} is broken: {fault}", hint="join again: tela join @FILE", code="bad_fabric")

    def member_seed(self) -> bytes | None:
        """The seed of the member's key; None when this account is no member.

        Raises:
            TelaError: others may read it, or it is no key.
        """
        return read_seed(self.member_path)

    def hubs(self) -> "tuple[HubAddress, ...]":
        """Hubs known from the start.

        Raises:
            TelaError: the file is broken.
        """
        from node.config import HubAddress  # noqa: PLC0415 - msgspec, which look-commands do without

        path = self.path / "hubs.json"
        try:
            listed = json.loads(path.read_bytes())
            if not isinstance(listed, list):
                raise TypeError("it is a list of hubs")
            return tuple(HubAddress(key=_key(each["key"]), urls=_urls(each["urls"])) for each in listed)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise blame(error, path) from error
        except (ValueError, KeyError, TypeError) as error:
            raise TelaError(f"{path} is broken: {error}", hint="move it away; the charter's hubs do") from error

    @property
    def door(self) -> str:
        """The URL of the ingress; empty when none was told."""
        path = self.path / "door"
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise TelaError(f"cannot read {path}: {error}", hint="it holds one URL") from error

    def operator_key(self) -> bytes | None:
        """The operator's sealed key as it lies there; None when this person is no operator.

        Raises:
            TelaError: others may read it.
        """
        return read_private(self.operator_path)

    def save_records(self, records: "Iterable[Record]") -> None:
        """Put these records in place of those held."""
        listed = tuple(records)
        if _founding(listed) not in {"", self._read_id()}:
            with contextlib.suppress(OSError):
                self._id_path.unlink(missing_ok=True)  # before them: it must never name another fabric than they do
        write_private(self.path / "records", frames(record.raw for record in listed))

    def save_member_seed(self, seed: bytes) -> None:
        """Put a member's key in place of the one held."""
        write_private(self.member_path, seed_line(seed))

    def save_operator_key(self, sealed: bytes) -> None:
        """Put a sealed operator's key in place of the one held."""
        write_private(self.operator_path, sealed)

    def save_hubs(self, hubs: "Iterable[HubAddress]") -> None:
        """Put these hubs in place of those held."""
        listed = [{"key": hub.key.hex(), "urls": list(hub.urls)} for hub in hubs]
        write_private(self.path / "hubs.json", json.dumps(listed, indent=1).encode() + b"\n")

    def save_door(self, url: str) -> None:
        """Put this URL in place of the one held."""
        write_private(self.path / "door", url.encode() + b"\n")

    @classmethod
    def create(
        cls,
        config: Path,
        name: str,
        records: "Iterable[Record]",
        hubs: "Iterable[HubAddress]" = (),
        door: str = "",
        *,
        member_seed: bytes | None = None,
        operator_key: bytes | None = None,
    ) -> "FabricDir":
        """Make the directory of a new fabric, whole or not at all.

        Args:
            config: `Places.config`.
            name: what it is called here; `free_name` finds one that is free.
            records: charters, invite, membership, acceptance.
            hubs: where to dial first.
            door: URL of the ingress; empty when not known.
            member_seed: of the member's key, if this account is a member already.
            operator_key: the sealed key, if this person is an operator.

        Raises:
            TelaError: the name is taken (`fabric_exists`) or no name, or the file system refuses.
        """
        final = _fabrics(config) / checked_name(name)
        if final.exists():
            raise _taken(final)
        made = cls(final.with_name(f".new-{os.getpid()}-{os.urandom(4).hex()}"))
        make_private(made.path)
        listed = tuple(records)
        try:
            made.save_records(listed)
            if founding := _founding(listed):
                made._save_id(founding)
            made.save_hubs(hubs)
            if door:
                made.save_door(door)
            if member_seed is not None:
                made.save_member_seed(member_seed)
            if operator_key is not None:
                made.save_operator_key(operator_key)
            _settle(made.path, final)
        except BaseException:
            _remove(made.path)
            raise
        return cls(final)


def _settle(made: Path, final: Path) -> None:
    try:
        made.rename(final)  # never over a directory that holds something
        sync_directory(final.parent)
    except OSError as error:
        if final.exists():
            raise _taken(final) from error
        raise blame(error, final) from error


def _remove(made: Path) -> None:
    with contextlib.suppress(OSError):
        for each in made.iterdir():
            each.unlink()
        made.rmdir()


def checked_name(name: str) -> str:
    """The name, when it may be that of a directory.

    Raises:
        TelaError: it may not.
    """
    if _NAME.match(name) is None:
        raise TelaError(
            "a fabric's name is 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
            hint="choose another name",
            code="bad_name",
        )
    return name


def free_name(config: Path, name: str) -> str:
    """The name, or the first of NAME-2, NAME-3, … that no fabric has here."""
    taken = set(names(config))
    numbered = (f"{name[:60]}-{number}" for number in range(2, len(taken) + 3))
    return checked_name(name if name not in taken else next(each for each in numbered if each not in taken))


def names(config: Path) -> tuple[str, ...]:
    """The fabrics this account belongs to, sorted."""
    try:
        found = sorted(each.name for each in _fabrics(config).iterdir())
    except OSError:
        return ()
    return tuple(name for name in found if _NAME.match(name) and (_fabrics(config) / name / "records").exists())


def find(config: Path, name: str | None) -> FabricDir:
    """The fabric of that name; without one, the only one there is.

    Raises:
        TelaError: there is none (`no_fabric`), or there are several to choose from (`which_fabric`).
    """
    held = names(config)
    if not held:
        raise TelaError("this account belongs to no fabric", hint=NO_FABRIC, code="no_fabric")
    if name is None:
        if len(held) > 1:
            raise TelaError(
                f"this account belongs to {len(held)} fabrics: {', '.join(held)}",
                hint=f"say which: --fabric {held[0]}, or export TELA_FABRIC={held[0]}",
                code="which_fabric",
            )
        name = held[0]
    if name not in held:
        shown = name if _NAME.match(name) else "that name"
        raise TelaError(
            f"this account belongs to no fabric called {shown}", hint=f"there is {', '.join(held)}", code="no_fabric"
        )
    return FabricDir(_fabrics(config) / name)


def read_seed(path: Path) -> bytes | None:
    """The 32-byte seed a key file holds; None when there is no file.

    Raises:
        TelaError: others may read it, or it is no key.
    """
    content = read_private(path)
    if content is None:
        return None
    with contextlib.suppress(ValueError):
        seed = bytes.fromhex(content.decode("ascii"))
        if len(seed) == _SEED_B:
            return seed
    raise TelaError(f"{path} is no key: one line of 64 hex digits", hint="restore it from a backup", code="bad_key")


def seed_line(seed: bytes) -> bytes:
    """A seed as a key file holds it."""
    return seed.hex().encode() + b"\n"


def _founding(records: "Iterable[Record]") -> str:
    """The hash of the founding charter in hex; empty when it is not among them."""
    return next((each.order.hash.hex() for each in records if each.key.kind == "charter" and each.order.seq == 0), "")


def _fabrics(config: Path) -> Path:
    return config / "fabrics"


def _taken(path: Path) -> TelaError:
    return TelaError(
        f"{path} exists: a fabric called {path.name} is known here already",
        hint=f"choose another name, or move it away: mv {path} {path}.old",
        code="fabric_exists",
    )


def _key(text: str) -> bytes:
    key = bytes.fromhex(text)
    if len(key) != _SEED_B:
        raise ValueError("a key has 32 bytes")
    return key


def _urls(listed: list[str]) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(url, str) for url in listed):
        raise TypeError("urls are a list of strings")
    return tuple(listed)
