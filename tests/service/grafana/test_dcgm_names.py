"""Series under DCGM 4.6's canonical names get ours: a GPU of such an exporter, evaluated by promtool with our rules."""

from pathlib import Path

import pytest
import yaml
from tests.service.require import binary
from tests.unit.grafana.queries import run

from kernelcast.grafana import rules

pytestmark = pytest.mark.service

GPU = '{Hostname="node1", UUID="GPU-1", gpu="0", instance="node1:9400", job="dcgm-exporter"}'
MINE = '{Hostname="node2", UUID="GPU-2", gpu="0", instance="node2:19400", job="kernelcast-exporter"}'


def test_rules_read_canonical_names_beside_ours(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    case = {
        "interval": "30s",
        "input_series": [
            {"series": f"DCGM_FI_DEV_GPU_TEMP_CELSIUS{GPU}", "values": "61x40"},
            {"series": f"DCGM_FI_DEV_GPU_TEMP{MINE}", "values": "62x40"},
            {"series": f"DCGM_FI_DEV_ROW_REMAP_FAILED{GPU}", "values": "1x40"},
        ],
        "promql_expr_test": [
            {
                "expr": "DCGM_FI_DEV_GPU_TEMP",
                "eval_time": "15m",
                "exp_samples": [
                    {"labels": f"DCGM_FI_DEV_GPU_TEMP{labels}", "value": value}
                    for labels, value in ((GPU, 61), (MINE, 62))
                ],
            },
            {
                "expr": 'count(ALERTS{alertname="KernelcastGpuRowRemapFailure", alertstate="firing", UUID="GPU-1"})',
                "eval_time": "15m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
        ],
    }
    files = [rules.CLASSIC_FILE, rules.ALERTS_FILE]
    test = {"rule_files": files, "evaluation_interval": "30s", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", tmp_path / "test.yaml")
