"""Ports of InfiniBand and RoCE adapters, from a tree that looks like the kernel's."""

from pathlib import Path
from typing import Any

import pytest

from kernelcast.columnar import Sample, encode
from kernelcast.exporter.delivery.publish import resource_of
from kernelcast.exporter.infiniband.ports import MAX_PORTS, read_ports
from kernelcast.exporter.infiniband.source import InfinibandSource
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.catalogue.devices import infiniband

SECOND_NS = 1_000_000_000
BOOT_NS = 100 * SECOND_NS
NOW_NS = 1_000 * SECOND_NS
FILES = {
    "state": "4: ACTIVE\n",
    "phys_state": "5: LinkUp\n",
    "rate": "400 Gb/sec (4X NDR)\n",
    "link_layer": "InfiniBand\n",
    "counters/port_rcv_data": "1000\n",
    "counters/port_xmit_data": "2000\n",
    "counters/port_rcv_packets": "30\n",
    "counters/port_xmit_packets": "40\n",
    "counters/port_xmit_wait": "5\n",
    "counters/symbol_error": "6\n",
    "counters/link_downed": "1\n",
    "counters/port_rcv_errors": "N/A (no PMA)\n",
    "hw_counters/out_of_sequence": "7\n",
    "hw_counters/np_cnp_sent": "8\n",
    "hw_counters/lifespan": "10\n",
}


def adapter(sysfs: Path, device: str = "mlx5_0", port: int = 1, **changed: str) -> Path:
    """A port's directory as the kernel has it."""
    path = sysfs / device / "ports" / str(port)
    for name, text in {**FILES, **{key.replace("__", "/"): value for key, value in changed.items()}}.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


class Node:
    """The source over a tree, read when a test says so."""

    def __init__(self, sysfs: Path) -> None:
        self.errors: list[str] = []
        self.now_ns = NOW_NS
        self.source = InfinibandSource(
            hostname="node1",
            boot_ns=BOOT_NS,
            interval_seconds=10,
            on_error=self.errors.append,
            sysfs=sysfs,
            clock=lambda: self.now_ns,
        )

    def read(self) -> tuple[Sample, ...]:
        self.source.refresh()
        return self.source.poll(self.now_ns).samples


def rows(samples: tuple[Sample, ...], own: str = "") -> dict[tuple[str, str], Any]:
    """Values by name and one label, names without their prefix."""
    return {
        (
            one.metric.prometheus_name.removeprefix("kernelcast_infiniband_port_"),
            dict(one.attributes).get(own, ""),
        ): one.value
        for one in samples
    }


def test_a_port_has_state_rate_and_traffic_in_bytes(tmp_path: Path) -> None:
    adapter(tmp_path)
    found = rows(Node(tmp_path).read(), "direction")
    assert found["state", ""] == 4
    assert found["physical_state", ""] == 5
    assert found["rate_bytes_per_second", ""] == 50e9
    assert (found["io_bytes_total", "receive"], found["io_bytes_total", "transmit"]) == (4000, 8000)
    assert (found["packets_total", "receive"], found["packets_total", "transmit"]) == (30, 40)
    assert found["transmit_wait_total", ""] == 5


def test_errors_and_congestion_have_the_kernels_names_and_invalid_numbers_are_absent(tmp_path: Path) -> None:
    adapter(tmp_path)
    samples = Node(tmp_path).read()
    errors = {name: value for (metric, name), value in rows(samples, "error").items() if metric == "errors_total"}
    assert errors == {"symbol_error": 6, "link_downed": 1, "out_of_sequence": 7}
    assert rows(samples, "event")["congestion_events_total", "np_cnp_sent"] == 8


def test_a_counter_that_no_sample_can_carry_is_absent(tmp_path: Path) -> None:
    """A failed adapter gives all ones; the data counters are multiplied by four."""
    adapter(tmp_path, counters__port_rcv_data=f"{2**62}\n", counters__symbol_error=f"{2**64 - 1}\n")
    samples = Node(tmp_path).read()
    assert ("io_bytes_total", "receive") not in rows(samples, "direction")
    assert rows(samples, "direction")["io_bytes_total", "transmit"] == 8000
    assert ("errors_total", "symbol_error") not in rows(samples, "error")
    assert [export.points for export in encode(resource_of("node1"), samples, scope="")] == [len(samples)]


