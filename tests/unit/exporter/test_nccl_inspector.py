"""The folder of NCCL Inspector's files: what is read of it, and what untrusted files cannot do.

The lines are those of the plugin's README (NVIDIA/nccl 2.30.7, plugins/profiler/inspector), written as its
inspector_prom.cc writes them: without comments and times, a file for each GPU.
"""

import os
from pathlib import Path

import pytest

from kernelcast.columnar import Sample
from kernelcast.exporter.nccl_inspector.files import MAX_FILE_BYTES, MAX_FILES, MAX_OPERATIONS
from kernelcast.exporter.nccl_inspector.source import NcclInspectorSource
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.settings import NcclInspectorSettings
from kernelcast.wire.catalogue.devices import nccl
from kernelcast.wire.identity import Device

SECOND_NS = 1_000_000_000
NOW_NS = 1_800_000_000 * SECOND_NS
UUID = "0f41a7a6-38d5-4b0c-9a4e-5a1c0e7f2b11"
NAME = f"nccl_inspector_metrics_{UUID}.prom"
GROUP = 'version="v5.1",slurm_job_id="unknown",node="nvl72004-T01",gpu="GPU0",comm_name="DP Group 0",n_nodes="1",'
GROUP += 'nranks="4",'
ALL_REDUCE = GROUP + 'collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"'
SEND = GROUP + 'p2p_operation="Send",message_size="512-513MB"'
PAGE = (
    f"nccl_bus_bandwidth_gbs{{{ALL_REDUCE}}} 678.263\n"
    f"nccl_collective_exec_time_microseconds{{{ALL_REDUCE}}} 9498.47\n"
    f"nccl_p2p_bus_bandwidth_gbs{{{SEND}}} 464.9\n"
    f"nccl_p2p_exec_time_microseconds{{{SEND}}} 1154.87\n"
)


