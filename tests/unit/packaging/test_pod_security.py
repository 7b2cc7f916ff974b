"""The plain manifests, which are the chart's rendering, under the published rules for pods; and those rules."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.pod_security import RESTRICTED_V2, breaks_constraints, breaks_level

KUBERNETES = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"


def pod(name: str) -> dict[str, Any]:
    (spec,) = (
        one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all((KUBERNETES / f"{name}.yaml").read_text())
        if one["kind"] in ("DaemonSet", "Deployment", "Job")
    )
    found: dict[str, Any] = spec
    return found


@pytest.mark.parametrize("name", ["bridge", "predictor", "topics"])
def test_the_services_are_restricted(name: str) -> None:
    assert not breaks_level(pod(name), "restricted")


def test_the_exporter_breaks_the_baseline_only_by_directories_of_its_node() -> None:
    assert breaks_level(pod("exporter"), "baseline") == {"hostPath volumes"}


GOOD: dict[str, Any] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def with_context(**context: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "securityContext": {**GOOD, **context}}]}


@pytest.mark.parametrize(
    ("spec", "level", "broken"),
    [
        (with_context(), "restricted", set()),
        ({**with_context(), "hostPID": True}, "baseline", {"host namespaces"}),
        (with_context(privileged=True), "baseline", {"privileged containers"}),
        (with_context(capabilities={"add": ["SYS_ADMIN"]}), "baseline", {"capabilities"}),
        (with_context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}), "restricted", {"capabilities"}),
        (with_context(seLinuxOptions={"type": "spc_t"}), "baseline", {"SELinux"}),
        (with_context(seccompProfile={"type": "Unconfined"}), "baseline", {"seccomp"}),
        (with_context(seccompProfile={}), "restricted", {"seccomp"}),
        (with_context(allowPrivilegeEscalation=True), "restricted", {"privilege escalation"}),
        (with_context(runAsNonRoot=False, runAsUser=0), "restricted", {"running as non-root", "running as user 0"}),
        (with_context(procMount="Unmasked"), "baseline", {"/proc mount type"}),
        (
            {"containers": [{"securityContext": GOOD, "ports": [{"containerPort": 1, "hostPort": 1}]}]},
            "baseline",
            {"host ports"},
        ),
        (
            {"containers": [{"securityContext": GOOD, "livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]},
            "baseline",
            {"hosts of probes"},
        ),
        ({**with_context(), "volumes": [{"name": "v", "nfs": {}}]}, "restricted", {"volume types"}),
        ({**with_context(), "initContainers": [{"name": "i"}]}, "restricted", {"privilege escalation"}
            | {"running as non-root", "seccomp", "capabilities"}),
    ],
)  # fmt: skip
def test_a_level_names_the_rule_that_a_pod_breaks(spec: dict[str, Any], level: str, broken: set[str]) -> None:
    assert breaks_level(spec, level) == broken


@pytest.mark.parametrize(
    ("spec", "broken"),
    [
        (with_context(), set()),
        (with_context(runAsUser=10001), {"runAsUser"}),
        (with_context(seLinuxOptions={"type": "spc_t"}), {"seLinuxContext"}),
        (with_context(privileged=True), {"allowPrivilegedContainer"}),
        (with_context(capabilities={"add": ["CHOWN"]}), {"allowedCapabilities"}),
        (with_context(seccompProfile={"type": "Localhost"}), {"seccompProfiles"}),
        ({**with_context(), "securityContext": {"fsGroup": 1}}, {"fsGroup"}),
        ({**with_context(), "hostNetwork": True}, {"allowHostNetwork"}),
        ({**with_context(), "volumes": [{"name": "v", "hostPath": {}}]}, {"allowHostDirVolumePlugin", "volumes"}),
    ],
)
def test_openshifts_restricted_v2_names_the_field_that_refuses_a_pod(spec: dict[str, Any], broken: set[str]) -> None:
    assert breaks_constraints(spec, RESTRICTED_V2) == broken
