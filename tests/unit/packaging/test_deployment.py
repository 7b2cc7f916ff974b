"""The files in deploy/: checked by the programs that read them, and compared with the code."""

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.cli import app
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.listen import parse_listen_address
from kernelcast.runtime.settings.service import KafkaSettings, ServiceSettings, load
from kernelcast.wire.topics import TOPICS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CONFIG = DEPLOY / "kernelcast.yaml"
MODELS: dict[str, type[ServiceSettings]] = {
    "exporter": ExporterSettings,
    "bridge": BridgeSettings,
    "predictor": PredictorSettings,
}
PASSWORD = "KERNELCAST_KAFKA__PROPERTIES__SASL_PASSWORD"


def keys(model: type[BaseModel]) -> Iterator[str]:
    """Every setting's name, those of nested models after their own."""
    for name, info in model.model_fields.items():
        yield name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from keys(info.annotation)


MINIMAL = DEPLOY / "minimal.yaml"


def secured(folder: Path) -> Path:
    """The example with its commented lines for TLS and users of Kafka in force."""
    lines = CONFIG.read_text().splitlines()
    at = lines.index("  # properties:")
    lines[at : at + 4] = [line.replace("  # ", "  ", 1) for line in lines[at : at + 4]]
    lines.remove(next(line for line in lines if line.startswith("  properties: {}")))
    path = folder / "secured.yaml"
    path.write_text("\n".join(lines).replace("  # kafka: {", "  kafka: {"))
    return path