class Node:
    """The source over a folder, read when a test says so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.errors = 0
        self.now_ns = NOW_NS
        known = [Device("node1", f"GPU-{UUID}", "3")]
        self.source = NcclInspectorSource(
            NcclInspectorSettings(directory=directory, interval_seconds=30),
            DeviceResolver("node1", lambda: known),
            interval_seconds=10,
            on_error=self.failed,
            clock=lambda: self.now_ns,
        )

    def failed(self, count: int) -> None:
        self.errors += count

    def write(self, content: str = PAGE, name: str = NAME, *, age_seconds: float = 5) -> Path:
        path = self.directory / name
        path.write_text(content)
        written = self.now_ns - round(age_seconds * SECOND_NS)
        os.utime(path, ns=(written, written))
        return path

    def values(self) -> dict[tuple[str, str], float | None]:
        """Values by metric and operation."""
        return {
            (sample.metric.prometheus_name, dict(sample.attributes)["operation"]): sample.value  # type: ignore[misc]
            for sample in self.samples()
        }

    def samples(self) -> list[Sample]:
        self.source.refresh()
        return list(self.source.poll(self.now_ns).samples)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


BANDWIDTH = nccl.BUS_BANDWIDTH.prometheus_name
TIME = nccl.OPERATION.prometheus_name


def test_bus_bandwidth_and_time_are_shown_by_communicator_operation_and_size(node: Node) -> None:
    node.write()
    assert node.values() == {
        (BANDWIDTH, "AllReduce"): pytest.approx(678.263e9),
        (TIME, "AllReduce"): pytest.approx(9.49847e-3),
        (BANDWIDTH, "Send"): pytest.approx(464.9e9),
        (TIME, "Send"): pytest.approx(1.15487e-3),
    }
    (reduce, *_) = [sample for sample in node.samples() if dict(sample.attributes)["operation"] == "AllReduce"]
    assert dict(reduce.attributes) == {
        "Hostname": "node1",
        "UUID": f"GPU-{UUID}",
        "gpu": "3",
        "communicator": "DP Group 0",
        "ranks": "4",
        "nodes": "1",
        "operation": "AllReduce",
        "message_size": "4-5GB",
        "algorithm": "Ring_ll",
    }
    assert reduce.time_ns == NOW_NS - 5 * SECOND_NS
    assert node.errors == 0


@pytest.mark.parametrize(
    ("content", "age_seconds"), [(PAGE, 1), (PAGE[:-40], 5)], ids=["just changed", "cut within a line"]
)
def test_a_file_that_is_written_keeps_its_last_whole_values(node: Node, content: str, age_seconds: float) -> None:
    node.write()
    before = node.values()
    node.now_ns += 30 * SECOND_NS
    node.write(content.replace("678.263", "1.5"), age_seconds=age_seconds)
    assert node.values() == before
    node.now_ns += 10 * SECOND_NS
    node.write(PAGE.replace("678.263", "1.5"))
    assert node.values()[BANDWIDTH, "AllReduce"] == 1.5e9


def test_values_end_after_three_intervals_without_a_new_file(node: Node) -> None:
    node.write()
    assert node.values()
    node.now_ns += 86 * SECOND_NS
    assert set(node.values().values()) == {None}
    assert node.values() == {}


def bandwidth(written: str, changed: str) -> str:
    """A line with a part of its labels changed."""
    return f"nccl_bus_bandwidth_gbs{{{ALL_REDUCE.replace(written, changed)}}} 1"


def test_a_line_that_the_plugin_cannot_have_written_costs_this_line_and_is_counted(node: Node) -> None:
    broken = (
        f"nccl_bus_bandwidth_gbs{{{ALL_REDUCE}}} 1e9",  # beyond any link
        f"nccl_bus_bandwidth_gbs{{{ALL_REDUCE}}} NaN",
        f"nccl_bus_bandwidth_gbs{{{ALL_REDUCE}}} -1",
        bandwidth("DP Group 0", 'DP "0"'),  # not escaped
        bandwidth("DP Group 0", "x" * 129),
        bandwidth("4-5GB", "4"),
        bandwidth('nranks="4"', 'nranks="four"'),
        f"DCGM_FI_DEV_GPU_TEMP{{{ALL_REDUCE}}} 1",
        "\x00\xff",
    )
    node.write("\n".join(broken) + "\n" + PAGE)
    assert len(node.values()) == 4
    assert node.errors == len(broken)
    node.values()
    assert node.errors == len(broken), "once for each file that was written"


def test_an_unknown_bandwidth_is_absent(node: Node) -> None:
    node.write(PAGE.replace("678.263", "0"))
    assert (BANDWIDTH, "AllReduce") not in node.values()


def test_links_pipes_directories_other_names_and_large_files_are_not_read(node: Node, tmp_path: Path) -> None:
    secret = node.write(name="secret.prom")
    (tmp_path / NAME).symlink_to(secret)
    others = [NAME.replace("0f41", f"000{number}") for number in range(3)]
    os.mkfifo(tmp_path / others[0])
    (tmp_path / others[1]).mkdir()
    node.write("#" * MAX_FILE_BYTES + "\n", others[2])
    assert node.samples() == []


def test_files_and_series_have_a_limit(node: Node) -> None:
    many = [
        f"nccl_bus_bandwidth_gbs{{{ALL_REDUCE.replace('DP Group 0', f'{number}')}}} 1\n"
        for number in range(MAX_OPERATIONS + 10)
    ]
    for number in range(MAX_FILES + 3):
        node.write("".join(many), NAME.replace("0f41a7a6", f"{number:08x}"))
    assert len(node.samples()) == MAX_FILES * MAX_OPERATIONS
    assert node.errors == MAX_FILES * 10


def test_a_folder_that_is_missing_is_counted(tmp_path: Path) -> None:
    node = Node(tmp_path / "missing")
    assert node.samples() == []
    assert node.errors == 1