def test_series_name_host_adapter_port_and_layer_and_the_time_of_the_reading(tmp_path: Path) -> None:
    adapter(tmp_path, link_layer="Ethernet\n")
    node = Node(tmp_path)
    node.source.refresh()
    (labels,) = {
        tuple(pair for pair in one.attributes if pair[0] not in {"direction", "error", "event"})
        for one in node.source.poll(NOW_NS + 9 * SECOND_NS).samples
    }
    assert dict(labels) == {"Hostname": "node1", "device": "mlx5_0", "port": "1", "link_layer": "Ethernet"}
    samples = node.source.poll(NOW_NS + 9 * SECOND_NS).samples
    assert {one.time_ns for one in samples} == {NOW_NS}


def test_counters_run_since_boot_and_restart_when_they_fall(tmp_path: Path) -> None:
    adapter(tmp_path)
    node = Node(tmp_path)
    counters = [one for one in node.read() if one.metric.kind is Kind.COUNTER]
    assert {one.start_ns for one in counters} == {BOOT_NS}
    adapter(tmp_path, counters__symbol_error="2\n")
    node.now_ns += 10 * SECOND_NS
    starts = {dict(one.attributes).get("error", ""): one.start_ns for one in node.read()}
    assert (starts["symbol_error"], starts["link_downed"]) == (node.now_ns, BOOT_NS)


def test_a_port_that_goes_away_ends_its_series(tmp_path: Path) -> None:
    adapter(tmp_path)
    adapter(tmp_path, "mlx5_1")
    node = Node(tmp_path)
    node.read()
    for file in sorted((tmp_path / "mlx5_1").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    gone = {dict(one.attributes)["device"] for one in node.read() if one.value is None}
    assert gone == {"mlx5_1"}


def test_a_node_without_an_adapter_has_no_series_and_no_error(tmp_path: Path) -> None:
    node = Node(tmp_path / "infiniband")
    assert node.read() == ()
    assert not node.errors


def test_a_directory_that_cannot_be_read_is_counted_and_the_last_reading_stays(tmp_path: Path) -> None:
    adapter(tmp_path / "sys")
    node = Node(tmp_path / "sys")
    before = node.read()
    (tmp_path / "sys").rename(tmp_path / "moved")
    (tmp_path / "sys").write_text("no directory")
    assert node.read() == before
    assert node.errors == ["infiniband"]


def test_the_number_of_ports_is_limited(tmp_path: Path) -> None:
    for number in range(MAX_PORTS + 3):
        (tmp_path / f"mlx5_{number}" / "ports" / "1").mkdir(parents=True)
    ports = read_ports(tmp_path)
    assert ports is not None
    assert len(ports) == MAX_PORTS


def test_beyond_the_limit_virtual_functions_are_left_out_first(tmp_path: Path) -> None:
    for number in range(MAX_PORTS + 10):
        (tmp_path / f"mlx5_{number}" / "ports" / "1").mkdir(parents=True)
        if number >= 10:
            (tmp_path / f"mlx5_{number}" / "device" / "physfn").mkdir(parents=True)
    ports = read_ports(tmp_path) or ()
    assert {f"mlx5_{number}" for number in range(10)} <= {port.device for port in ports}


@pytest.mark.parametrize("text", ["", "4294967295 and more\n", "-1\n", "x" * 100_000])
def test_a_counter_that_is_not_a_number_is_absent(tmp_path: Path, text: str) -> None:
    adapter(tmp_path, counters__symbol_error=text)
    (port,) = read_ports(tmp_path) or ()
    assert "symbol_error" not in port.counters


def test_a_poll_takes_the_last_reading_and_never_reads_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter(tmp_path)
    node = Node(tmp_path)
    node.read()

    def hangs(*_: object) -> None:
        raise AssertionError("a poll must not touch sysfs")

    monkeypatch.setattr("kernelcast.exporter.infiniband.source.read_ports", hangs)
    assert {one.metric for one in node.source.poll(NOW_NS).samples} == {*infiniband.ROWS}
