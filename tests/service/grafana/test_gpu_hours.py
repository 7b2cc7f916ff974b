"""GPU-hours of a simulated fleet: parts add up to what is allocated, by promtool's clock."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from tests.service.require import binary
from tests.support.exporter.simulated_series import simulate
from tests.unit.grafana.queries import run

from kernelcast.grafana import rules
from kernelcast.grafana.rules import hours
from kernelcast.grafana.rules.model import duration

pytestmark = pytest.mark.service

MINUTES = 20
EVERY = 60


def assert_answers(directory: Path, series: Mapping[str, str], questions: Mapping[str, float], *, minute: int) -> None:
    """Ask promtool; each question has one answer without labels."""
    for name, text in rules.render(rules.PRODUCTION).items():
        (directory / name).write_text(text)
    asked = [
        {"expr": f"round({expr}, 0.0001)", "exp_samples": [{"labels": "{}", "value": value}]}
        for expr, value in questions.items()
    ]
    case = {
        "interval": duration(EVERY),
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{**each, "eval_time": f"{minute}m"} for each in asked],
    }
    test = {"rule_files": [rules.CLASSIC_FILE], "evaluation_interval": "1m", "tests": [case]}
    (directory / "test.yaml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", directory / "test.yaml")


def test_the_parts_of_a_simulated_fleet_add_up_to_its_allocated_gpus_within_a_hundredth(tmp_path: Path) -> None:
    watched = simulate(seconds=60 * MINUTES, every=EVERY)
    series = {
        name: " ".join("_" if value is None else value for value in values)
        for name, values in watched.values.items()
        if re.match(r"kernelcast_(program|probe)_|DCGM_FI_DEV_(FB_USED|GPU_UTIL)\{|cuda_device_time", name)
    }
    whole = f"sum({hours.SHARE})"
    questions = {
        f"abs(sum({hours.PART}) / {whole} - 1) < bool 0.01": 1,
        f"abs(sum({hours.HOURS}) / {whole} - 1) < bool 0.01": 1,
        f'sum({hours.PART}{{part="{hours.UNKNOWN}"}}) / {whole} < bool 0.2': 1,
        f"{whole} >= bool 2": 1,
    }
    assert_answers(tmp_path, series, questions, minute=MINUTES - 2)


def test_pods_that_share_a_gpu_share_its_hours_its_cost_and_its_power(tmp_path: Path) -> None:
    gpu = 'Hostname="a",UUID="GPU-1",gpu="0",modelName="NVIDIA L4"'
    series = {
        f'DCGM_FI_DEV_GPU_UTIL{{{gpu},namespace="one",pod="x"}}': "60x20",
        f'DCGM_FI_DEV_GPU_UTIL{{{gpu},namespace="two",pod="y"}}': "60x20",
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{gpu}}}": "0+6000000x20",
        f'kernelcast_probe_user_info{{{gpu},program="train",user="ada"}}': "1x20",
        'node_gpu_hourly_cost{node="a"}': "2x20",
    }
    questions = {
        f'sum({hours.HOURS}{{namespace="one"}})': 0.5,
        f'sum({hours.HOURS}{{namespace="two",part="{hours.COMPUTING}"}})': 0.3,
        f"sum({hours.HOURS})": 1,
        f'sum({hours.HOURS}{{user=""}})': 1,
        f'sum({hours.COST}{{namespace="one"}})': 1,
        f'sum({hours.WATTS}{{namespace="two"}})': 50,
        f"sum({hours.PART})": 1,
    }
    assert_answers(tmp_path, series, questions, minute=15)


def test_a_mig_instance_is_its_slices_of_a_gpu(tmp_path: Path) -> None:
    def instance(number: int, profile: str, namespace: str, model: str = "NVIDIA H100 80GB HBM3") -> str:
        uuid = "GPU-1" if "H100" in model else "GPU-2"
        own = f'Hostname="a",UUID="{uuid}",gpu="0",GPU_I_ID="{number}",GPU_I_PROFILE="{profile}",modelName="{model}"'
        return f'{{{own},namespace="{namespace}",pod="x"}}'

    small, large, of_four = (
        instance(9, "1g.10gb+me", "one"),
        instance(2, "3g.40gb", "two"),
        instance(3, "2g.12gb", "three", "NVIDIA A30 MIG 2g.12gb"),
    )
    series = {f"DCGM_FI_DEV_FB_USED{each}": "900x20" for each in (small, large, of_four)}
    series |= {f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{large}": "0.5x20", 'node_gpu_hourly_cost{node="a"}': "7x20"}
    questions = {
        f'sum({hours.HOURS}{{namespace="one"}})': 0.1429,
        f'sum({hours.HOURS}{{namespace="two"}})': 0.4286,
        f'sum({hours.HOURS}{{namespace="two",part="{hours.IDLE}"}})': 0.2143,
        f'sum({hours.HOURS}{{namespace="one",part="{hours.UNKNOWN}"}})': 0.1429,
        f'sum({hours.COST}{{namespace="two"}})': 3,
        f'sum({hours.HOURS}{{namespace="three"}})': 0.5,
    }
    assert_answers(tmp_path, series, questions, minute=15)


def test_a_notebook_that_waits_for_a_person_beside_a_program_that_trains_leaves_no_gpu_idle(tmp_path: Path) -> None:
    gpu = 'Hostname="a",UUID="GPU-1",gpu="0"'
    trains, waits = (f'{gpu},program="{name}",rank="0"' for name in ("train", "notebook"))
    series = {
        f"kernelcast_probe_running_seconds_total{{{trains}}}": "0+60x40",
        f'kernelcast_program_phase_seconds_total{{{trains},phase="forward"}}': "0+60x40",
        f'kernelcast_program_phase{{{trains},phase="forward"}}': "1x40",
        f'kernelcast_program_standing_still_seconds{{{trains},job_id="1"}}': "0x40",
        f'kernelcast_program_standing_still_seconds{{{waits},job_id="2",state="person"}}': "900x40",
        f"DCGM_FI_DEV_GPU_UTIL{{{gpu}}}": "95x40",
    }
    questions = {f'sum({hours.PART}{{part="{hours.COMPUTING}"}})': 1, f"sum({hours.HOURS})": 1}
    assert_answers(tmp_path, series, questions, minute=30)


def test_a_program_without_a_gpu_is_no_gpu(tmp_path: Path) -> None:
    cpu = 'Hostname="a",UUID="cpu",gpu="0",program="prepare",rank=""'
    series = {
        f"kernelcast_probe_running_seconds_total{{{cpu}}}": "0+60x20",
        f'kernelcast_probe_user_info{{{cpu},user="ada"}}': "1x20",
    }
    assert_answers(tmp_path, series, {f"sum({hours.HOURS} or vector(0))": 0}, minute=15)