@pytest.mark.parametrize("path", [CONFIG, MINIMAL], ids=["example", "minimal"])
@pytest.mark.parametrize("service", MODELS)
def test_the_service_takes_the_example_settings_as_they_are(
    service: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    code = app.run([service, "--check-config", "--config", str(path)])
    assert (code, *capsys.readouterr()) == (0, "configuration is valid\n", "")


@pytest.mark.parametrize(("service", "model"), MODELS.items())
def test_the_minimal_settings_are_defaults(service: str, model: type[ServiceSettings]) -> None:
    assert load(service, model, path=MINIMAL, flags={}, environ={}) == load(
        service, model, path=None, flags={}, environ={}
    )


@pytest.mark.parametrize(("service", "model"), MODELS.items())
def test_the_example_names_every_setting_and_shows_its_default(service: str, model: type[ServiceSettings]) -> None:
    content = CONFIG.read_text()
    shown = set(re.findall(r"(?:^|[{,])\s*(?:# )?(\w+):", content, re.MULTILINE))
    assert set(keys(model)) - shown == set()
    given = load(service, model, path=CONFIG, flags={}, environ={})
    defaults = load(service, model, path=None, flags={}, environ={})
    assert given == defaults


@pytest.mark.parametrize(("service", "model"), MODELS.items())
def test_every_service_has_a_user_of_its_own_and_no_password(
    service: str, model: type[ServiceSettings], tmp_path: Path
) -> None:
    kafka: KafkaSettings = load(service, model, path=secured(tmp_path), flags={}, environ={}).kafka
    assert (kafka.properties["security.protocol"], kafka.properties["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert kafka.properties["sasl.username"] == f"kernelcast-{service}"
    assert "sasl.password" not in kafka.properties


def unit(service: str) -> Path:
    return DEPLOY / "systemd" / f"kernelcast-{service}.service"


def settings_of(service: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit(service).read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("service", MODELS)
def test_the_unit_starts_the_service_without_rights(service: str) -> None:
    settings = settings_of(service)
    (start,) = settings["ExecStart"]
    assert f"kernelcast {service} --config /etc/kernelcast/kernelcast.yaml" in start
    assert settings["DynamicUser"] == ["yes"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert settings["NoNewPrivileges"] == ["yes"]
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["SystemCallFilter"] == ["@system-service"]
    assert settings["MemoryMax"]


@pytest.mark.parametrize("service", MODELS)
def test_a_hung_service_is_restarted_but_not_for_ever(service: str) -> None:
    settings = settings_of(service)
    assert settings["Type"] == ["notify"], "the service says when it runs"
    assert settings["WatchdogSec"]
    assert settings["Restart"] == ["on-failure"], "which a watchdog's end is"
    assert (settings["StartLimitIntervalSec"], settings["StartLimitBurst"]) == (["10min"], ["10"])
    assert "NotifyAccess" not in settings, "only the main process may speak for the service"


@pytest.mark.parametrize("service", MODELS)
def test_the_service_belongs_to_the_target(service: str) -> None:
    settings = settings_of(service)
    assert settings["PartOf"] == settings["WantedBy"] == ["kernelcast.target"]
    assert "WantedBy=multi-user.target" in (DEPLOY / "systemd" / "kernelcast.target").read_text()


def test_the_preserved_directory_is_the_sockets_and_belongs_to_the_user_that_the_drop_in_names() -> None:
    systemd, directory = DEPLOY / "systemd", str(ExporterSettings().socket_path.parent)
    drop_in = (systemd / "preserved-socket.conf").read_text()
    made = (systemd / "kernelcast.tmpfiles.conf").read_text().splitlines()[-1].split()
    assert made == ["d", directory, "0755", "kernelcast", "kernelcast", "-"]
    assert f"ReadWritePaths={directory}\n" in drop_in
    assert "User=kernelcast\n" in drop_in
    assert (systemd / "kernelcast.sysusers.conf").read_text().splitlines()[-1].startswith("u kernelcast ")


@pytest.mark.parametrize(("service", "command"), [("bridge", "compile"), ("predictor", "compile decoder forecasts")])
def test_machine_code_is_on_disk_before_the_service_starts(service: str, command: str) -> None:
    settings = settings_of(service)
    assert f"NUMBA_CACHE_DIR=%C/{settings['CacheDirectory'][0]}" in settings["Environment"]
    assert settings["ExecStartPre"] == [f"-/opt/kernelcast/bin/kernelcast {command}"], "a failure stops no service"
    assert settings["TimeoutStartSec"] == ["15min"], "compiling counts as starting"
    parsed(*command.split())


def test_the_exporter_compiles_nothing() -> None:
    assert "CacheDirectory" not in settings_of("exporter")


def test_the_image_is_built_with_machine_code_that_its_user_can_read() -> None:
    commands = re.findall(
        r"^(?:RUN .*kernelcast (compile.*)|(USER) .*)$", (DEPLOY / "docker/Dockerfile").read_text(), re.MULTILINE
    )
    assert ["".join(command) for command in commands] == ["compile --portable", "USER", "compile --check"]


def test_the_exporter_has_its_default_directories_and_the_gpus() -> None:
    settings, defaults = settings_of("exporter"), ExporterSettings()
    assert Path("/run", settings["RuntimeDirectory"][0]) == defaults.socket_path.parent
    assert Path("/var/lib", settings["StateDirectory"][0]) == defaults.state_directory
    assert settings["RuntimeDirectoryMode"] == ["0755"], "programs of all users connect to the socket"
    assert "RuntimeDirectoryPreserve" not in settings, "with DynamicUser= it hides the socket below /run/private"
    assert "char-nvidia* rw" in settings["DeviceAllow"]
    assert settings["PrivateDevices"] == ["no"]
    assert "ProtectProc" not in settings, "a program of another user would look as if it had ended"


@pytest.mark.parametrize("service", MODELS)
def test_numba_may_run_its_compiled_code(service: str) -> None:
    assert "MemoryDenyWriteExecute" not in settings_of(service)


def rights() -> dict[tuple[str, str], set[str]]:
    """The operations that the commands in kafka/README.md allow, by (role, topic)."""
    text = (DEPLOY / "kafka" / "README.md").read_text().replace("\\\n", " ")
    found: dict[tuple[str, str], set[str]] = {}
    for role, rest in re.findall(r"^allow User:kernelcast-(\w+) (.*)$", text, re.MULTILINE):
        for topic in re.findall(r"--topic (\S+)", rest):
            found.setdefault((role, topic), set()).update(re.findall(r"--operation (\w+)", rest))
    return found


def table() -> dict[tuple[str, str], set[str]]:
    """The operations in the table of kafka/README.md, in the same form."""
    found: dict[tuple[str, str], set[str]] = {}
    for line in (DEPLOY / "kafka" / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `kernelcast."):
            for role, cell in zip(MODELS, cells[1:], strict=True):
                found[role, cells[0].strip("`")] = {word.title() for word in re.findall("read|write", cell)}
    return {key: operations for key, operations in found.items() if operations}


def test_the_commands_for_kafka_allow_exactly_the_operations_in_the_table() -> None:
    assert {key: found for key, found in rights().items() if key[0] in MODELS} == table()


def test_the_table_for_kafka_has_every_topic() -> None:
    text = (DEPLOY / "kafka" / "README.md").read_text()
    assert re.findall(r"^\| `(kernelcast\.\w+)`", text, re.MULTILINE) == [topic.name for topic in TOPICS]


def test_only_predictors_may_write_hints() -> None:
    assert [role for (role, topic), found in rights().items() if topic == "kernelcast.hints" and "Write" in found] == [
        "predictor"
    ]


def services() -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    return content["services"]


def test_every_file_that_compose_mounts_is_there() -> None:
    mounts = [mount for service in services().values() for mount in service.get("volumes", [])]
    sources = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert sources
    for source in sources:
        assert (DEPLOY / "compose" / source).exists(), source


def parsed(name: str, *arguments: str) -> None:
    """Parse a command's options without running it; raises its exit."""
    (value,) = [point.value for point in entry_points(group=app.GROUP, name=name)] or [app.LISTINGS[name].target]
    found = EntryPoint(name, value, app.GROUP).load()
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer()
        found.command()(function)
    command: Any = typer.main.get_command(found)
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(name, list(arguments)).close()


def test_every_command_of_compose_is_one_and_its_options_are_known() -> None:
    ours = [service for service in services().values() if "build" in service]
    commands = {tuple(service["command"]) for service in ours if "entrypoint" not in service}
    assert {command[0] for command in commands} >= {"bridge", "exporter", "predictor", "simulate", "topics"}
    for command in commands:
        parsed(*command)


def port_of(service: str) -> int:
    """The port on which a service listens by default."""
    settings = load(service, MODELS[service], path=None, flags={}, environ={})
    return parse_listen_address(settings.web.listen_address)[1]


def script() -> list[list[str]]:
    """The commands of the service that writes files."""
    (text,) = services()["files"]["command"]
    return [line.partition(" > ")[0].split()[1:] for line in text.splitlines() if line.startswith("kernelcast ")]


def test_the_files_of_compose_are_written_where_its_services_read_them(tmp_path: Path) -> None:
    site = DEPLOY / "compose" / "site.yaml"
    for command in script():
        places = [
            word.replace("/site.yaml", str(site)).replace("/var/lib/kernelcast", str(tmp_path)) for word in command
        ]
        assert app.run(places) == 0
    config = yaml.safe_load((tmp_path / "prometheus" / "prometheus.yaml").read_text())
    for rule_file in config["rule_files"]:
        assert (tmp_path / "prometheus" / rule_file).exists()
    targets = {name for job in config["scrape_configs"] for one in job["static_configs"] for name in one["targets"]}
    assert {name.partition(":")[0] for name in targets} <= set(services())
    assert services()["prometheus"]["command"][0] == "--config.file=/files/prometheus/prometheus.yaml"
    provider = yaml.safe_load((tmp_path / "grafana/provisioning/dashboards/kernelcast.yaml").read_text())["providers"][
        0
    ]
    assert list((tmp_path / Path(provider["options"]["path"]).relative_to("/files")).glob("*.json"))
    provisioning = services()["grafana"]["environment"]["GF_PATHS_PROVISIONING"]
    assert (tmp_path / Path(provisioning).relative_to("/files") / "datasources").is_dir()


def test_compose_opens_ports_on_this_machine_alone_and_has_no_password() -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    assert "network_mode" not in text
    assert "PASSWORD" not in text
    ports = [port for service in services().values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    grafana = services()["grafana"]["environment"]
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


@pytest.mark.parametrize("name", services())
def test_every_service_of_compose_is_watched_and_has_no_rights(name: str) -> None:
    service = services()[name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    if "build" in service:
        assert service["read_only"] is True
    check = service["healthcheck"]
    if check.get("disable"):
        assert name in ("topics", "simulate", "files"), "it ends, or has no web server"
    else:
        assert check["test"]
    if name in MODELS:
        assert check["test"][1:] == ["kernelcast", "health", f"http://localhost:{port_of(name)}/-/ready"]


def test_the_image_has_labels_a_check_and_a_bill_of_materials() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", text))
    assert labels == {"title", "description", "licenses", "version", "revision", "created", "source"}
    for service in MODELS:
        assert f"http://localhost:{port_of(service)}/-/healthy" in text.partition("HEALTHCHECK")[2]
    assert "core/release/sbom.py > /opt/kernelcast/sbom.cdx.json" in text
    assert "grafana]'" in text, "the image writes dashboards and rules"
    assert "@sha256:" not in text, "digests are written in the CI of a release"


def test_the_images_files_are_in_the_repository() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (DEPLOY.parent / name).exists(), name
    assert re.search(r"^USER \d+", text, re.MULTILINE), "nothing in the image runs as root"


def test_every_way_to_install_creates_topics_with_the_number_of_replicas_that_the_brokers_allow() -> None:
    root = DEPLOY.parent
    files = [root / "README.md", *(root / "docs").rglob("*.md"), *DEPLOY.rglob("*.md"), *DEPLOY.rglob("*.yaml")]
    commands = [line for file in files for line in file.read_text().splitlines() if "topics apply --" in line]

    assert len(commands) > 3
    assert not [line for line in commands if "--replication-factor" in line]
    assert (
        yaml.safe_load((DEPLOY / "helm" / "kernelcast" / "values.yaml").read_text())["topics"]["replicationFactor"] == 0
    )
    assert "--replication-factor" not in (DEPLOY / "kubernetes" / "topics.yaml").read_text()


def test_the_readme_names_the_commands_that_show_it_and_that_test_it() -> None:
    lines = (DEPLOY.parent / "README.md").read_text().splitlines()
    assert [line.split("#")[0].strip() for line in lines if re.match(r"make \w+ +#", line)] == [
        "make demo",
        "make test",
    ]
