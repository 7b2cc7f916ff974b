"""Alerts per fault, beside those of nvidia_gpu_exporter: `python -m benchmarks.alerts [--only NAME …] [--json FILE]`.

Each fault of the table `kernelcast.grafana.faults`, except stopped services, is simulated; promtool evaluates both sets
of rules over the same series. The result is one JSON line per fault: our alerts and the messages that Alertmanager
sends of them, and the peer's alerts. The last line is a healthy day: every alert in it is a false one.

The peer's rules are those of its Helm chart 2.x by their documented conditions (utkuozdemir/nvidia_gpu_exporter,
charts/nvidia-gpu-exporter/README.md and hack/alerts/tests.yaml), written for our series.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from tests.service.grafana.test_fault_scenarios import AFTERWARDS, BEGINS, PROFILE, SLACK, scenario, written
from tests.service.require import binary
from tests.support.exporter.simulated_series import Watched, asked_for, simulate

from kernelcast.grafana import rules
from kernelcast.grafana.faults import FAULTS, Fault
from kernelcast.grafana.rules.model import DAY

EVERY_SECONDS: Final = 30
"""Interval of samples and evaluations in a fault."""
DAY_EVERY_SECONDS: Final = 60
"""The same in the healthy day, longer because a day has many samples."""
_HW_THERMAL, _POWER_BRAKE, _SW_THERMAL = 64, 128, 32
"""Bits of NVML's clock event reasons."""
_REASONS: Final = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
_ANSWER: Final = "max by (Hostname) (kernelcast_gpu_up)"
_XID: Final = "kernelcast_gpu_xid_last_occurrence_timestamp_seconds"


def _has(bit: int) -> str:
    return f"floor({_REASONS} / {bit}) % 2 == 1"


def _recent(xids: str) -> str:
    return f'time() - {_XID}{{xid=~"{xids}"}} < 900'


PEER: Final[Mapping[str, tuple[str, str]]] = {
    "NvidiaGpuExporterCollectionFailing": (f"{_ANSWER} == 0", "10m"),
    "NvidiaGpuExporterCollectionStale": (f"max_over_time({_ANSWER}[5m:30s]) == 0", "0s"),
    "NvidiaGpuRecoveryActionNeeded": ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION > 0", "0s"),
    "NvidiaGpuXidCritical": (_recent("48|62|64|74|79|95|119|120"), "0s"),
    "NvidiaGpuXidWarning": (_recent("94"), "0s"),
    "NvidiaGpuUncorrectableEccErrors": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL > 0", "0s"),
    "NvidiaGpuRowRemapFailure": ("DCGM_FI_DEV_ROW_REMAP_FAILURE > 0", "0s"),
    "NvidiaGpuRowRemapPending": ("DCGM_FI_DEV_ROW_REMAP_PENDING > 0", "0s"),
    "NvidiaGpuRetiredPagesPending": ("DCGM_FI_DEV_RETIRED_PENDING > 0", "0s"),
    "NvidiaGpuThermalSlowdown": (_has(_HW_THERMAL), "5m"),
    "NvidiaGpuPowerBrake": (_has(_POWER_BRAKE), "5m"),
}
"""Expression and waiting time of the rules that are on by default and have a signal here."""
_GPUS: Final = "count by (Hostname) (kernelcast_gpu_up == 1)"
PEER_OFF: Final[Mapping[str, tuple[str, str]]] = {
    "NvidiaGpuMissing": (f"{_GPUS} < max_over_time({_GPUS}[6h:1m])", "10m"),
    "NvidiaGpuTemperatureHigh": ("DCGM_FI_DEV_GPU_TEMP > 85", "10m"),
    "NvidiaGpuSoftwareThermalSlowdown": (_has(_SW_THERMAL), "30m"),
}
"""Rules that a site must switch on."""
NEEDED: Final = frozenset(
    re.findall(r"(?:DCGM|kernelcast)_\w+", " ".join(one for one, _ in {**PEER, **PEER_OFF}.values()))
)
"""Metrics that the peer's rules read."""


def peer_rules() -> str:
    """Return the peer's rules as the text of a file of Prometheus."""
    made = [{"alert": name, "expr": expr, "for": held} for name, (expr, held) in {**PEER, **PEER_OFF}.items()]
    return yaml.safe_dump({"groups": [{"name": "peer", "rules": made}]}, width=1_000_000)


def fired(watched: Watched, seconds: int, every: int) -> list[str]:
    """Return the names of all alerts that fire at any time: promtool lists them, because none is expected."""
    expr = f'group by (alertname) (max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s]))'
    case = {
        "interval": f"{every}s",
        "input_series": [{"series": name, "values": written(values)} for name, values in watched.values.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": f"{seconds}s", "exp_samples": []}],
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for name, text in rules.render(PROFILE).items():
            (directory / name).write_text(text)
        (directory / "peer.yaml").write_text(peer_rules())
        files = [rules.ALERTS_FILE, rules.CLASSIC_FILE, "peer.yaml"]
        document = {"rule_files": files, "evaluation_interval": f"{every}s", "tests": [case]}
        (directory / "case.yaml").write_text(yaml.safe_dump(document, width=1_000_000))
        command = [binary("promtool", "prometheus"), "test", "rules", str(directory / "case.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(set(re.findall(r'alertname="(\w+)"', (done.stdout + done.stderr).partition("got:")[2])))
    if "Watchdog" not in found:
        raise RuntimeError(done.stdout + done.stderr)
    return [name for name in found if name != "Watchdog"]


def row(name: str, alerts: list[str], fault: Fault | None) -> dict[str, Any]:
    """Return one line. Alertmanager mutes our declared consequences of a fault; the peer configures no such thing."""
    ours = [one for one in alerts if one.startswith("Kernelcast")]
    muted = [one.alert for one in fault.consequences] if fault is not None else []
    sent = [one for one in ours if not any(re.fullmatch(pattern, one) for pattern in muted)]
    return {
        "fault": name,
        "ours": ours,
        "our_messages": len(sent),
        "peer": [one for one in alerts if one in PEER],
        "peer_off_by_default": [one for one in alerts if one in PEER_OFF],
    }


def main() -> None:
    """Simulate, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    held = {alert.name: alert.hold_seconds for alert in rules.alerts(PROFILE)}
    table = []
    for fault in FAULTS:
        if not fault.is_service and (not options.only or fault.name in options.only):
            end = BEGINS + fault.seen_seconds + held[fault.alert] + SLACK + AFTERWARDS
            table.append(row(fault.name, fired(scenario(fault, end, NEEDED), end, EVERY_SECONDS), fault))
            print(json.dumps(table[-1]), flush=True)
    if not options.only:
        day = simulate(seconds=DAY, every=DAY_EVERY_SECONDS, metrics=asked_for(PROFILE) | NEEDED)
        table.append(row("none, a day", fired(day, DAY, DAY_EVERY_SECONDS), None))
        print(json.dumps(table[-1]))
    if options.json is not None:
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
