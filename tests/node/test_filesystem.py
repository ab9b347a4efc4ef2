"""On what file system a path lies."""

from pathlib import Path

import pytest

from node.filesystem import UNKNOWN, is_network, kind_of, read_kind

MOUNTS = """\
21 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 21 0:45 / /home rw,relatime shared:9 - nfs4 filer:/home rw,vers=4.2,addr=10.0.0.1
31 21 0:46 / /home2 rw - xfs /dev/sdb rw
32 30 0:47 /ada /home/ada/my\\040disk rw - fuse.sshfs ada@else:/ rw
33 21 0:50 / /scratch rw - lustre 10.0.0.2@o2ib:/fs rw,flock
34 21 0:51 / /tmp rw - ext4 /dev/sdc rw
35 21 0:52 / /tmp rw,nosuid - tmpfs tmpfs rw
not a line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/.local/state/tela", "nfs4"),
        ("/home2/bob", "xfs"),
        ("/home/ada/my disk/x", "fuse.sshfs"),
        ("/scratch/ada", "lustre"),
        ("/tmp/tela-1000", "tmpfs"),
    ],
)
def test_the_nearest_mount_above_says_and_of_two_on_one_point_the_later(path, kind):
    assert kind_of(path, MOUNTS) == kind


def test_without_a_line_it_is_unknown():
    assert kind_of("/home", "") == kind_of("/x", "garbage - \n - \n") == UNKNOWN


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "9p", "afs"])
def test_network_file_systems_are_network(kind):
    assert is_network(kind)


@pytest.mark.parametrize("kind", ["fuse.sshfs", "fuse.something", "autofs", "neverheardof", UNKNOWN])
def test_what_is_not_known_to_be_local_is_network(kind):
    assert is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay", "btrfs", "zfs"])
def test_disks_and_memory_are_local(kind):
    assert not is_network(kind)


def test_the_kernel_is_asked_also_for_what_does_not_exist_yet(tmp_path):
    assert read_kind(tmp_path / "not" / "there") == read_kind(tmp_path) != UNKNOWN
    assert read_kind(Path("/proc/self")) == "proc"


def test_a_link_is_followed_to_where_it_leads(tmp_path):
    (tmp_path / "link").symlink_to("/proc")
    assert read_kind(tmp_path / "link" / "self") == "proc"
