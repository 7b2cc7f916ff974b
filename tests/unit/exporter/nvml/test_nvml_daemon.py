"""The daemon with a recording in place of NVML, and with a counters table of its user's own."""

from pathlib import Path

import pytest
from tests.support.exporter.nvml_double import field, gpu, node, playing, write_node_with_xid_79
from typer.testing import CliRunner

from kernelcast.exporter.command import exporter
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource

SECOND_NS = 1_000_000_000


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "node.jsonl.gz"
    write_node_with_xid_79(path)
    return path


def test_a_changed_table_changes_the_rows_and_their_help(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\n")
    counters = CountersFile(table)
    nvml = playing(node(gpu(**field(74, 5))))
    made = NvmlSource(Sampler(nvml, counters.options), hostname="n", boot_ns=1, counters=counters).start()

    def poll(second: int) -> dict[str, str]:
        samples = made.poll(second * SECOND_NS).samples
        return {
            sample.metric.otlp_name: sample.metric.help
            for sample in samples
            if sample.metric.otlp_name.startswith("DCGM") and sample.value is not None
        }

    assert poll(1) == {"DCGM_FI_DEV_GPU_TEMP": "Heat."}
    table.write_text("DCGM_FI_DEV_POWER_VIOLATION, counter, Capped by power.\n")
    assert poll(2) == {"DCGM_FI_DEV_POWER_VIOLATION": "Capped by power."}
    table.write_text("nonsense")
    assert poll(3) == {"DCGM_FI_DEV_POWER_VIOLATION": "Capped by power."}
    made.close()


def check(tmp_path: Path, **lines: object) -> tuple[int, str]:
    config = tmp_path / "kernelcast.yaml"
    config.write_text("exporter:\n" + "".join(f"  {name}: {value}\n" for name, value in lines.items()))
    done = CliRunner().invoke(exporter, ["--check-config", "--config", str(config)])
    return done.exit_code, done.output


def test_check_config_names_the_line_of_an_unknown_field(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("# ours\nGPU_UTIL, gauge, Busy\n")
    code, output = check(tmp_path, counters_file=table)
    assert code == 2
    assert "counters.csv:2: 'GPU_UTIL' is no field of DCGM's" in output.replace("\n", " ")


def test_check_config_says_what_of_a_table_is_left_out(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_BAR1_USED, gauge, Fans\n")
    code, output = check(tmp_path, counters_file=table)
    assert code == 0
    assert "counters.csv:1: DCGM_FI_DEV_BAR1_USED is not given through NVML" in output.replace("\n", " ")
    assert "configuration is valid" in output


def test_check_config_looks_into_the_recording(tmp_path: Path, recording: Path) -> None:
    assert check(tmp_path, nvml_recording=recording)[0] == 0
    recording.write_bytes(b"no recording")
    code, output = check(tmp_path, nvml_recording=recording)
    assert code == 2
    assert "exporter.nvml_recording" in output
