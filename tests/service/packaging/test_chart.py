"""The Helm chart, rendered by helm, against Kubernetes' schemas and the commands that it must equal."""

import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.service.built import HELM
from tests.support.pod_security import RESTRICTED_V2, breaks_constraints, breaks_level
from typer.testing import CliRunner

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.grafana import dashboards, rules
from kernelcast.grafana.command import grafana, scrape
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.service import ServiceSettings, load
from release import manifests

MODELS: dict[str, type[ServiceSettings]] = {
    "exporter": ExporterSettings,
    "bridge": BridgeSettings,
    "predictor": PredictorSettings,
}
SECURED = {
    "kafka": {"properties": {"security.protocol": "SASL_SSL"}, "caSecret": "kafka-ca"},
    "web": {"secret": "web", "tls": True, "userSecret": "scraper", "caSecret": "authority"},
    **{name: {"saslSecret": f"{name}-user"} for name in ("exporter", "bridge", "predictor", "topics")},
    "pullSecrets": [{"name": "registry"}],
    "monitorLabels": {"release": "prom"},
    "labels": {"team": "ml"},
    "networkPolicy": {"enabled": True},
    "image": {"digest": f"sha256:{'0' * 64}"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "services are monitored": {**SECURED, "monitor": "service"},
    "pods are monitored": {**SECURED, "monitor": "pod", "exporter": {"podLabels": True, "runAsRoot": True}},
    "ResourceSlices are read": {**SECURED, "exporter": {"resourceSlices": True}},
    "several predictors": {**SECURED, "predictor": {"replicas": 3, "saslSecret": "predictor-user"}},
    "no Kafka": {
        **{name: {"enabled": False} for name in ("bridge", "predictor", "topics")},
        "exporter": {"settings": {"to_kafka": "off"}},
        "monitor": "pod",
    },
    "a predictor beside dcgm-exporter": {
        **{name: {"enabled": False} for name in ("exporter", "bridge", "topics")},
        "predictor": {"settings": {"prometheus": {"without_kafka": True, "url": "http://prometheus:9090"}}},
        "monitor": "service",
    },
}


SITES = sorted((manifests.CHART / "sites").glob("*.yaml"))
OPENSHIFT = manifests.ROOT / "deploy" / "openshift" / "exporter.yaml"
NAMED = (("certificate", "crt"), ("key", "key"))
EXPORTER_ALONE = [f"{name}.enabled={str(name == 'exporter').lower()}" for name in (*MODELS, "topics")]
"""Of a second release, where a namespace enforces a level that the exporter breaks."""


@pytest.fixture
def helm() -> str:
    return manifests.helm() or str(HELM.found())


def rendered(helm: str, directory: Path, values: Mapping[str, Any], chart: Path = manifests.CHART) -> list[Any]:
    path = directory / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    text = manifests.template(helm, chart, f"--values={path}")
    return [document for document in yaml.safe_load_all(text) if document]


def of_site(helm: str, site: Path, *sets: str) -> list[Any]:
    text = manifests.template(helm, manifests.CHART, f"--values={site}", *(f"--set={one}" for one in sets))
    return [document for document in yaml.safe_load_all(text) if document]


def pods(documents: list[Any]) -> dict[str, Any]:
    """Specification of every pod, by the name of its service."""
    found = {}
    for one in documents:
        if one["kind"] in ("DaemonSet", "Deployment", "StatefulSet", "Job"):
            template = one["spec"]["template"]
            found[template["metadata"]["labels"]["app.kubernetes.io/name"]] = template["spec"]
        elif one["kind"] == "Pod":
            found[one["metadata"]["name"]] = one["spec"]
    return found


def is_monitor(document: Any) -> bool:
    return document["kind"] in ("ServiceMonitor", "PodMonitor")


def by_kind(documents: list[Any], kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def test_helm_finds_nothing_to_complain_about(helm: str) -> None:
    done = subprocess.run([helm, "lint", "--strict", manifests.CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_takes_every_object(helm: str, tmp_path: Path, variant: str) -> None:
    documents = rendered(helm, tmp_path, VARIANTS[variant])
    ours = [one for one in documents if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    assert ours
    for document in ours:
        kubernetes_validate.validate(document, manifests.KUBERNETES.rpartition(".")[0], strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_services_take_their_settings(helm: str, tmp_path: Path, variant: str) -> None:
    maps = by_kind(rendered(helm, tmp_path, VARIANTS[variant]), "ConfigMap")
    assert maps
    for name, document in maps.items():
        service = name.removeprefix("kernelcast-")
        path = tmp_path / "kernelcast.yaml"
        path.write_text(document["data"]["kernelcast.yaml"])
        made = load(service, MODELS[service], path=path, flags={}, environ={})
        secured = "web" in VARIANTS[variant]
        assert str(made.web.config_file) == ("/etc/kernelcast-web/web.yml" if secured else "None")
        assert ("ssl.ca.location" in made.kafka.properties) == secured


@pytest.mark.parametrize("site", SITES, ids=lambda path: path.stem)
def test_a_sites_pods_are_restricted_and_the_exporter_breaks_its_level_only_by_its_nodes_directories(
    helm: str, site: Path
) -> None:
    whole = {**pods(of_site(helm, site)), **pods(of_site(helm, site, *EXPORTER_ALONE))}
    assert len(whole) == 6, "exporter, bridge, predictor, topics, and two tests"
    exporter = whole.pop("kernelcast-exporter")
    assert breaks_level(exporter, "baseline") == {"hostPath volumes"}
    for name, pod in whole.items():
        assert not breaks_level(pod, "restricted"), name


@pytest.mark.parametrize("site", SITES, ids=lambda path: path.stem)
def test_kubernetes_and_the_services_take_every_object_of_a_site(helm: str, site: Path, tmp_path: Path) -> None:
    documents = [*of_site(helm, site), *of_site(helm, site, *EXPORTER_ALONE)]
    settings = set()
    for document in documents:
        if not document["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(document, manifests.KUBERNETES.rpartition(".")[0], strict=True)
        if document["kind"] == "ConfigMap":
            service = document["metadata"]["labels"]["app.kubernetes.io/name"].removeprefix("kernelcast-")
            path = tmp_path / "kernelcast.yaml"
            path.write_text(document["data"]["kernelcast.yaml"])
            load(service, MODELS[service], path=path, flags={}, environ={})
            settings.add(service)
    assert settings == set(MODELS)


def test_openshifts_restricted_v2_takes_all_pods_but_the_exporter_and_its_own_constraints_take_that(helm: str) -> None:
    site = manifests.CHART / "sites" / "openshift.yaml"
    documents = of_site(helm, site)
    whole = pods(documents)
    exporter = whole.pop("kernelcast-exporter")
    for name, pod in whole.items():
        assert not breaks_constraints(pod, RESTRICTED_V2), name
    assert breaks_constraints(exporter, RESTRICTED_V2) == {"allowHostDirVolumePlugin", "volumes", "runAsUser"}

    constraints, role, binding = yaml.safe_load_all(OPENSHIFT.read_text())
    assert not breaks_constraints(exporter, constraints)
    assert role["rules"][0]["resourceNames"] == [constraints["metadata"]["name"]]
    (subject,) = binding["subjects"]
    assert subject["name"] == exporter["serviceAccountName"]
    assert subject["name"] in by_kind(documents, "ServiceAccount")
    assert subject["namespace"] == manifests.NAMESPACE


@pytest.mark.parametrize(
    ("values", "rights"),
    [
        ({}, []),
        ({"podLabels": True}, [("", "pods")]),
        ({"resourceSlices": True}, [("resource.k8s.io", "resourceslices")]),
        ({"podLabels": True, "resourceSlices": True}, [("", "pods"), ("resource.k8s.io", "resourceslices")]),
    ],
)
def test_the_exporter_has_the_rights_that_are_asked_for_and_may_list_alone(
    helm: str, tmp_path: Path, values: dict[str, bool], rights: list[tuple[str, str]]
) -> None:
    documents = rendered(helm, tmp_path, {"exporter": values})
    roles = by_kind(documents, "ClusterRole").values()
    rules = [rule for role in roles for rule in role["rules"]]
    assert all(rule["verbs"] == ["list"] for rule in rules)
    assert [(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]] == rights
    assert pods(documents)["kernelcast-exporter"]["automountServiceAccountToken"] is bool(rights)
    accounts = by_kind(documents, "ServiceAccount")
    assert (pods(documents)["kernelcast-exporter"].get("serviceAccountName") in accounts) is bool(rights)


def test_the_exporters_constraints_on_openshift_allow_nothing_that_it_does_not_use(helm: str) -> None:
    constraints = next(yaml.safe_load_all(OPENSHIFT.read_text()))
    site = manifests.CHART / "sites" / "openshift.yaml"
    exporter = pods(of_site(helm, site, "exporter.podLabels=true"))["kernelcast-exporter"]
    assert {field for field in constraints if field.startswith("allow") and constraints[field]} == {
        "allowHostDirVolumePlugin"
    }
    # Kubernetes adds the token's volume, which is projected, to a pod that asks for one.
    assert exporter["automountServiceAccountToken"] is True
    used = {kind for volume in exporter["volumes"] for kind in volume if kind != "name"} | {"projected"}
    with_secrets = pods(of_site(helm, site, "web.secret=web"))["kernelcast-exporter"]["volumes"]
    assert {kind for volume in with_secrets for kind in volume if kind != "name"} | used == set(constraints["volumes"])
    less = {**constraints, "allowHostDirVolumePlugin": False}
    assert breaks_constraints(exporter, less) == {"allowHostDirVolumePlugin"}
    assert breaks_constraints(exporter, {**constraints, "runAsUser": {"type": "MustRunAsRange"}}) == {"runAsUser"}


def test_where_no_user_is_given_the_exporter_must_be_root(helm: str, tmp_path: Path) -> None:
    values = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
    with pytest.raises(RuntimeError, match=r"set exporter\.runAsRoot"):
        rendered(helm, tmp_path, values)
    found = pods(rendered(helm, tmp_path, {**values, "exporter": {"runAsRoot": True}}))
    for name, pod in found.items():
        assert pod["securityContext"].get("runAsUser") == (0 if name == "kernelcast-exporter" else None)


@pytest.mark.parametrize("service", ["exporter", "bridge", "predictor", "topics"])
def test_a_site_places_and_extends_each_pod(helm: str, tmp_path: Path, service: str) -> None:
    affinity: dict[str, Any] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    toleration = {"key": "site", "operator": "Exists"}
    own: dict[str, Any] = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [toleration],
        "affinity": affinity,
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "serviceAccount": {"create": True, "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}},
        "extraArgs": ["--log.level=debug"],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    documents = rendered(helm, tmp_path, {service: own})
    name = f"kernelcast-{service}"
    pod = pods(documents)[name]
    (container,) = pod["containers"]
    assert pod["nodeSelector"].items() >= {"disk": "ssd"}.items()
    assert pod["tolerations"] == [toleration]
    assert pod["affinity"] == affinity
    assert container["args"][-1] == "--log.level=debug"
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
    assert {"name": "scratch", "emptyDir": {}} in pod["volumes"]
    assert {"name": "scratch", "mountPath": "/scratch"} in container["volumeMounts"]
    account = by_kind(documents, "ServiceAccount")[pod["serviceAccountName"]]
    assert account["metadata"]["annotations"].items() >= own["serviceAccount"]["annotations"].items()
    assert ("helm.sh/hook" in account["metadata"]["annotations"]) == (service == "topics"), "its Job is a hook, too"
    (template,) = (
        one["spec"]["template"]
        for one in documents
        if one["kind"] in ("DaemonSet", "Deployment", "Job") and one["metadata"]["name"] == name
    )
    assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    for document in documents:
        kubernetes_validate.validate(document, manifests.KUBERNETES.rpartition(".")[0], strict=True)


def test_replicas_prefer_different_nodes_until_a_site_gives_an_affinity(helm: str, tmp_path: Path) -> None:
    (preferred,) = pods(rendered(helm, tmp_path, {}))["kernelcast-bridge"]["affinity"]["podAntiAffinity"].values()
    assert preferred[0]["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    values = {"affinity": {"podAffinity": {}}, "topologySpreadConstraints": [spread]}
    pod = pods(rendered(helm, tmp_path, {"bridge": values}))["kernelcast-bridge"]
    assert pod["affinity"] == {"podAffinity": {}}
    selector = {"matchLabels": {"app.kubernetes.io/name": "kernelcast-bridge"}}
    assert pod["topologySpreadConstraints"] == [{**spread, "labelSelector": selector}]


def test_a_client_certificate_is_mounted_and_named_to_kafka(helm: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {name: {"certificateSecret": f"{name}-tls"} for name in (*MODELS, "topics")}
    values["kafka"] = {"certificateKeys": {"certificate": "user.crt", "key": "user.key"}}
    documents = rendered(helm, tmp_path, values)
    for name, pod in pods(documents).items():
        if name.startswith("kernelcast-test"):
            continue
        service = name.removeprefix("kernelcast-")
        (volume,) = (one for one in pod["volumes"] if one["name"] == "kafka-certificate")
        assert volume["secret"] == {
            "secretName": f"{service}-tls",
            "items": [{"key": "user.crt", "path": "tls.crt"}, {"key": "user.key", "path": "tls.key"}],
        }
        (container,) = pod["containers"]
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == "kafka-certificate")
        files = {f"ssl.{kind}.location": f"{mount['mountPath']}/tls.{end}" for kind, end in NAMED}
        environ = {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}
        path = tmp_path / "kernelcast.yaml"
        text = "{}" if service == "topics" else by_kind(documents, "ConfigMap")[name]["data"]["kernelcast.yaml"]
        path.write_text(text)
        made = load(service, MODELS.get(service, BridgeSettings), path=path, flags={}, environ=environ)
        assert made.kafka.properties.items() >= files.items()


def test_a_token_of_an_oidc_provider_is_asked_for_with_id_and_secret_from_a_secret(helm: str, tmp_path: Path) -> None:
    properties = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    values = {"kafka": {"properties": properties}, "bridge": {"saslSecret": "client"}}
    (container,) = pods(rendered(helm, tmp_path, values))["kernelcast-bridge"]["containers"]
    assert {one["name"]: one["valueFrom"] for one in container["env"]} == {
        f"KERNELCAST_KAFKA__PROPERTIES__SASL_OAUTHBEARER_CLIENT_{name}": {
            "secretKeyRef": {"name": "client", "key": key}
        }
        for name, key in (("ID", "client-id"), ("SECRET", "client-secret"))
    }


def test_another_name_of_the_objects_leaves_the_labels_that_name_the_jobs(helm: str, tmp_path: Path) -> None:
    site = {**SECURED, "fullnameOverride": "gpu-metrics", "monitor": "service", "exporter": {"podLabels": True}}
    documents = rendered(helm, tmp_path, site)
    assert all(one["metadata"]["name"].startswith("gpu-metrics-") for one in documents)
    plain = rendered(helm, tmp_path, {**site, "fullnameOverride": ""})
    assert set(pods(documents)) - set(pods(plain)) == {"gpu-metrics-test-bridge", "gpu-metrics-test-predictor"}
    jobs = {one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] for one in documents if is_monitor(one)}
    assert jobs == {f"kernelcast-{name}" for name in MODELS}
    (container,) = pods(documents)["gpu-metrics-test-bridge"]["containers"]
    assert "https://gpu-metrics-bridge:19401" in container["args"][0]


def test_the_plain_manifests_are_the_charts_rendering(helm: str) -> None:
    for name, text in manifests.manifests(helm).items():
        assert (manifests.MANIFESTS / name).read_text() == text, "run: python -m release.manifests"


@pytest.mark.parametrize(("monitor", "kind"), [("service", "ServiceMonitor"), ("pod", "PodMonitor")])
def test_monitors_are_one_kind_or_the_other_and_equal_those_of_the_command(
    helm: str, tmp_path: Path, monitor: str, kind: str
) -> None:
    documents = rendered(helm, tmp_path, {**SECURED, "monitor": monitor})
    kinds = {one["kind"] for one in documents}
    assert kinds & {"ServiceMonitor", "PodMonitor"} == {kind}
    access = "{targets: ['a:1'], access: {scheme: https}}"
    site = tmp_path / "site.yaml"
    site.write_text(
        f"bridge: {access}\nexporter: {access}\npredictor: {access}\n"
        "kubernetes: {labels: {release: prom}, tls_secret: authority, user_secret: scraper}\n"
    )
    arguments = ["files", "--flavor", kind.lower(), "--site", str(site), "--output", str(tmp_path / "monitors")]
    assert CliRunner().invoke(scrape, arguments).exit_code == 0
    written = [yaml.safe_load(path.read_text()) for path in (tmp_path / "monitors").iterdir()]
    assert {one["metadata"]["name"]: one["spec"] for one in written} == {
        name: one["spec"] for name, one in by_kind(documents, kind).items()
    }
    if kind == "ServiceMonitor":
        services = by_kind(documents, "Service")
        assert set(services) == set(by_kind(documents, kind)), "a monitor selects services"
        assert all(one["metadata"]["labels"]["app.kubernetes.io/name"] == name for name, one in services.items())


@pytest.mark.parametrize(
    ("variant", "kind", "endpoints"),
    [
        ("no Kafka", "PodMonitor", "podMetricsEndpoints"),
        ("a predictor beside dcgm-exporter", "ServiceMonitor", "endpoints"),
    ],
)
def test_without_kafka_a_service_is_scraped_whole(
    helm: str, tmp_path: Path, variant: str, kind: str, endpoints: str
) -> None:
    (monitor,) = by_kind(rendered(helm, tmp_path, VARIANTS[variant]), kind).values()
    (endpoint,) = monitor["spec"][endpoints]
    assert endpoint["honorLabels"] is True
    assert "metricRelabelings" not in endpoint


def test_rules_and_dashboards_are_those_of_the_generator(helm: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    assert CliRunner().invoke(grafana, ["chart", "--output", str(chart)]).exit_code == 0
    values = {"rules": {"enabled": True}, "dashboards": {"enabled": True}, "monitorLabels": {"release": "prom"}}
    documents = rendered(helm, tmp_path, values, chart)
    found = by_kind(documents, "PrometheusRule")
    made = rules.render(rules.PRODUCTION)
    for name in (rules.CLASSIC_FILE, rules.ALERTS_FILE):
        rule = found.pop(f"kernelcast-{name.removesuffix('.yaml')}")
        assert rule["spec"]["groups"] == yaml.safe_load(made[name])["groups"]
        assert rule["metadata"]["labels"]["release"] == "prom"
    assert not found
    maps = {name: one for name, one in by_kind(documents, "ConfigMap").items() if "kernelcast.yaml" not in one["data"]}
    texts = {name: text for one in maps.values() for name, text in one["data"].items()}
    assert {name: yaml.safe_load(text) for name, text in texts.items()} == {
        name: yaml.safe_load(text) for name, text in dashboards.render().items()
    }
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps.values())


@pytest.mark.parametrize("what", ["rules", "dashboards"])
def test_a_chart_without_rules_says_which_command_writes_one(helm: str, tmp_path: Path, what: str) -> None:
    with pytest.raises(RuntimeError, match="kernelcast grafana chart --output DIR"):
        rendered(helm, tmp_path, {what: {"enabled": True}})


@pytest.mark.parametrize(
    "values",
    [
        {"bridge": {"replica": 3}},
        {"bridge": {"replicas": 0}},
        {"monitor": "both"},
        {"image": {"digest": "latest"}},
        {"kafka": {"properties": {"sasl.password": "secret"}}},
        {"kafka": {"bootstrapServers": "kafka"}},
        {"web": {"tls": True}},
        {"exporter": {"settings": {"kafka": {}}}},
        {"kafka": {"properties": {"sasl.oauthbearer.client.secret": "secret"}}},
        {"exporters": {}},
        {"affinity": {}},
        {"topics": {"nodeSelectors": {}}},
        {"bridge": {"extraEnv": {"HTTPS_PROXY": "http://proxy:3128"}}},
        {"bridge": {"serviceAccount": {"annotation": {}}}},
    ],
)
def test_the_schema_refuses_values_that_would_not_work(helm: str, tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="values don't meet the specifications of the schema"):
        rendered(helm, tmp_path, values)


def test_the_schema_takes_a_charts_globals_and_anchors_of_a_site(helm: str, tmp_path: Path) -> None:
    assert rendered(helm, tmp_path, {"global": {"imageRegistry": "registry.example"}, "x-nodes": {"any": "thing"}})


def test_no_secret_is_written_and_kafkas_users_come_from_secrets(helm: str, tmp_path: Path) -> None:
    documents = rendered(helm, tmp_path, {**SECURED, "monitor": "service"})
    assert not by_kind(documents, "Secret")
    pods = {
        name: one["spec"]["template"]["spec"]
        for kind in ("DaemonSet", "Deployment", "StatefulSet", "Job")
        for name, one in by_kind(documents, kind).items()
    }
    assert set(pods) == {f"kernelcast-{name}" for name in ("exporter", "bridge", "predictor", "topics")}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        sources = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
        user = f"{name.removeprefix('kernelcast-')}-user"
        for key in ("username", "password"):
            variable = f"KERNELCAST_KAFKA__PROPERTIES__SASL_{key.upper()}"
            assert sources[variable] == {"secretKeyRef": {"name": user, "key": key}}


def test_budgets_probes_and_the_test_know_readiness(helm: str, tmp_path: Path) -> None:
    documents = rendered(helm, tmp_path, {})
    assert set(by_kind(documents, "PodDisruptionBudget")) == {"kernelcast-bridge", "kernelcast-predictor"}
    for deployment in by_kind(documents, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
        assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    tests = by_kind(documents, "Pod")
    assert set(tests) == {"kernelcast-test-bridge", "kernelcast-test-predictor"}
    assert all(one["metadata"]["annotations"]["helm.sh/hook"] == "test" for one in tests.values())


def test_each_predictor_has_a_name_that_it_keeps(helm: str, tmp_path: Path) -> None:
    """Scores and findings are saved under it."""
    name = "kernelcast-predictor"
    one, several = (rendered(helm, tmp_path, {"predictor": {"replicas": count}}) for count in (1, 3))
    assert by_kind(one, "Deployment")[name]["spec"]["template"]["spec"]["hostname"] == name
    assert not by_kind(one, "StatefulSet")
    assert name not in by_kind(several, "Deployment")
    found = by_kind(several, "StatefulSet")[name]["spec"]
    assert "hostname" not in found["template"]["spec"], "that of its pod is its name"
    assert (found["replicas"], found["serviceName"]) == (3, name)
    assert found["serviceName"] in by_kind(several, "Service")
    before = by_kind(one, "Deployment")[name]["spec"]
    assert found["selector"] == before["selector"]
    assert found["template"]["spec"]["containers"] == before["template"]["spec"]["containers"]


def test_where_the_web_server_asks_for_a_user_the_probe_logs_in(helm: str, tmp_path: Path) -> None:
    (container,) = by_kind(rendered(helm, tmp_path, SECURED), "Deployment")["kernelcast-bridge"]["spec"]["template"][
        "spec"
    ]["containers"]
    command = container["readinessProbe"]["exec"]["command"][-1]
    assert "kernelcast health https://127.0.0.1:19401/-/ready" in command
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/etc/kernelcast-web-user"}
    nested = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert not [path for path in nested if any(path.startswith(f"{other}/") for other in nested)], (
        "no folder can be made below a read-only volume"
    )


def test_the_notes_say_what_to_do_next(helm: str, tmp_path: Path) -> None:
    chart = Path(shutil.copytree(manifests.CHART, tmp_path / "chart"))
    notes = (chart / "templates" / "NOTES.txt").read_text()
    shown = (
        f'{{{{- define "notes" -}}}}{notes}{{{{- end -}}}}\nkind: Notes\ntext: {{{{ include "notes" . | toJson }}}}\n'
    )
    (chart / "templates" / "notes.yaml").write_text(shown)
    (document,) = yaml.safe_load_all(manifests.template(helm, chart, "--show-only=templates/notes.yaml"))
    assert "helm test kernelcast -n kernelcast" in document["text"]
    assert "`kernelcast grafana chart --output DIR`" in document["text"]


def test_the_charts_version_is_the_packages() -> None:
    with (manifests.ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    chart = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
