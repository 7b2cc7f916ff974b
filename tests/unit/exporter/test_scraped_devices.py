"""Pages of other vendors' exporters: neutral rows in base units.

Sources: the first lines of the files in tests/support/accelerators.
"""

from typing import Any

import pytest
from tests.support.accelerators import PAGES
from tests.support.serving import PAGES as ENGINES

from kernelcast.exporter.scrape.fetch import PageTarget
from kernelcast.exporter.scrape.page import read_page
from kernelcast.exporter.scrape.source import ScrapeSource
from kernelcast.wire.catalogue.devices import accelerator

MIB = 2**20
INTEL = {"accelerator": "gpu", "index": "0000:05:00.0", "modelName": "Super 3000"}
AMD_VIRTUAL = "17ff74b5-0000-1000-805c-37b0fbe69430"
EXPECTED: dict[str, dict[str, tuple[dict[str, str], float]]] = {
    "amd-radeon": {"memory_used_bytes": ({"accelerator": "gpu", "index": "0"}, 26 * MIB)},
    "amd-instinct": {
        "power_watts": ({"accelerator": "gpu", "UUID": "6699c0a8-4200-4242-037f-f97e6cae0f09"}, 41),
        "clock_hertz compute": ({"index": "0", "modelName": "xxxx"}, 132e6),
        "clock_hertz memory": ({"index": "0", "modelName": "xxxx"}, 900e6),
    },
    "intel": {
        "energy_joules_total": (INTEL | {"UUID": "12345678-0000-0000-0000-000000000000"}, 10),
        "clock_hertz compute": (INTEL, 800e6),
        "throttling_ratio any": (INTEL, 1),
        "memory_total_bytes": (INTEL, 16 * 2**30),
        "memory_used_bytes": (INTEL, 12 * 2**30),
        "temperature_celsius chip": (INTEL, 110),
        "temperature_celsius memory": (INTEL, 90),
    },
    "neuron": {
        "utilization_ratio": ({"accelerator": "neuron", "index": "0", "modelName": "trn1n.32xlarge"}, 0.1),
        "errors_total uncorrected": ({"accelerator": "neuron", "index": "7"}, 864),
    },
    "ascend": {
        "clock_hertz compute 0": ({"accelerator": "npu", "modelName": "910A-Ascend-V1"}, 1e9),
        "clock_hertz compute 1": ({"UUID": "185011D4-21E04718-93B2ED94-14CC040A-BF102003"}, 1e9),
        "utilization_ratio 0": ({"modelName": "910Awn-Ascend-V1"}, 0),
        "memory_used_bytes 0": ({"modelName": "910Awn-Ascend-V1"}, 0),
    },
}


def found(page: str, *, with_index: bool) -> dict[str, tuple[dict[str, str], Any]]:
    """Labels and value by the row, what it is of, and the device's number."""
    made = {}
    for (row, own), value in read_page(page).values.items():
        labels = dict(own)
        parts = [labels[name] for name in ("sensor", "domain", "reason", "severity") if name in labels]
        words = [row.prometheus_name.removeprefix("kernelcast_accelerator_"), *parts]
        made[" ".join([*words, labels["index"]] if with_index else words)] = (labels, value)
    return made


@pytest.mark.parametrize("page", EXPECTED)
def test_a_page_has_the_rows_of_its_devices_and_no_other(page: str) -> None:
    shown = found(PAGES[page], with_index=page == "ascend")
    assert shown.keys() == EXPECTED[page].keys(), "0 degrees, watts or joules are a sensor that is not there"
    for name, (labels, value) in EXPECTED[page].items():
        assert labels.items() <= shown[name][0].items(), name
        assert shown[name][1] == pytest.approx(value), name


def test_every_page_is_expected() -> None:
    assert PAGES.keys() == EXPECTED.keys()


def test_the_parts_of_a_device_are_brought_together() -> None:
    def lines(name: str, *values: float) -> str:
        return "".join(
            f'{name}{{hw_id="A",pci_bdf="0",com_intel_subdevice_id="{tile}",hw_memory_location="device",'
            f'hw_sensor_location="gpu"}} {value}\n'
            for tile, value in enumerate(values)
        )

    shown = found(lines("hw_memory_usage_bytes", 3, 4) + lines("hw_temperature_celsius", 60, 71), with_index=False)
    assert {name: value for name, (_, value) in shown.items()} == {
        "memory_used_bytes": 7,
        "temperature_celsius chip": 71,
    }


def test_names_may_have_the_prefix_that_a_site_gives_them() -> None:
    with_prefix = PAGES["amd-radeon"].replace("\ngpu_", "\namd_gpu_")
    assert read_page(with_prefix).values == read_page(PAGES["amd-radeon"]).values


def test_a_device_has_its_own_user_and_not_the_pod_of_the_exporter() -> None:
    mine = PAGES["amd-radeon"].replace('pod=""', 'pod="train-0"').replace('job_id=""', 'job_id="32"')
    target = PageTarget("http://10.0.0.7:5000/metrics", (("namespace", "monitoring"), ("pod", "amd-exporter")))
    source = ScrapeSource(
        lambda: [target],
        lambda: (),
        hostname="node1",
        interval_seconds=10,
        on_error=lambda: None,
        get=lambda _url: mine,
    )
    source.refresh()
    (sample,) = source.poll(1).samples
    assert sample.metric is accelerator.MEMORY_USED
    assert dict(sample.attributes) == {
        "accelerator": "gpu", "Hostname": "node1", "index": "0", "pod": "train-0", "hpc_job": "32",
    }  # fmt: skip


def test_an_engines_page_has_no_devices() -> None:
    rows = {row for page in ENGINES.values() for row, _ in read_page(page).values}
    assert not rows & {*accelerator.ROWS}


def test_labels_are_those_of_the_catalogue() -> None:
    for page in PAGES.values():
        for row, own in read_page(page).values:
            assert {name for name, _ in own} <= {*row.labels}
