"""How much of a host's memory is ours: the least of what it has, its cgroups allow, and its job was given. Pure."""

from collections.abc import Iterable

ROOT = "/sys/fs/cgroup"


def limit_files(cgroup: str) -> tuple[str, ...]:
    """Where limits may be written, from the innermost group outward; some of the files may not exist.

    Args:
        cgroup: of /proc/self/cgroup, in either version of cgroups or both.
    """
    found: dict[str, None] = {}
    for line in cgroup.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            found |= dict.fromkeys(_upward(ROOT, path, "memory.max"))
        elif "memory" in controllers.split(","):
            found |= dict.fromkeys(_upward(f"{ROOT}/memory", path, "memory.limit_in_bytes"))
    return tuple(found)


def memory_b(meminfo: str, limits: Iterable[str], share_b: int = 0) -> int:
    """Bytes that this process and its engines may use; 0: not known.

    Args:
        meminfo: of /proc/meminfo.
        limits: contents of the files of `limit_files`.
        share_b: what the job was given; 0: it does not say.
    """
    known = [_total(meminfo), share_b, *(int(text) for text in map(str.strip, limits) if _is_number(text))]
    return min((size for size in known if size > 0), default=0)


def _upward(root: str, path: str, name: str) -> list[str]:
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["/".join([root, *parts[:length], name]) for length in range(len(parts), -1, -1)]


def _total(meminfo: str) -> int:
    for line in meminfo.splitlines():
        words = line.split()
        if words[:1] == ["MemTotal:"] and len(words) > 1 and _is_number(words[1]):
            return int(words[1]) * 1024
    return 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20
