"""`kernelcast doctor`: each check with a machine made up for it."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kernelcast.cli.app import run
from kernelcast.cli.doctor import broker, command, gpu, node, software, surroundings
from kernelcast.cli.doctor.result import CheckLevel, CheckResult
from kernelcast.exporter.state import StateFile
from kernelcast.runtime.kafka.admin import TopicState
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.topics import DEVICE, TOPICS

WHOLE = {topic.name: TopicState(topic.name, 12, 3, topic.config) for topic in TOPICS}


class NVMLError(Exception):
    """pynvml's error of this name."""


def nvml(count: int = 1, *, gpm: bool = True, broken: str = "") -> Callable[[str], ModuleType]:
    """An importer that gives a made-up pynvml."""
    module: Any = ModuleType("pynvml")

    def init() -> None:
        if broken:
            raise NVMLError(broken)

    module.NVMLError = NVMLError
    module.nvmlInit = init
    module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: count
    module.nvmlSystemGetDriverVersion = lambda: "580.1"
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetName = lambda _handle: "H200"
    module.nvmlGpmQueryDeviceSupport = lambda _handle: type("Support", (), {"isSupportedDevice": int(gpm)})
    return lambda _name: module


def missing(name: str) -> ModuleType:
    raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def levels(findings: list[CheckResult]) -> list[CheckLevel]:
    return [finding.level for finding in findings]


def test_a_gpu_with_gpm_is_fine() -> None:
    found = list(gpu.check_gpu(nvml()))

    assert levels(found) == [CheckLevel.OK, CheckLevel.OK]
    assert found[0].found == "driver 580.1, 1 GPU"


def test_an_older_gpu_lacks_profiling_rows_only() -> None:
    found = list(gpu.check_gpu(nvml(gpm=False)))

    assert levels(found) == [CheckLevel.OK, CheckLevel.WARN]
    assert "Hopper" in found[1].remedy


def test_no_gpu_is_a_warning_that_names_the_alternatives(tmp_path: Path) -> None:
    (found,) = gpu.check_gpu(nvml(broken="NVML Shared Library Not Found"), driver=tmp_path / "none")

    assert found.level is CheckLevel.WARN
    assert "simulate" in found.remedy


def test_a_driver_without_its_library_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "version").touch()

    (found,) = gpu.check_gpu(nvml(broken="NVML Shared Library Not Found"), driver=tmp_path / "version")

    assert found.level is CheckLevel.FAIL


def test_counters_for_root_only_are_distinguished_from_tracing(tmp_path: Path) -> None:
    parameters = tmp_path / "params"
    parameters.write_text("EnableMSI: 1\nRmProfilingAdminOnly: 1\n")

    cupti, counters = gpu.check_cupti(missing, parameters)

    assert cupti.level is counters.level is CheckLevel.WARN
    assert "NVreg_RestrictProfilingToAdminUsers=0" in counters.remedy


def test_missing_extras_name_what_to_install() -> None:
    found = list(software.check_extras(lambda module: module != "statsmodels"))

    assert [finding.check for finding in found if finding.level is CheckLevel.WARN] == ["extra predictor"]
    assert all(software.EXTRAS)


def test_an_old_python_fails() -> None:
    assert levels(list(software.check_python((3, 10, 1)))) == [CheckLevel.FAIL]


def test_missing_tools_are_warnings() -> None:
    assert levels(list(software.check_tools(lambda _tool: None))) == [CheckLevel.WARN, CheckLevel.WARN]


def test_missing_topics_fail_and_differing_ones_warn() -> None:
    lacking = {name: state for name, state in WHOLE.items() if name != DEVICE.name}
    differing = {**WHOLE, DEVICE.name: TopicState(DEVICE.name, 12, 3, {**DEVICE.config, "cleanup.policy": "compact"})}

    assert levels(list(broker.check_topics(WHOLE))) == [CheckLevel.OK]
    assert levels(list(broker.check_topics(lacking))) == [CheckLevel.FAIL]
    (found,) = broker.check_topics(differing)
    assert (found.level, found.remedy) == (CheckLevel.WARN, "kernelcast topics apply")
    assert "cleanup.policy=compact (should be delete)" in found.found


@pytest.mark.parametrize(
    ("broker_seconds", "level"),
    [(1_000.5, CheckLevel.OK), (1_010.0, CheckLevel.FAIL), (990.0, CheckLevel.FAIL), (None, CheckLevel.WARN)],
)
def test_a_clock_that_is_off_is_found(broker_seconds: float | None, level: CheckLevel) -> None:
    times = iter([1_000.0, 1_001.0])

    assert broker.check_clock(lambda: broker_seconds, local_seconds=lambda: next(times)).level is level


