"""Published rules for pods: Kubernetes' Pod Security Standards (1.34) and OpenShift's security context constraints.

Both functions return the names of the rules that a pod breaks, so that a test can say which one it expects.

Sources: https://kubernetes.io/docs/concepts/security/pod-security-standards/ and OpenShift's definition of
`restricted-v2` (openshift/cluster-kube-apiserver-operator, bootkube manifests).
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

Pod = Mapping[str, Any]
"""The `spec` of a pod."""

_CAPABILITIES: Final = frozenset(
    (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
        *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
"""Those that the level baseline lets a container add."""
_VOLUMES: Final = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
"""Those of the level restricted, and of restricted-v2."""
_SELINUX_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
RESTRICTED_V2: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "allowHostDirVolumePlugin": False,
        "allowHostIPC": False,
        "allowHostNetwork": False,
        "allowHostPID": False,
        "allowHostPorts": False,
        "allowPrivilegeEscalation": False,
        "allowPrivilegedContainer": False,
        "allowedCapabilities": ["NET_BIND_SERVICE"],
        "fsGroup": {"type": "MustRunAs"},
        "readOnlyRootFilesystem": False,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": {"type": "MustRunAsRange"},
        "seLinuxContext": {"type": "MustRunAs"},
        "seccompProfiles": ["runtime/default"],
        "supplementalGroups": {"type": "RunAsAny"},
        "volumes": sorted(_VOLUMES),
    }
)
"""Ranges and the level of SELinux are the namespace's, so a pod that must run anywhere names none."""


def breaks_level(pod: Pod, level: str) -> set[str]:
    """The rules of Pod Security's level `baseline` or `restricted` that a pod breaks.

    A pod of ours sets no sysctl, so every sysctl counts as one that is not safe.
    """
    rules = {**_baseline(pod), **(_restricted(pod) if level == "restricted" else {})}
    return {name for name, broken in rules.items() if broken}


def _baseline(pod: Pod) -> dict[str, bool]:
    containers = list(_containers(pod))
    own = [_context(container) for container in containers]
    contexts = [_context(pod), *own]
    selinux = [context.get("seLinuxOptions", {}) for context in contexts]
    return {
        "host namespaces": any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        "hostPath volumes": "hostPath" in _volume_types(pod),
        "sysctls": bool(_context(pod).get("sysctls")),
        "host processes": any(one.get("windowsOptions", {}).get("hostProcess") for one in contexts),
        "AppArmor": any(one.get("appArmorProfile", {}).get("type") == "Unconfined" for one in contexts),
        "seccomp": any(one.get("seccompProfile", {}).get("type") == "Unconfined" for one in contexts),
        "SELinux": any(
            one.get("type", "") not in _SELINUX_TYPES or one.get("user") or one.get("role") for one in selinux
        ),
        "privileged containers": any(one.get("privileged") for one in own),
        "capabilities": any(_added(one) - _CAPABILITIES for one in own),
        "host ports": _has_host_port(containers),
        "hosts of probes": any(action.get("host") for one in containers for action in _probe_actions(one)),
        "/proc mount type": any(one.get("procMount", "Default") != "Default" for one in own),
    }


def _restricted(pod: Pod) -> dict[str, bool]:
    contexts = [{**_context(pod), **_context(container)} for container in _containers(pod)]
    profiles = [context.get("seccompProfile", {}).get("type") for context in contexts]
    return {
        "volume types": bool(_volume_types(pod) - _VOLUMES),
        "privilege escalation": any(one.get("allowPrivilegeEscalation") is not False for one in contexts),
        "running as non-root": any(one.get("runAsNonRoot") is not True for one in contexts),
        "running as user 0": any(one.get("runAsUser") == 0 for one in contexts),
        "seccomp": any(profile not in ("RuntimeDefault", "Localhost") for profile in profiles),
        "capabilities": any(
            "ALL" not in one.get("capabilities", {}).get("drop", ()) or _added(one) - {"NET_BIND_SERVICE"}
            for one in contexts
        ),
    }


def breaks_constraints(pod: Pod, constraints: Mapping[str, Any]) -> set[str]:
    """The fields of OpenShift's constraints that refuse a pod. What a pod leaves out, OpenShift fills in."""
    containers = list(_containers(pod))
    own = [_context(container) for container in containers]
    contexts = [{**_context(pod), **context} for context in own]
    user, selinux = constraints["runAsUser"], constraints["seLinuxContext"]
    asked = {
        "allowHostNetwork": pod.get("hostNetwork"),
        "allowHostPID": pod.get("hostPID"),
        "allowHostIPC": pod.get("hostIPC"),
        "allowHostDirVolumePlugin": "hostPath" in _volume_types(pod),
        "allowHostPorts": _has_host_port(containers),
        "allowPrivilegedContainer": any(one.get("privileged") for one in own),
        "allowPrivilegeEscalation": any(one.get("allowPrivilegeEscalation") for one in own),
    }
    limited = {
        "volumes": _volume_types(pod) - set(constraints["volumes"]),
        "fsGroup": "fsGroup" in _context(pod) and constraints["fsGroup"]["type"] != "RunAsAny",
        "runAsUser": user["type"] != "RunAsAny"
        and any(one.get("runAsUser", user.get("uid")) != user.get("uid") for one in contexts),
        "seLinuxContext": selinux["type"] != "RunAsAny"
        and any(
            one.get("seLinuxOptions", selinux.get("seLinuxOptions")) != selinux.get("seLinuxOptions")
            for one in contexts
        ),
        "seccompProfiles": any(
            one.get("seccompProfile", {"type": "RuntimeDefault"})["type"] != "RuntimeDefault" for one in contexts
        )
        and constraints["seccompProfiles"] == ["runtime/default"],
        "allowedCapabilities": any(_added(one) - set(constraints["allowedCapabilities"]) for one in own),
        "readOnlyRootFilesystem": constraints["readOnlyRootFilesystem"]
        and any(one.get("readOnlyRootFilesystem") is False for one in own),
    }
    refused = {name: wanted and not constraints[name] for name, wanted in asked.items()}
    return {name for name, broken in {**refused, **limited}.items() if broken}


def _added(context: Mapping[str, Any]) -> set[str]:
    """Capabilities that a container adds."""
    return set(context.get("capabilities", {}).get("add", ()))


def _has_host_port(containers: Iterable[Mapping[str, Any]]) -> bool:
    return any(port.get("hostPort") for container in containers for port in container.get("ports", ()))


def _context(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = owner.get("securityContext", {})
    return context


def _containers(pod: Pod) -> Iterator[Mapping[str, Any]]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(name, ())


def _volume_types(pod: Pod) -> set[str]:
    return {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}


def _probe_actions(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    hooks = container.get("lifecycle", {}).values()
    probes = (container.get(name, {}) for name in ("startupProbe", "livenessProbe", "readinessProbe"))
    for probe in (*hooks, *probes):
        yield from (action for kind, action in probe.items() if kind in ("httpGet", "tcpSocket"))
