"""The exporter's DaemonSet: without rights, with every directory that the daemon's defaults name."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.settings.listen import parse_listen_address
from kernelcast.runtime.settings.service import load

MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "exporter.yaml"


def documents() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = documents()["DaemonSet"]["spec"]["template"]["spec"]
    return spec


def test_the_pods_are_those_that_the_set_selects() -> None:
    spec = documents()["DaemonSet"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_daemon_runs_without_rights(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False


def test_what_runs_as_root_only_hands_two_directories_over(pod: dict[str, Any]) -> None:
    (container,) = pod["initContainers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    user = pod["securityContext"]["runAsUser"]
    assert container["command"] == ["chown", f"{user}:{pod['securityContext']['runAsGroup']}", *mounts]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}


def test_its_directories_are_the_nodes_and_the_settings_defaults(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    defaults = ExporterSettings()
    for path in (defaults.socket_path.parent, defaults.state_directory, defaults.pod_resources_socket.parent):
        mount = mounts[str(path)]
        assert paths[mount["name"]] == str(path)
        assert mount.get("readOnly", False) == (path == defaults.pod_resources_socket.parent)
    assert {mount["name"] for mount in mounts.values()} == paths.keys()


def test_it_finds_the_gpus_and_is_looked_after(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert pod["runtimeClassName"] == "nvidia"
    assert (environment["NVIDIA_VISIBLE_DEVICES"], environment["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    _, port = parse_listen_address(ExporterSettings().web.listen_address)
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    probes = {container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"/-/healthy", "/-/ready"}


def test_its_settings_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "kernelcast.yaml"
    path.write_text(documents()["ConfigMap"]["data"]["kernelcast.yaml"])
    environ = {"KERNELCAST_EXPORTER__HOSTNAME": "node-1"}
    made = load("exporter", ExporterSettings, path=path, flags={}, environ=environ)
    assert (made.kubernetes, made.hostname) == ("on", "node-1")