class RefusingProducer:
    """A producer whose message the broker refuses, or does not answer."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error
        self._report: Callable[[KafkaError, Any], None] | None = None

    def produce(self, *_: Any, on_delivery: Callable[[KafkaError, Any], None], **__: Any) -> None:
        self._report = on_delivery

    def flush(self, _seconds: float) -> int:
        if self._report is not None and self._error is not None:
            self._report(self._error, type("Unsent", (), {"timestamp": lambda _self: (0, -1)})())
        return 0 if self._error is not None else 1


@pytest.mark.parametrize(
    ("error", "words"),
    [(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "authorization failed"), (None, "no answer within 10 s")],
)
def test_a_broker_that_takes_no_message_is_not_said_to_stamp_none(
    error: KafkaError | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "connect", lambda *_, **__: RefusingProducer(error))
    found = broker.check_clock(lambda: broker.broker_time_seconds(KafkaSettings()))
    assert found.level is CheckLevel.WARN
    assert words in found.found.lower()
    assert "--no-clock" in found.remedy


def test_a_property_that_librdkafka_refuses_is_a_wrong_setting() -> None:
    (found,) = broker.check_broker(KafkaSettings(properties={"no.such.property": "x"}), probe_clock=True)
    assert (found.level, found.wrong_settings) == (CheckLevel.FAIL, True)
    assert "no.such.property" in found.found


def test_a_driver_that_fails_at_the_end_leaves_the_findings() -> None:
    def shutdown() -> None:
        raise NVMLError("GPU is lost")

    load = nvml()
    load("pynvml").nvmlShutdown = shutdown  # type: ignore[attr-defined]
    assert levels(list(gpu.check_gpu(load))) == [CheckLevel.OK, CheckLevel.OK]


def test_passwords_without_tls_are_warned_of_and_a_broken_file_fails(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users: {p: $2y$10$XYi5Y4lmK.6zWA4xjBUYTOSDJXX3xPAUkRS9qN7wvUEl6kzMcTzhW}\n")
    open_door = list(node.check_web_config(file))
    file.write_text("nonsense: 1\n")

    assert levels([*node.check_web_config(None), *open_door, *node.check_web_config(file)]) == [
        CheckLevel.OK,
        CheckLevel.WARN,
        CheckLevel.FAIL,
    ]


def test_each_finding_is_printed_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends_the_process() -> list[CheckResult]:
        raise SystemExit(139)

    monkeypatch.setattr(gpu, "check_gpu", list)
    monkeypatch.setattr(gpu, "check_cupti", ends_the_process)

    run(["doctor"])

    assert "python: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        "exporter: {intervall_seconds: 5}",
        "exporter: {to_kafka: perhaps}",
        "exporter: {scrape: {urls: [ftp://a]}}",
        "exporter: {nvml_recording: /nowhere/recording.json}",
        "exporter: {kernel_log: on, state_directory: null}",
        "exporter: {counters_file: /nowhere/counters.csv}",
        "kafka: {bootstrap_servers: 'not_a_host:xx'}",
        "kafka: {properties: {sasl.mechanismus: PLAIN}}",
    ],
)
def test_settings_that_the_exporter_refuses_are_refused_in_the_same_words(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text(f"{wrong}\n")

    def refused(*arguments: str) -> str:
        assert run([*arguments, "--config", str(config)]) == 2
        return capsys.readouterr().err

    assert refused("doctor") == refused("exporter", "--check-config")


def test_a_state_directory_that_the_exporter_cannot_use_is_refused_in_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError) as refused:
            StateFile(directory).open()
        (found,) = surroundings.check_directory(
            "state directory",
            directory,
            needed_bytes=0,
            without="",
            setting="exporter.state_directory",
            remedy="name one that can be written with --state.directory",
        )
        assert f"{found.found}; {found.remedy}" == str(refused.value)
        assert found.wrong_settings


def test_an_option_that_the_exporter_refuses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--kafka", "of"]) == 2
    assert capsys.readouterr().err.startswith("kernelcast: --kafka is of; it must be one of 'on' or 'off'")


@pytest.mark.parametrize("way", ["option", "file"])
def test_a_node_without_kafka_is_not_asked_for_one(
    way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def asked(*_arguments: object, **_named: object) -> list[CheckResult]:
        raise AssertionError("Kafka was asked")

    monkeypatch.setattr(broker, "check_broker", asked)
    monkeypatch.setattr(gpu, "check_gpu", list)
    monkeypatch.setattr(gpu, "check_cupti", list)
    monkeypatch.setattr(command, "_check_node", lambda *_, **__: [])
    config = tmp_path / "kernelcast.yaml"
    config.write_text("exporter: {to_kafka: off}\n")

    run(["doctor", *(["--kafka", "off"] if way == "option" else ["--config", str(config)])])

    assert "kafka: is not used" in capsys.readouterr().out
