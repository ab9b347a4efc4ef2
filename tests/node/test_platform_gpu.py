"""Texts of real hosts: 1, 3, 4 and 8 GPUs, NVLink in pairs and all to all, MIG, no driver."""

import msgspec
import pytest

from node.platform.gpu import devices, linked, parse, visible_of, wanted
from registry.kinds import GpuGroup

MIB = 2**20
H100 = "NVIDIA H100 80GB HBM3, 81559"
EIGHT = "\n".join(f"{at}, GPU-0000000{at}-aaaa-bbbb-cccc-dddddddddddd, {H100}, Disabled" for at in range(8))
FOUR = "\n".join(
    f"{at}, {uuid}, NVIDIA A100 80GB PCIe, 81920, Disabled"
    for at, uuid in enumerate(["GPU-e24787d5", "GPU-5bd670ab", "GPU-c5934fc0", "GPU-b6f04d55"])
)
MIG = "0, GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16, NVIDIA A100-SXM4-80GB, 81920, Enabled"
MIG_LISTING = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16)
  MIG 3g.40gb     Device  0: (UUID: MIG-feb88891-0321-5fef-9c87-d4af3b54259e)
  MIG 1g.10gb     Device  1: (UUID: MIG-a25704ba-3a06-5299-a795-fd7cf4d13973)
  MIG 1g.10gb+me  Device  2: (UUID: MIG-50f1c4c9-1508-5e8d-bb06-d08145b22e01)
  MIG 1g.10gb     Device  3: (UUID: MIG-36c795f2-5cf7-55d6-af30-e535e79b7bb6)
