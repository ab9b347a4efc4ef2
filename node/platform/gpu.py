"""What GPUs this process may use, from the texts of nvidia-smi. Pure; a text that is no answer yields no GPU.

It does not say which of them are busy.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from registry.kinds import GpuGroup
from registry.text import clean

QUERY = "index,uuid,name,memory.total,mig.mode.current"
MAX_GROUPS = 16
MAX_COUNT = 1_024

_MIB = 2**20
_STYLE = re.compile(r"\x1b\[[0-9;]*m")  # the header of the matrix is underlined, also into a pipe
_GPU = re.compile(r"GPU(\d{1,4})\Z")
_LINK = re.compile(r"NV\d{1,3}\Z")
_LISTED = re.compile(r"GPU (\d{1,4}): ")
_MIG = re.compile(r"\s+MIG (\d[\w.+]*?\.(\d{1,4})gb[\w.+]*)\s+Device\s+\d+: \(UUID: (MIG-[\w/-]+)\)")


class Gpu(NamedTuple):
    """A GPU, or a MIG slice of one."""

    number: int  # of the whole GPU, as the driver counts
    uuid: str
    name: str
    memory_b: int  # 0: it does not say
    is_slice: bool = False


def parse(csv: str, topo: str = "", listing: str = "", visible: str | None = None) -> tuple[GpuGroup, ...]:
    """The GPUs by kind.

    Args:
        csv: of `nvidia-smi --query-gpu=QUERY --format=csv,noheader,nounits`.
        topo: of `nvidia-smi topo -m`; empty when there is but one GPU.
        listing: of `nvidia-smi -L`; needed where MIG is on.
        visible: as CUDA_VISIBLE_DEVICES reads it; None: all of them.
    """
    gpus = visible_of(devices(csv, listing), visible)
    kinds: dict[tuple[str, int], list[Gpu]] = {}
    for gpu in gpus:
        kinds.setdefault((gpu.name, gpu.memory_b), []).append(gpu)
    links = linked(topo)
    return tuple(
        GpuGroup(
            name=name,
            count=min(len(group), MAX_COUNT),
            memory_b=memory_b,
            nvlink=_islands({gpu.number for gpu in group if not gpu.is_slice}, links),
        )
        for (name, memory_b), group in list(kinds.items())[:MAX_GROUPS]
    )


def devices(csv: str, listing: str = "") -> list[Gpu]:
    """Every GPU the driver shows; in place of one whose MIG mode is on, its slices."""
    slices = _slices(listing)
    found: list[Gpu] = []
    for line in csv.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 5 or not _is_number(fields[0]):
            continue
        index, name = int(fields[0]), clean(", ".join(fields[2:-2]))
        if fields[-1] == "Enabled":
            found += [
                Gpu(index, uuid, clean(f"{name} MIG {kind}"), size, True) for kind, size, uuid in slices.get(index, [])
            ]
        else:
            memory = int(fields[-2]) * _MIB if _is_number(fields[-2]) else 0
            found.append(Gpu(index, fields[1], name, memory))
    return found


def visible_of(gpus: list[Gpu], visible: str | None) -> list[Gpu]:
    """Those that CUDA would show: named by index or by the beginning of a UUID, up to the first name of none."""
    if visible is None:
        return gpus
    shown: list[Gpu] = []
    for word in (word.strip() for word in visible.split(",")):
        named = [gpu for gpu in gpus if _is_named(gpu, word) and gpu not in shown]
        if not named:
            break
        shown += named
    return shown


def wanted(env: Mapping[str, str], seen: int) -> str | None:
    """Which GPUs are ours, in the words of CUDA_VISIBLE_DEVICES; None: all that can be seen.

    Slurm's own list counts the host's GPUs. Where the job's cgroup hides the others that numbering means nothing, and
    it is not needed; it is where more can be seen than was given.
    """
    if (told := env.get("CUDA_VISIBLE_DEVICES")) is not None:
        return told
    given = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or ""
    numbers = given.split(",")
    is_apt = all(map(_is_number, numbers)) and len(numbers) < seen and max(map(int, numbers)) < seen
    return given if is_apt else None


def linked(topo: str) -> set[tuple[int, int]]:
    """The pairs of GPUs that NVLink joins, from the matrix; its columns begin with the GPUs."""
    columns: list[int] | None = None
    pairs: set[tuple[int, int]] = set()
    for line in _STYLE.sub("", topo).splitlines():
        words = line.split()
        numbers = [int(match[1]) for word in words if (match := _GPU.match(word))]
        if columns is None:
            columns = numbers or None
        elif words and numbers[:1] and _GPU.match(words[0]):
            pairs |= {(numbers[0], to) for to, cell in zip(columns, words[1:], strict=False) if _LINK.match(cell)}
    return pairs


def _islands(indexes: set[int], pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Sizes of the groups that are joined, largest first; a GPU alone is none."""
    island = {index: {index} for index in indexes}
    for one, other in pairs:
        if one in island and other in island and island[one] is not island[other]:
            joined = island[one] | island[other]
            island.update(dict.fromkeys(joined, joined))
    sizes = [len(group) for group in {id(group): group for group in island.values()}.values()]
    return tuple(sorted((size for size in sizes if size > 1), reverse=True))


def _slices(listing: str) -> dict[int, list[tuple[str, int, str]]]:
    """MIG slices by GPU: kind, bytes of memory as the kind names them, UUID."""
    found: dict[int, list[tuple[str, int, str]]] = {}
    index = -1
    for line in listing.splitlines():
        if (whole := _LISTED.match(line)) is not None:
            index = int(whole[1])
        elif (part := _MIG.match(line)) is not None:
            found.setdefault(index, []).append((part[1], int(part[2]) * 2**30, part[3]))
    return found


def _is_named(gpu: Gpu, word: str) -> bool:
    if _is_number(word):
        return gpu.number == int(word)
    return len(word) > len("GPU-") and gpu.uuid.startswith(word)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9
