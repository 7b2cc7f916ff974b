"""A GPU that is taken from the driver in order ends its series; one that is lost is down."""

from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.support.exporter.nvml_double import gpu, node, playing

from kernelcast.exporter.nvml.devices import KnownGpus
from kernelcast.exporter.nvml.recordings.recording import NODE, Event
from kernelcast.exporter.nvml.sampling.inventory import is_bound
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue.devices import gpu as rows

SECOND_NS = 1_000_000_000
NOW_NS = 1_700_000_000 * SECOND_NS


class World:
    """Two GPUs, the driver's list of them, and what the exporter says of the second."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nvml = playing(node(gpu("GPU-A", 0), gpu("GPU-B", 1)))
        for index in range(2):
            (directory / f"0000:0{index}:00.0").mkdir()
            (directory / f"0000:0{index}:00.0/information").touch()
        self.sampler = Sampler(self.nvml, SamplerOptions(names=False), gpus=directory)
        source = NvmlSource(self.sampler, hostname="n", boot_ns=1).start()
        self.known = KnownGpus(source, lambda: True, gpus=directory)
        self.seconds = 0

    def lose(self) -> None:
        """Calls for GPU-B fail from now on."""
        self.nvml.lost.add("1")

    def unbind(self) -> None:
        """Take GPU-B from the driver."""
        self.lose()
        self.drop_from_nvml()
        (self.directory / "0000:01:00.0/information").unlink()

    def drop_from_nvml(self) -> None:
        self.nvml.answers[NODE]["nvmlDeviceGetCount"] = 1

    def later(self, seconds: int) -> dict[str, Any]:
        """GPU-B's states at the next poll: value by name, and by name and reason."""
        self.seconds += seconds
        states: dict[str, Any] = {}
        for sample in self.known.poll(NOW_NS + self.seconds * SECOND_NS).samples:
            own = dict(sample.attributes)
            if sample.metric in (rows.GPU_UP, rows.GPU_DETACHED) and own["UUID"] == "GPU-B":
                states[own.get("reason", "up")] = sample.value
        return states


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    assert made.later(0) == {"up": 1}
    return made


def test_a_gpu_that_left_the_drivers_list_ends_its_series_and_is_detached(world: World) -> None:
    world.unbind()
    assert world.later(10) == {"up": 0}
    assert world.later(10) == {"up": None, "removed": 1}
    assert world.later(86_400) == {"removed": 1}
    initialised: list[int] = []
    world.nvml.inject("nvmlInit", lambda: initialised.append(1))
    world.later(600)
    assert not initialised, "NVML is not initialised again and again for a GPU that is gone on purpose"


def test_a_gpu_that_comes_back_is_up_again(world: World) -> None:
    world.unbind()
    world.later(10)
    world.later(10)
    world.nvml.lost.clear()
    world.nvml.answers[NODE]["nvmlDeviceGetCount"] = 2
    assert world.later(60) == {"removed": None, "up": 1}


def test_a_lost_gpu_that_nvml_still_lists_stays_down(world: World) -> None:
    world.lose()
    assert [world.later(600) for _ in range(5)] == [{"up": 0}] * 5


def test_a_lost_gpu_that_only_nvml_no_longer_lists_stays_down(world: World) -> None:
    world.lose()
    world.drop_from_nvml()
    assert [world.later(600) for _ in range(5)] == [{"up": 0}] * 5


def test_a_gpu_that_fell_off_the_bus_stays_down_although_the_driver_no_longer_lists_it(world: World) -> None:
    world.nvml.emit(Event("1", pynvml.nvmlEventTypeXidCriticalError, 79))
    while not world.sampler._xids.last("GPU-B"):
        """The XIDs' thread has not seen it yet."""
    world.unbind()
    assert [world.later(600) for _ in range(5)] == [{"up": 0}] * 5


def test_a_removed_gpu_stays_detached_while_nvml_fails(world: World) -> None:
    world.unbind()
    world.later(10)
    world.later(10)
    world.nvml.driver = False
    assert world.later(60) == {"removed": 1}


def test_the_only_gpu_of_a_node_can_be_taken_away(world: World) -> None:
    world.unbind()
    world.later(10)
    world.nvml.lost.add("0")
    world.nvml.answers[NODE]["nvmlDeviceGetCount"] = 0
    (world.directory / "0000:00:00.0/information").unlink()
    world.later(600)
    samples = world.known.poll(NOW_NS + 700 * SECOND_NS).samples
    assert {dict(one.attributes)["UUID"] for one in samples if one.metric is rows.GPU_DETACHED} == {"GPU-A", "GPU-B"}


def test_only_the_gpus_of_the_options_are_opened_and_keep_their_indexes() -> None:
    nvml = playing(node(gpu("GPU-A", 0), gpu("GPU-B", 1), gpu("GPU-C", 2)))
    nvml.lost.add("1")
    options = SamplerOptions(bus_ids=("00000000:00:00.0", "00000000:02:00.0"))
    sampler = Sampler(nvml, SamplerOptions.from_json(options.to_json())).start()
    reading = sampler.sample(NOW_NS)
    assert [(one.index, one.uuid) for one in reading.gpus] == [("0", "GPU-A"), ("2", "GPU-C")]
    assert (reading.errors, reading.missing, reading.all_answer) == ((), (), True)


@pytest.mark.parametrize("address", ["00000000:0A:00.0", "0000:0a:00.0"])
def test_the_drivers_list_has_other_addresses_than_nvml(tmp_path: Path, address: str) -> None:
    assert not is_bound(address, tmp_path)
    (tmp_path / "0000:0a:00.0").mkdir()
    assert not is_bound(address, tmp_path), "a container keeps the directory of a GPU that is gone"
    (tmp_path / "0000:0a:00.0/information").touch()
    assert is_bound(address, tmp_path)
