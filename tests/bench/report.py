"""Reports of measurements: a JSON file for machines and a table for a person. It measures nothing itself."""

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.load import Load
from tests.bench.measure import Figures, Paired
from tests.bench.stats import Added, Spread

FOLDER: Final = Path(__file__).parents[2] / "docs" / "bench"
_PACKAGES: Final = {
    "tela": "tela-overlay",
    "uvloop": "uvloop",
    "aiohttp": "aiohttp",
    "uvicorn": "uvicorn",
    "websockets": "websockets",
}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
_DIGITS: Final = 4  # after the point; a microsecond is 0.001 of our milliseconds
_LATE_MS: Final = 1.0  # a generator this far behind its schedule was short of processor time
_ROW: Final = "{:<9}{:>8}{:>9}{:>9}{:>9}{:>11}{:>10}  {}"
_NAMES: Final = ("", "asked", "P50 ms", "P90 ms", "P99 ms", "first P50", "per s", "CPU ms per request")
_HEAD: Final = _ROW.format(*_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under what a measurement was made. Names no host."""

    date_utc: str
    platform: str
    versions: dict[str, str]
    load_average: tuple[float, float, float]  # when it began


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is written: parts by title, each a pair of targets or figures of its own shape."""

    name: str  # of the file, without .json
    conditions: Conditions
    parts: Mapping[str, Paired | Mapping[str, object]]


def conditions(date_utc: str) -> Conditions:
    """Return the conditions of now; call it before the first load."""
    kernel = ".".join(platform.release().split(".")[:2])  # the rest may name a site's own build
    return Conditions(
        date_utc=date_utc,
        platform=f"{platform.system()} {kernel} {platform.machine()}, {os.cpu_count()} CPUs",
        versions={
            "python": platform.python_version(),
            **{name: version(package) for name, package in _PACKAGES.items()},
        },
        load_average=os.getloadavg(),
    )


def write(report: Report, folder: Path = FOLDER) -> Path:
    """Write a report as FOLDER/NAME.json, print its table to stdout, and return the path.

    Raises:
        ValueError: the name is not one of small letters, digits and dashes.
    """
    if not _NAME.fullmatch(report.name):
        raise ValueError(f"{report.name!r} is no name for a report")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.name}.json"
    whole = msgspec.json.encode(_rounded(msgspec.to_builtins(report)))
    path.write_bytes(msgspec.json.format(whole, indent=1) + b"\n")
    sys.stdout.write(table(report))
    return path


def table(report: Report) -> str:
    """Return a report as lines for a person."""
    about = report.conditions
    versions = " ".join(f"{name} {number}" for name, number in about.versions.items())
    loads = " ".join(f"{value:.2f}" for value in about.load_average)
    lines = [f"{report.name}  {about.date_utc}  {about.platform}  load {loads}", versions]
    for title, part in report.parts.items():
        lines += ["", title]
        lines += _of_pair(part) if isinstance(part, Paired) else _of_mapping(part)
    return "\n".join(lines) + "\n"


def describe(load: Load) -> str:
    """Return a load as a phrase."""
    match load.mode:
        case "open":
            pace = "evenly" if load.seed is None else f"Poisson, seed {load.seed}"
            return f"open loop, {load.rate_per_s:g}/s for {load.seconds:g} s, {pace}"
        case "closed":
            return f"closed loop, {load.connections} connections for {load.seconds:g} s"
        case "sequential":
            return f"{load.count} requests one after the other on one connection"


def _of_pair(pair: Paired) -> list[str]:
    kind = "streams" if pair.is_stream else "bodies"
    rounds = len(pair.rounds) // 2
    lines = [f"{describe(pair.load)}; {kind}; {rounds} interleaved rounds", _HEAD]
    lines += [_side("direct", pair.direct), _side("through", pair.through)]
    p99 = "" if pair.added_p99_ms is None else f"{pair.added_p99_ms:+.2f}"
    changes = [_change(each) for each in (pair.added_p50_ms, pair.added_p90_ms)]
    ratio = "" if pair.rate_ratio is None else f"x {pair.rate_ratio:.3f}"
    first = _change(pair.added_first_p50_ms)
    lines.append(_ROW.format("added", "", *changes, p99, first, ratio, _range(pair.added_p50_ms)).rstrip())
    return lines


def _side(name: str, figures: Figures) -> str:
    costs = [f"{role} {value:.3f}" for role, value in figures.cpu_ms_per_request.items()]
    costs += [f"{role} {value:.0f} MB" for role, value in figures.rss_mb.items()]
    costs += [f"{count} x {reason}" for reason, count in figures.failures.items()]
    if figures.late_p90_ms > _LATE_MS:
        costs.append(f"GENERATOR LATE by {figures.late_p90_ms:.2f} ms")
    return _ROW.format(
        name,
        figures.asked,
        *_three(figures.latency_ms),
        _three(figures.first_ms)[0],
        f"{figures.rate_per_s:.1f}",
        ", ".join(costs),
    ).rstrip()


def _three(spread: Spread | None) -> list[str]:
    values = (None, None, None) if spread is None else (spread.p50, spread.p90, spread.p99)
    return ["-" if value is None else f"{value:.2f}" for value in values]


def _change(change: Added | None) -> str:
    return "" if change is None else f"{change.median:+.2f}"


def _range(change: Added | None) -> str:
    if change is None:
        return ""
    return f"P50 per round {change.least:+.2f} to {change.most:+.2f}, pooled {change.pooled:+.2f}"


def _of_mapping(part: Mapping[str, object]) -> list[str]:
    width = max(map(len, part), default=0)
    return [f"{name:<{width}}  {_rounded(msgspec.to_builtins(value))}" for name, value in part.items()]


def _rounded(value: object) -> object:
    """Return builtins with no more digits than were measured."""
    match value:
        case float():
            return round(value, _DIGITS)
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
    return value
