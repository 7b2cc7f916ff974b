"""Renders the plain manifests in `deploy/kubernetes` from the Helm chart: `python -m release.manifests [--check]`.

Needs `helm`, or its path in HELM.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "kernelcast"
MANIFESTS: Final = ROOT / "deploy" / "kubernetes"
NAMESPACE: Final = "kernelcast"
KUBERNETES: Final = "1.34.0"
"""Version for which helm renders."""
VALUES: Final = ("checksums=false", "image.tag=latest")
"""Values of the chart that differ from its defaults: plain manifests must not change with each configuration."""
# The comment at the top of each manifest.
_FIRST: Final = MappingProxyType(
    {
        "exporter": "The exporter on GPU nodes, without rights: `kubectl apply -f deploy/kubernetes/exporter.yaml`\n"
        "Pods whose programs use the probe mount the node's /run/kernelcast as well, read-only is enough, with\n"
        '`mountPropagation: HostToContainer`. The purpose of each part is in docs/exporter.md, "Permissions".\n'
        "Most kubelets give pod-resources/kubelet.sock to root alone; the chart's exporter.runAsRoot is for that.",
        "bridge": "Two bridges that share Kafka's partitions: `kubectl apply -f deploy/kubernetes/bridge.yaml`.\n"
        "Prometheus scrapes each pod, not the service, with `honor_labels: true`. The service takes Alertmanager's\n"
        "notifications: http://kernelcast-bridge.kernelcast.svc:19401/api/v1/alerts. Series are shared out by\n"
        "partition, so producers must write keys; where they do not, set `mode: replica`\n"
        "(docs/bridge.md). The image brings machine code, which the bridge reads from the read-only root file\n"
        "system: a start takes 5 seconds of a core. Where it cannot use it (another processor), it compiles for a\n"
        "minute at each start and logs that.",
        "predictor": "The predictor: `kubectl apply -f deploy/kubernetes/predictor.yaml`. Replicas share partitions.",
        "topics": "Creates and corrects Kafka's topics, before the services and after each upgrade:\n"
        "`kubectl -n kernelcast delete job kernelcast-topics --ignore-not-found`, then\n"
        "`kubectl apply -f deploy/kubernetes/topics.yaml`.",
    }
)
_HEADING: Final = (
    "Made from the Helm chart (deploy/helm/kernelcast) by `python -m release.manifests`. NEVER APPLIED by its\n"
    "authors: no cluster was available (docs/verified.md)."
)
_SOURCE: Final = re.compile(r"^# Source: .*\n", re.MULTILINE)


def helm() -> str | None:
    """The path of helm, from the variable HELM or PATH; None if there is none."""
    return os.environ.get("HELM") or shutil.which("helm")


def template(program: str, chart: Path, *options: str) -> str:
    """Render a chart.

    Raises:
        RuntimeError: Helm refused.
    """
    command = [
        program,
        "template",
        "kernelcast",
        str(chart),
        f"--namespace={NAMESPACE}",
        f"--kube-version={KUBERNETES}",
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def manifests(program: str) -> Mapping[str, str]:
    """The plain manifests, by file name."""
    sets = [f"--set={value}" for value in VALUES]
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
    made = {}
    for name, text in _FIRST.items():
        rendered = template(program, CHART, *sets, f"--show-only=templates/{name}.yaml")
        rendered = _without_hooks(_SOURCE.sub("", rendered)).removeprefix("---\n")
        comment = "".join(f"# {line}".rstrip() + "\n" for line in f"{text}\n\n{_HEADING}".splitlines())
        made[f"{name}.yaml"] = f"{comment}{namespace}---\n{rendered}"
    return made


def _without_hooks(text: str) -> str:
    """A manifest without Helm's hooks, which mean nothing to kubectl."""
    return re.sub(r"  # Before the services[^\n]*\n  annotations:\n(    helm\.sh/[^\n]*\n)+", "", text)


def main() -> int:
    """Write the manifests, or with `--check` compare them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file differs")
    check = parser.parse_args().check
    program = helm()
    if program is None:
        sys.stderr.write("helm is not on PATH; install it, or name it in HELM\n")
        return 2
    different = 0
    for name, text in manifests(program).items():
        path = MANIFESTS / name
        if check and path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path} differs from the chart's rendering; run: python -m release.manifests\n")
            different = 1
        elif not check:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return different


if __name__ == "__main__":
    sys.exit(main())
