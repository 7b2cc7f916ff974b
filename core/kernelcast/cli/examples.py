"""An example of each command, which its `--help` shows; written here as a command's help line is, in `app.LISTINGS`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "demo": "demo --source simulate --fault thermal-drift --duration 120",
        "exporter": "exporter --kafka off",
        "exporter release": "exporter release 3 --for 10m && nvidia-smi --gpu-reset -i 3",
        "exporter resume": "exporter resume 3",
        "bridge": "bridge --kafka.bootstrap-servers kafka-1:9092 --pages.prometheus-url http://prometheus:9090",
        "predictor": "predictor --prometheus http://prometheus:9090 --alertmanager http://alertmanager:9093",
        "top": "top node7:19400 --sort change",
        "doctor": "doctor --config /etc/kernelcast/kernelcast.yaml",
        "topics list": "topics list --kafka.bootstrap-servers kafka-1:9092",
        "topics apply": "topics apply --kafka.bootstrap-servers kafka-1:9092",
        "grafana files": "grafana files --flavor provisioning --output /etc/grafana/kernelcast --site site.yaml",
        "grafana chart": "grafana chart --output kernelcast-chart",
        "grafana push": "grafana push --url https://grafana.example --token-file token --dry-run",
        "grafana prometheus-config": "grafana prometheus-config --bridge bridge-1:19401 > prometheus.yml",
        "grafana alertmanager-config": "grafana alertmanager-config --site site.yaml > alertmanager.yml",
        "findings list": "findings list --all",
        "findings mark": "findings mark 7be1 false-alarm --note 'planned maintenance'",
        "hints list": "hints list --all",
        "hints watch": "hints watch --kafka.bootstrap-servers kafka-1:9092",
        "hints explain": "hints explain 3f0c",
        "hints export": "hints export --state approved --granularity restart --program train",
        "hints report": "hints report 3f0c < verdict.json",
        "hints stop": "hints stop --program train --reason 'benchmark until Friday'",
        "hints resume": "hints resume --program train",
        "hints approve": "hints approve 3f0c",
        "hints reject": "hints reject 3f0c --reason 'changes the loss'",
        "hints approve-search": "hints approve-search train gemm-tiles --most 20 --days 7",
        "hints reject-search": "hints reject-search train gemm-tiles",
        "backtest": "backtest power.csv --metric DCGM_FI_DEV_POWER_USAGE --horizon 1h --report --output forecasts.csv",
        "compile": "compile --cores 2",
        "replay kineto": "replay kineto trace.json.gz --speed 10",
        "replay nsys": "replay nsys report.sqlite --program train",
        "replay record": "replay record --seconds 60 --output node.jsonl.gz",
        "replay capture": "replay capture nvidia-smi.txt --output node.jsonl.gz",
        "simulate": "simulate --nodes 4 --fault thermal-drift:node=1,gpu=0,start=5m --speed 10",
        "rules files": "rules files --flavor prometheusrule --site site.yaml --output rules",
        "scrape files": "scrape files --flavor servicemonitor --site site.yaml --output monitors",
        "explain": """explain 'DCGM_FI_DEV_GPU_TEMP{Hostname="node7",gpu="0"}'""",
        "config example": "config example --minimal > kernelcast.yaml",
        "config files": "config files --output kernelcast-deploy",
    }
)
"""By command; `probe` and `health` parse their arguments themselves and have their own."""


def examples_of(name: str) -> list[str]:
    """Examples of a command and of those below it, without the program's name."""
    return [example for command, example in EXAMPLES.items() if command == name or command.startswith(f"{name} ")]


def add_examples(command: Any, name: str) -> None:
    """Add its example to the help of a command and of those below it; a group shows those of all.

    Args:
        command: A command of click; typer brings its own copy of that package.
        name: Its name, without the program's.
    """
    for each, child in getattr(command, "commands", {}).items():
        add_examples(child, f"{name} {each}")
    shown = examples_of(name)
    if shown:
        heading = "Examples:" if len(shown) > 1 else "Example:"
        examples = (heading, *(f"kernelcast {text}" for text in shown))
        # A blank line starts a line of its own.
        command.epilog = "\n\n".join((*examples, command.epilog) if command.epilog else examples)
