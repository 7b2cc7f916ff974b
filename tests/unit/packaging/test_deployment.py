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


@pytest.mark.parametrize("service", MODELS)
def test_the_service_takes_the_example_settings(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD, "secret")
    code = app.run([service, "--check-config", "--config", str(CONFIG)])
    assert (code, *capsys.readouterr()) == (0, "configuration is valid\n", "")


@pytest.mark.parametrize(("service", "model"), MODELS.items())
def test_the_example_names_every_setting_and_shows_its_default(service: str, model: type[ServiceSettings]) -> None:
    content = CONFIG.read_text()
    shown = set(re.findall(r"(?:^|[{,])\s*(?:# )?(\w+):", content, re.MULTILINE))
    assert set(keys(model)) - shown == set()
    given = load(service, model, path=CONFIG, flags={}, environ={})
    defaults = load(service, model, path=None, flags={}, environ={})
    assert given.model_dump(exclude={"kafka"}) == defaults.model_dump(exclude={"kafka"})


@pytest.mark.parametrize(("service", "model"), MODELS.items())
def test_every_service_has_a_user_of_its_own_and_no_password(service: str, model: type[ServiceSettings]) -> None:
    kafka: KafkaSettings = load(service, model, path=CONFIG, flags={}, environ={}).kafka
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


@pytest.mark.parametrize(("service", "command"), [("bridge", "compile"), ("predictor", "compile decoder")])
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
    assert ["".join(command) for command in commands] == ["compile", "USER", "compile --check"]


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
    commands = {tuple(service["command"]) for service in services().values() if "build" in service}
    assert {command[0] for command in commands} >= {"bridge", "exporter", "predictor", "simulate", "topics"}
    for command in commands:
        parsed(*command)


def test_the_images_files_are_in_the_repository() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (DEPLOY.parent / name).exists(), name
    assert re.search(r"^USER \d+", text, re.MULTILINE), "nothing in the image runs as root"
