"""On what file system a path lies, and whether other hosts may write there too. Pure but for `read_kind`.

A network file system has no shared memory between hosts, so SQLite's usual WAL is not safe on it.
"""

import re
from pathlib import Path

LOCAL = frozenset({
    "bcachefs", "btrfs", "devtmpfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuse.fuse-overlayfs", "fuseblk",
    "hfsplus", "jfs", "msdos", "ntfs", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "udf",
    "vfat", "xfs", "zfs",
})  # fmt: skip
UNKNOWN = "unknown"

_ESCAPED = re.compile(r"\\([0-7]{3})")


def kind_of(path: str, mountinfo: str) -> str:
    """The type of the file system a path lies on, as mounted; "unknown" when no line says.

    Args:
        path: absolute, without links.
        mountinfo: the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
    """
    best, kind = -1, UNKNOWN
    for line in mountinfo.splitlines():
        head, separator, tail = line.partition(" - ")
        fields, described = head.split(" "), tail.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if len(point) >= best and _is_below(path, point):  # of mounts on one point the last is seen
            best, kind = len(point), described[0] or UNKNOWN
    return kind


def is_network(kind: str) -> bool:
    """Whether other hosts may write there. What is not known to be local counts as network: that costs only speed."""
    return kind not in LOCAL


def read_kind(path: Path) -> str:
    """The type of the file system a path lies on now, or of the nearest directory above that exists."""
    try:
        return kind_of(str(path.resolve()), Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    except (OSError, RuntimeError):
        return UNKNOWN


def _is_below(path: str, point: str) -> bool:
    return point in {"/", path} or path.startswith(f"{point}/")
