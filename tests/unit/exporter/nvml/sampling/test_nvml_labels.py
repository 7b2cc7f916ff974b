"""Labels that a counters table puts on every series of a GPU, as dcgm-exporter does with its type `label`."""

from collections import Counter
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.support.exporter.nvml_double import NOT_SUPPORTED, divided, gpu, instance, node, playing

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.counters_file import CountersFile, read_table
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.recording import NODE
from kernelcast.exporter.nvml.sampling.labels import LABEL_FIELDS
from kernelcast.exporter.nvml.sampling.sampler import RELIST_NS, Sampler, SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
EVERY_LABEL = SamplerOptions(labels=tuple(LABEL_FIELDS))
TABLE = """\
DCGM_FI_DEV_SM_CLOCK, gauge, Clock
DCGM_FI_DEV_SERIAL, label, Device Serial Number
DCGM_FI_DRIVER_VERSION, label, Driver Version
"""
VALUES = {
    "DCGM_FI_NVML_VERSION": "12.590.48.01",
    "DCGM_FI_DEV_BRAND": "NVIDIA",
    "DCGM_FI_DEV_SERIAL": "1654123",
    "DCGM_FI_DEV_OEM_INFOROM_VER": "2.1",
    "DCGM_FI_DEV_ECC_INFOROM_VER": "7.16",
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": "G520.0280.02.02",
    "DCGM_FI_DEV_VBIOS_VERSION": "96.00.A5.00.03",
}
ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetBrand": pynvml.NVML_BRAND_NVIDIA,
    "nvmlDeviceGetSerial": "1654123",
    f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_OEM}": "2.1",
    f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_ECC}": "7.16",
    "nvmlDeviceGetInforomImageVersion": "G520.0280.02.02",
    "nvmlDeviceGetVbiosVersion": "96.00.A5.00.03",
}


def labelled(*gpus: dict[str, Any]) -> RecordedNvml:
    made = playing(node(*(gpus or (gpu(**ANSWERS),))))
    made.nvmlInit()
    made.answers[NODE]["nvmlSystemGetNVMLVersion"] = "12.590.48.01"
    made.nvmlShutdown()
    return made


def source(nvml: RecordedNvml, options: SamplerOptions = EVERY_LABEL) -> NvmlSource:
    return NvmlSource(Sampler(nvml, options), hostname="node1", boot_ns=SECOND_NS).start()


def attributes(samples: tuple[Sample, ...]) -> list[dict[str, str]]:
    """Of each series that goes on, but the accelerators' common rows, which have labels of their own."""
    common = "kernelcast_accelerator"
    going = (one for one in samples if one.value is not None and not one.metric.prometheus_name.startswith(common))
    return [dict(one.attributes) for one in going]


def labels_of(samples: tuple[Sample, ...]) -> dict[str, set[str]]:
    """The values of each label of the table."""
    own = attributes(samples)
    return {name: values for name in LABEL_FIELDS if (values := {one[name] for one in own if name in one})}


def test_every_label_of_the_table_is_on_every_series_of_the_gpu() -> None:
    samples = source(labelled()).poll(NOW_NS).samples
    assert labels_of(samples) == {name: {value} for name, value in VALUES.items()}
    for sample in samples:
        if sample.metric.prometheus_name.startswith(("DCGM_FI_", "kernelcast_gpu_")):
            assert dict(sample.attributes)["DCGM_FI_DEV_SERIAL"] == "1654123", sample.metric.prometheus_name


def test_without_a_table_there_is_none_but_the_drivers_version() -> None:
    samples = source(labelled(), SamplerOptions()).poll(NOW_NS).samples
    assert labels_of(samples) == {}
    assert "DCGM_FI_DRIVER_VERSION" in dict(samples[0].attributes)


