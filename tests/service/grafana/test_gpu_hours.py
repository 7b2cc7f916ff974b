"""GPU-hours of a simulated fleet: parts add up to what is allocated, by promtool's clock."""

import re
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


def test_the_parts_of_a_simulated_fleet_add_up_to_its_allocated_gpus_within_a_hundredth(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    watched = simulate(seconds=60 * MINUTES, every=EVERY)
    series = [
        {"series": name, "values": " ".join("_" if value is None else value for value in values)}
        for name, values in watched.values.items()
        if re.match(r"kernelcast_(program|probe)_|DCGM_FI_DEV_(FB_USED|GPU_UTIL)\{|cuda_device_time", name)
    ]
    whole = f"count({hours.OWNER})"
    questions = [
        f"abs(sum({hours.PART}) / {whole} - 1) < bool 0.01",
        f"abs(sum({hours.HOURS}) / {whole} - 1) < bool 0.01",
        f'sum({hours.PART}{{part="{hours.UNKNOWN}"}}) / {whole} < bool 0.2',
        f"{whole} >= bool 2",
    ]
    case = {
        "interval": duration(EVERY),
        "input_series": series,
        "promql_expr_test": [
            {"expr": question, "eval_time": f"{MINUTES - 2}m", "exp_samples": [{"labels": "{}", "value": 1}]}
            for question in questions
        ],
    }
    test = {"rule_files": [rules.CLASSIC_FILE], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", tmp_path / "test.yaml")