"""
TOPO_1 = """\tGPU0\tmlx5_0\tmlx5_1\tmlx5_2\tmlx5_3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tSYS\tSYS\tSYS\tSYS\t0-3\t0,8,252-255
mlx5_0\tSYS\t X \tPIX\tSYS\tSYS\t\t
mlx5_1\tSYS\tPIX\t X \tSYS\tSYS\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
TOPO_3 = """\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tNODE\t0-31,64-95\t0
GPU1\tNV4\t X \tNODE\t0-31,64-95\t0
GPU2\tNODE\tNODE\t X \t0-31,64-95\t0
"""
TOPO_4 = """\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\t0-51,104-155\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\t0-51,104-155\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV12\t52-103,156-207\t1\t\tN/A
GPU3\tSYS\tSYS\tNV12\t X \t52-103,156-207\t1\t\tN/A

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""
TOPO_8_CARDS = "\n".join(  # with the tab that the driver leaves out in wide matrices
    ["\t" + "\t".join([*(f"GPU{at}" for at in range(8)), "NIC0", "NIC1", "CPU Affinity", "NUMA Affinity"])]
    + [
        "\t".join(
            [f"GPU{row}", *(" X " if row == at else "NV18" for at in range(8)), "PIXNODE", "0-191", "0", "", "N/A"]
        )
        for row in range(8)
    ]
    + ["NIC0\tPIX" + "\tNODE" * 7 + "\t X \tNODE"]
)
NO_DRIVER = """NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest
NVIDIA driver is installed and running.
"""


def test_one_gpu_is_a_group_of_one_without_nvlink():
    csv = "0, GPU-5baec991-de63-c196-1766-04c38407e133, NVIDIA L4, 23034, [N/A]"
    assert parse(csv, TOPO_1) == (GpuGroup(name="NVIDIA L4", count=1, memory_b=23034 * MIB),)


def test_eight_gpus_behind_switches_are_one_island():
    [group] = parse(EIGHT, TOPO_8_CARDS)
    assert (group.name, group.count, group.memory_b, group.nvlink) == ("NVIDIA H100 80GB HBM3", 8, 81559 * MIB, (8,))


def test_bridges_make_pairs():
    [group] = parse(FOUR, TOPO_4)
    assert (group.count, group.nvlink) == (4, (2, 2))


def test_a_gpu_without_a_bridge_is_in_no_island():
    csv = "\n".join(f"{at}, GPU-{at}baec991, NVIDIA RTX A6000, 49140, [N/A]" for at in range(3))
    [group] = parse(csv, TOPO_3)
    assert (group.count, group.nvlink) == (3, (2,))


def test_without_a_matrix_nothing_is_said_of_nvlink():
    assert parse(EIGHT)[0].nvlink == ()


def test_gpus_of_two_kinds_are_two_groups():
    csv = "0, GPU-a, NVIDIA L4, 23034, [N/A]\n1, GPU-b, NVIDIA A10, 23028, [N/A]\n2, GPU-c, NVIDIA L4, 23034, [N/A]"
    assert [(group.name, group.count) for group in parse(csv)] == [("NVIDIA L4", 2), ("NVIDIA A10", 1)]


def test_a_gpu_that_shares_the_hosts_memory_does_not_say_how_much_it_has():
    assert parse("0, GPU-a, NVIDIA GB10, [N/A], [N/A]")[0].memory_b == 0


def test_slices_stand_for_a_gpu_whose_mig_mode_is_on():
    groups = parse(MIG, "", MIG_LISTING)
    assert [(group.name, group.count, group.memory_b, group.nvlink) for group in groups] == [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 1, 40 * 2**30, ()),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 2, 10 * 2**30, ()),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", 1, 10 * 2**30, ()),
    ]


def test_mig_without_slices_leaves_nothing_to_use():
    assert parse(MIG, "", MIG_LISTING.splitlines()[0]) == ()


def test_a_slice_is_visible_by_its_uuid():
    [group] = parse(MIG, "", MIG_LISTING, "MIG-a25704ba-3a06-5299-a795-fd7cf4d13973")
    assert (group.name, group.count) == ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 1)


@pytest.mark.parametrize("text", [NO_DRIVER, "", "No devices were found\n", 'Field "x" is not a valid field to query.'])
def test_no_driver_is_no_gpu(text):
    assert parse(text, text, text) == ()


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("0,1", [0, 1]),
        ("3, 2", [3, 2]),
        ("GPU-c5934fc0", [2]),
        ("1,7,2", [1]),  # CUDA stops at the first name of none
        ("1,1", [1]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("GPU-", []),
    ],
)
def test_what_is_visible_is_read_as_cuda_reads_it(visible, numbers):
    assert [gpu.number for gpu in visible_of(devices(FOUR), visible)] == numbers


def test_an_island_is_counted_among_the_visible_only():
    assert parse(EIGHT, TOPO_8_CARDS, visible="2,3,4,5")[0].nvlink == (4,)
    assert parse(FOUR, TOPO_4, visible="0,2")[0].nvlink == ()


def test_the_callers_own_choice_goes_before_that_of_slurm():
    assert wanted({"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "2"}, seen=4) == "1"


def test_slurms_choice_counts_where_more_can_be_seen_than_was_given():
    assert wanted({"SLURM_JOB_GPUS": "2,3"}, seen=4) == "2,3"
    assert wanted({"SLURM_JOB_GPUS": "2,3", "SLURM_STEP_GPUS": "3"}, seen=4) == "3"


def test_slurms_numbers_mean_nothing_where_the_job_sees_its_own_gpus_only():
    assert wanted({"SLURM_JOB_GPUS": "2,3"}, seen=2) is None
    assert wanted({"SLURM_JOB_GPUS": "6"}, seen=2) is None


def test_links_are_read_from_the_columns_of_gpus_alone():
    assert linked(TOPO_3) == {(0, 1), (1, 0)}
    assert linked("nonsense\n\n") == set()


def test_what_a_wild_driver_says_still_fits_a_record():
    csv = "\n".join(f"{at}, GPU-{at}, {at}{'x' * 999}\x1b[31m, 99, Disabled" for at in range(40))
    groups = parse(csv)
    assert len(groups) == 16
    assert msgspec.convert(msgspec.to_builtins(groups), tuple[GpuGroup, ...]) == groups
