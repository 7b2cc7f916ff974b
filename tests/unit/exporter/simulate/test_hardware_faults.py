"""Faults that a GPU, its links or its driver report: each in its own series, on its own GPU, from its start on."""

import pytest
from tests.unit.exporter.simulate.test_simulated_rows import START, one, samples, ticks, values

from kernelcast.exporter.simulate import FAULTS
from kernelcast.exporter.simulate.kinds.hardware import HARDWARE_FAULTS, XIDS
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, gpu, nvlink
from kernelcast.wire.catalogue.xids import XIDS as KNOWN
from kernelcast.wire.kernels import COLLECTIVE

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("fault", "xid"),
    [("xid:gpu=1,code=31", 31), ("xid-79:gpu=1", 79), ("xid-94:gpu=1", 94), ("nvlink-down:gpu=1", 74)],
)
def test_an_xid_is_counted_from_0_by_nvml_and_in_the_kernels_log(fault: str, xid: int) -> None:
    before, first, later = (samples(tick) for tick in ticks(f"{fault},start=35s".replace(":,", ":"))[2:5])
    for metric in (gpu.XID_ERRORS, gpu.KERNEL_LOG_XIDS):
        assert values(before, metric) == []
        assert one(first, metric, xid=str(xid), gpu="1") == 0
        assert one(later, metric, xid=str(xid), gpu="1") == 1
        assert values(later, metric, gpu="0") == []
    assert one(later, gpu.XID_LAST, xid=str(xid)) == pytest.approx(START / SECOND + 35, abs=1)


def test_a_gpu_that_fell_off_the_bus_keeps_its_xid_and_nothing_else_and_its_node_goes_on() -> None:
    before, *_, last = (samples(tick) for tick in ticks("xid-79:gpu=1,start=25s,pause=10s", seconds=120))
    assert (one(before, gpu.GPU_UP, gpu="1"), one(last, gpu.GPU_UP, gpu="1")) == (1, 0)
    assert one(last, gpu.GPU_UP, gpu="0") == 1
    assert values(last, device.GPU_TEMP, gpu="1") == []
    assert values(last, device.GPU_TEMP, gpu="0") != []
    assert one(last, gpu.XID_ERRORS, xid="79", gpu="1") == 1
    assert {dict(s.attributes)["reason"] for s in last if s.metric is gpu.FIELD_ABSENT} >= {"lost"}
    assert one(last, device.GPU_UTIL, gpu="0") > 40


@pytest.mark.parametrize("kind", ["ecc-uncorrected", "xid-94"])
def test_an_uncorrectable_error_remaps_a_row_and_restarts_the_program(kind: str) -> None:
    found = [samples(tick) for tick in ticks(f"{kind}:gpu=1,start=25s,pause=10s", seconds=80)]
    for metric in (device.ECC_DBE_VOLATILE, device.UNCORRECTABLE_REMAPPED_ROWS):
        assert (one(found[0], metric, gpu="1"), one(found[-1], metric, gpu="1")) == (0, 1)
        assert one(found[-1], metric, gpu="0") == 0
    pids = [{dict(s.attributes)["pid"] for s in each if s.metric is gpu.PROCESS_MEMORY} for each in found]
    assert len(pids[0] & pids[-1]) == 1
    assert one(found[-1], device.GPU_UTIL, gpu="1") > 40


def test_a_burst_of_corrected_errors_counts_and_names_xid_92() -> None:
    last = samples(ticks("ecc-burst:gpu=0,start=20s,rate=600")[-1])
    assert one(last, device.ECC_SBE_VOLATILE, gpu="0") == pytest.approx(400, abs=20)
    assert one(last, gpu.XID_ERRORS, gpu="0", xid="92") == 1
    assert one(last, device.ECC_DBE_VOLATILE, gpu="0") == 0


def test_nvlinks_that_fail_recover_in_vain_and_lengthen_collectives() -> None:
    found = [samples(tick) for tick in ticks("nvlink-down:gpu=1,links=9,start=25s", seconds=120)]
    assert sum(values(found[0], nvlink.UP, gpu="1")) == 18
    assert sum(values(found[-1], nvlink.UP, gpu="1")) == 9
    assert sum(values(found[-1], nvlink.UP, gpu="0")) == 18
    assert one(found[-1], nvlink.ERRORS, gpu="1", link="17", error="recovery") == 3
    assert one(found[-1], nvlink.ERRORS, gpu="1", link="0", error="recovery") == 0
    carried = [one(each, nvlink.IO, gpu="1", link="17", direction="transmit") for each in found[-2:]]
    assert carried[0] == carried[1]
    assert one(found[-1], device.RECOVERY_ACTION, gpu="1") == 1

    def collective(number: int) -> float:
        (now, before) = (
            next(
                s.value
                for s in found[at]
                if s.metric is kernel.DURATION
                and dict(s.attributes)["gpu"] == "1"
                and dict(s.attributes)["kernel_class"] == COLLECTIVE
            )
            for at in (number, number - 1)
        )
        return (now.sum_ns - before.sum_ns) / (now.count - before.count)  # type: ignore[union-attr]

    assert collective(-1) == pytest.approx(2 * collective(1), rel=0.1)


def test_pcie_replays_are_counted() -> None:
    last = samples(ticks("pcie-replays:gpu=1,start=20s,rate=60")[-1])
    assert one(last, device.PCIE_REPLAY, gpu="1") == pytest.approx(40, abs=2)
    assert one(last, device.PCIE_REPLAY, gpu="0") == 0


def test_while_nvml_hangs_programs_report_and_gpus_do_not_answer() -> None:
    found = [samples(tick) for tick in ticks("nvml-hang:start=25s,length=40s", seconds=100)]
    during = found[4]
    assert values(during, gpu.GPU_UP) == [0, 0]
    assert not [s for s in during if s.metric.otlp_name.startswith("DCGM_") and s.value is not None]
    assert sum(values(during, kernel.LAUNCHES)) > sum(values(found[1], kernel.LAUNCHES))
    assert values(found[-1], gpu.GPU_UP) == [1, 1]


def test_a_clock_that_is_ahead_moves_the_nodes_device_samples() -> None:
    last = ticks("clock-skew:start=20s,ahead=2m")[-1]
    temperatures = [s for s in last.devices if s.metric is device.GPU_TEMP]
    assert {s.time_ns - last.time_ns for s in temperatures} == {120 * SECOND}


def test_every_xid_of_a_fault_has_a_known_action() -> None:
    assert {code for codes in XIDS.values() for code in codes} <= set(KNOWN)
    assert set(XIDS) <= set(HARDWARE_FAULTS) <= set(FAULTS)