def test_each_gpu_has_its_own_and_one_that_lacks_a_label_goes_without() -> None:
    other = gpu("GPU-2", 1, **{**ANSWERS, "nvmlDeviceGetSerial": NOT_SUPPORTED, "nvmlDeviceGetVbiosVersion": "1.2"})
    samples = source(labelled(gpu(**ANSWERS), other)).poll(NOW_NS).samples
    found = {one["UUID"]: one for one in attributes(samples)}
    assert found["GPU-1"]["DCGM_FI_DEV_SERIAL"] == "1654123"
    assert "DCGM_FI_DEV_SERIAL" not in found["GPU-2"]
    assert found["GPU-2"]["DCGM_FI_DEV_VBIOS_VERSION"] == "1.2"


def test_a_mig_instance_has_the_labels_of_its_gpu() -> None:
    answers = divided(instance("1g.18gb", 3, "MIG-1"))
    answers["0"] |= ANSWERS
    samples = source(playing(answers)).poll(NOW_NS).samples
    of_the_instance = [one for one in attributes(samples) if one.get("GPU_I_ID") == "3"]
    assert {one["DCGM_FI_DEV_SERIAL"] for one in of_the_instance} == {"1654123"}


def test_labels_are_asked_for_once_and_not_at_every_interval() -> None:
    nvml, asked = labelled(), Counter[str]()
    for call in ("nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetBrand"):
        nvml.inject(call, lambda call=call: asked.update([call]))  # type: ignore[misc]
    made = source(nvml)
    for step in range(30):
        made.poll(NOW_NS + step * RELIST_NS)
    assert set(asked.values()) == {1}


def test_a_label_that_could_not_be_read_once_is_asked_for_again() -> None:
    nvml = labelled()

    def unknown() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    nvml.inject("nvmlDeviceGetSerial", unknown)
    made = source(nvml)
    assert "DCGM_FI_DEV_SERIAL" not in labels_of(made.poll(NOW_NS).samples)
    nvml.inject("nvmlDeviceGetSerial", None)
    assert labels_of(made.poll(NOW_NS + RELIST_NS).samples)["DCGM_FI_DEV_SERIAL"] == {"1654123"}


def test_a_new_driver_is_asked_again() -> None:
    nvml = labelled()
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.answers[NODE] |= {"nvmlSystemGetDriverVersion": "600.1", "nvmlSystemGetNVMLVersion": "13.600.1"}
    assert labels_of(made.poll(NOW_NS + RELIST_NS).samples)["DCGM_FI_NVML_VERSION"] == {"13.600.1"}


def test_a_gpu_that_is_gone_keeps_its_labels_on_its_remaining_series() -> None:
    nvml = labelled()
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.lost = {"0"}
    gone = made.poll(NOW_NS + SECOND_NS).samples
    assert labels_of(gone)["DCGM_FI_DEV_SERIAL"] == {"1654123"}
    again = made.poll(NOW_NS + RELIST_NS).samples
    assert labels_of(again)["DCGM_FI_DEV_SERIAL"] == {"1654123"}


def test_a_brand_without_a_name_is_written_as_its_number() -> None:
    samples = source(labelled(gpu(**{**ANSWERS, "nvmlDeviceGetBrand": 99}))).poll(NOW_NS).samples
    assert labels_of(samples)["DCGM_FI_DEV_BRAND"] == {"99"}


def test_label_lines_of_a_table_are_labels_and_not_rows(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(TABLE)
    made = read_table(path)
    assert set(made.labels) == {"DCGM_FI_DEV_SERIAL", "DCGM_FI_DRIVER_VERSION"}
    assert set(made.rows) == {"DCGM_FI_DEV_SM_CLOCK"}
    assert made.warnings == ()
    assert CountersFile(path).options.labels == ("DCGM_FI_DEV_SERIAL",)


@pytest.mark.parametrize("kind", ["gauge", "counter"])
def test_a_label_that_is_asked_for_as_a_number_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(f"DCGM_FI_DEV_SERIAL, {kind}, Serial\n")
    made = read_table(path)
    assert not made.labels
    assert made.warnings == (
        f"{path}:1: DCGM_FI_DEV_SERIAL is text, so it cannot be a {kind}; write label to have it on every series",
    )


def test_options_with_labels_survive_the_way_to_the_other_process() -> None:
    assert SamplerOptions.from_json(EVERY_LABEL.to_json()) == EVERY_LABEL
