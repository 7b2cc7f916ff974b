"""A GPU's energy counter: readings that the GPU cannot have reached are left out, counted, and charged to nobody."""

from typing import Any

from prometheus_client import CollectorRegistry
from tests.support.exporter.nvml_double import gpu, node, playing

from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.totals.energy import EnergyMeter
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.devices import gpu as gpu_rows

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
MEGAJOULES = 22_543_000_000
"""A counter of 22.5 MJ, in its own unit."""


class Metered:
    """A GPU that draws 300 W, read every 10 s, and its energy as the exporter adds it up."""

    def __init__(self, **changed: Any) -> None:
        self.registry = CollectorRegistry()
        self.nvml = playing(node(gpu(nvmlDeviceGetPowerUsage=300_000, **changed)))
        on_error = Instruments(self.registry).nvml_error
        self.source = NvmlSource(Sampler(self.nvml), hostname="n", boot_ns=1, on_error=on_error).start()
        self.meter = EnergyMeter()
        self.seconds = 0
        self.batch = SourceBatch()

    def read(self, *readings_mj: int, every_seconds: int = 10) -> list[int]:
        """The counter's values as written after each reading, and what they add up to."""
        shown: list[int] = []
        for reading in readings_mj:
            self.nvml.answers["0"]["nvmlDeviceGetTotalEnergyConsumption"] = reading
            self.seconds += every_seconds
            now_ns = NOW_NS + self.seconds * SECOND_NS
            self.batch = self.source.poll(now_ns)
            written = [one for one in self.batch.samples if one.metric is device.TOTAL_ENERGY and one.value is not None]
            shown += [int(str(one.value)) for one in written]
            self.added_up = sum(
                float(str(one.value)) for one in self.meter.add_interval(self.batch.samples, (), now_ns)
            )
        return shown

    @property
    def left_out(self) -> float | None:
        return self.registry.get_sample_value(rows.NVML_IMPLAUSIBLE.prometheus_name)


def test_one_wrong_reading_is_left_out_and_counted_and_adds_no_energy() -> None:
    node = Metered()
    node.read(MEGAJOULES)
    for wrong in (200_000, MEGAJOULES + 900_000_000):
        assert node.read(wrong) == []
        reasons = {dict(one.attributes)["field"] for one in node.batch.samples if one.metric is gpu_rows.FIELD_ABSENT}
        assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" in reasons
        after = MEGAJOULES + node.seconds * 300_000
        assert node.read(after) == [after]
    assert node.left_out == 2
    assert node.added_up == 300 * (node.seconds - 10)


def test_a_counter_that_restarts_counts_on_from_its_second_reading() -> None:
    node = Metered()
    assert node.read(MEGAJOULES, 5, 3_000_005, 6_000_005) == [MEGAJOULES, 3_000_005, 6_000_005]
    assert node.left_out == 1
    assert node.added_up == 300 * 30


def test_a_board_at_its_limit_and_above_it_for_moments_is_believed_also_after_a_long_pause() -> None:
    node = Metered(nvmlDeviceGetEnforcedPowerLimit=400_000)
    assert len(node.read(0, 6_000_000, 12_000_000)) == 3, "600 W"
    assert node.read(12_000_000 + 3600 * 400_000, every_seconds=3600)
    assert node.left_out == 0


def test_without_a_limit_the_largest_board_is_believed() -> None:
    node = Metered(nvmlDeviceGetEnforcedPowerLimit=2**32 - 1)
    assert node.read(0, 23_000_000, 46_000_000, 400_000_000) == [0, 23_000_000, 46_000_000]
    assert node.left_out == 1
