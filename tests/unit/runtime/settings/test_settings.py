"""Settings: accepted and refused values, error messages, priority of sources."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from kernelcast.runtime.settings.service import KafkaSettings, Remedy, ServiceSettings, WebSettings, load
from kernelcast.runtime.settings.yaml_file import read_yaml
from kernelcast.wire.errors import ConfigurationError

CONFIGS = Path(__file__).parent / "configs"
BAD = sorted(path.name.removesuffix(".bad.yaml") for path in CONFIGS.glob("*.bad.yaml"))


class ExampleSettings(ServiceSettings):
    web: WebSettings = WebSettings(listen_address=":19401")
    interval_seconds: Annotated[float, Field(ge=0.1), Remedy("raise it, or measure kernels with the probe")] = 1.0
    shards: Annotated[int, Field(gt=0)] = 1
    topics: tuple[str, ...] = ()
    state_directory: Path | None = Path("/var/lib/example")


def read(
    path: Path | None = None, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> ExampleSettings:
    return load("bridge", ExampleSettings, path=path, flags=flags or {}, environ=environ or {})


def test_a_minimal_file_leaves_the_defaults() -> None:
    settings = read(CONFIGS / "minimal.good.yaml")

    assert settings == ExampleSettings()


def test_empty_sections_leave_the_defaults() -> None:
    assert read(CONFIGS / "empty-sections.good.yaml") == ExampleSettings()


def test_null_is_a_value_where_a_setting_may_be_null_and_leaves_the_default_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text("bridge: {state_directory: null, interval_seconds: null, topics: }")

    assert read(file) == ExampleSettings(state_directory=None)


def test_one_file_serves_all_daemons_and_a_section_overrides_shared_settings() -> None:
    settings = read(CONFIGS / "whole-site.good.yaml")

    assert settings.kafka.bootstrap_servers == "mirror:9092"
    assert settings.kafka.properties["sasl.password"] == "hunter2"
    assert settings.kafka.properties["socket.keepalive.enable"] == "true"
    assert settings.log.format == "json"
    assert settings.interval_seconds == 5
    assert settings.topics == ("otlp_metrics",)


def test_setting_one_key_of_a_section_keeps_the_defaults_of_the_others() -> None:
    web = read(CONFIGS / "whole-site.good.yaml").web

    assert web.listen_address == ":19401"
    assert web.config_file == Path("web.yml")


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_is_refused_with_path_value_limit_and_remedy(name: str) -> None:
    path = CONFIGS / f"{name}.bad.yaml"
    expected = (CONFIGS / f"{name}.expected").read_text().rstrip("\n").replace("{path}", str(path))

    with pytest.raises(ConfigurationError) as caught:
        read(path)

    assert str(caught.value) == expected


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text("kafka: {bootstrap_servers: file:1}\nbridge: {interval_seconds: 2, shards: 2, topics: [file]}\n")
    environ = {
        "KERNELCAST_KAFKA__BOOTSTRAP_SERVERS": "environment:1",
        "KERNELCAST_BRIDGE__SHARDS": "3",
        "KERNELCAST_BRIDGE__TOPICS": "one, two",
        "KERNELCAST_PROBE_SOCKET": "/not/a/setting",
    }

    settings = read(file, {"shards": "4", "web.listen_address": None, "web.config_file": "web.yml"}, environ)

    assert settings.interval_seconds == 2
    assert settings.kafka.bootstrap_servers == "environment:1"
    assert settings.topics == ("one", "two")
    assert settings.shards == 4
    assert settings.web == WebSettings(listen_address=":19401", config_file=Path("web.yml"))


def test_an_error_names_the_environment_variable_that_caused_it() -> None:
    with pytest.raises(ConfigurationError, match=r"bridge\.shards is x \(KERNELCAST_BRIDGE__SHARDS\); .* whole number"):
        read(environ={"KERNELCAST_BRIDGE__SHARDS": "x"})


def test_an_unknown_environment_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"bridge\.shard is not a setting .*did you mean shards"):
        read(environ={"KERNELCAST_BRIDGE__SHARD": "1"})


def test_an_error_names_the_option() -> None:
    with pytest.raises(ConfigurationError, match=r"^--web\.listen-address is 1; "):
        read(flags={"web.listen_address": "1"})


def test_a_variable_of_an_unknown_section_is_refused_and_one_of_another_daemon_is_not() -> None:
    others = {"KERNELCAST_EXPORTER__INTERVAL_SECONDS": "3", "KERNELCAST_CUPTI": "1", "KERNELCAST_BRIDGE_PORT": "tcp"}
    assert read(environ=others) == ExampleSettings()
    with pytest.raises(ConfigurationError, match=r"exportr is not a section \(KERNELCAST_EXPORTR__X\).*exporter"):
        read(environ={"KERNELCAST_EXPORTR__X": "3"})


def test_secrets_of_librdkafka_can_come_from_the_environment() -> None:
    settings = read(environ={"KERNELCAST_KAFKA__PROPERTIES__SASL_PASSWORD": "hunter2"})

    assert settings.kafka.properties == {"sasl.password": "hunter2"}


@pytest.mark.parametrize(
    "name",
    ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret"],
)
def test_secrets_are_never_printed(name: str) -> None:
    settings = ExampleSettings(kafka=KafkaSettings(properties={name: "hunter2", "client.rack": "a"}))

    for printed in (repr(settings), str(settings), f"{settings.kafka!r}"):
        assert "hunter2" not in printed
        assert "client.rack" in printed


def test_nested_librdkafka_properties_mean_their_dotted_names(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text("kafka: {properties: {sasl: {password: hunter2}}}\n")

    settings = read(file)

    assert settings.kafka.properties == {"sasl.password": "hunter2"}
    assert "hunter2" not in repr(settings)


def test_a_missing_file_is_refused_with_the_flag_that_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"/nowhere\.yaml cannot be read: .*; give another --config"):
        read(Path("/nowhere.yaml"))


@pytest.mark.parametrize(
    ("address", "good"),
    [(":1", True), ("[::1]:1", True), ("a:0", True), ("::1:1", False), ("a:70000", False), ("a:", False)],
)
def test_listen_addresses(address: str, good: bool) -> None:  # noqa: FBT001  parametrised
    if good:
        assert read(flags={"web.listen_address": address}).web.listen_address == address
    else:
        with pytest.raises(ConfigurationError):
            read(flags={"web.listen_address": address})


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "bridge: {a: 2026-13-01}",
        "bridge: {a: 0x_}",
        "bridge: {a: !!int x}",
        "bridge: {? [a] : 1}",
        "bridge: " + "[" * 3000,
        "bridge: &a {interval_seconds: *a}",
        "bridge: &a [*a]",
    ],
)
def test_what_no_yaml_can_hold_is_an_error_of_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernelcast.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"kernelcast\.yaml (is not valid YAML|has more than)"):
        read(path)


def test_a_property_of_kafka_without_a_value_is_not_set() -> None:
    properties = {"ssl.ca.location": None, "sasl": {"username": "", "password": None}}
    assert KafkaSettings.model_validate({"properties": properties}).properties == {"sasl.username": ""}


@pytest.mark.parametrize("password", ["*hunter2", "!hunter2", "!hunter2!x", "!!hunter2 x", "!!bool hunter2"])
def test_a_password_that_yaml_reads_as_something_else_is_not_printed(tmp_path: Path, password: str) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text(f"kafka:\n  properties:\n    sasl.password: {password}\n")

    with pytest.raises(ConfigurationError, match=r"put a value that begins with \* or ! in quotes") as caught:
        read_yaml(file, option="--config")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("password", ["0123", "1_000", "2026-11-26", "yes", "1.5"])
@pytest.mark.parametrize("name", ["sasl.password", "sasl.username", "ssl.key.password"])
def test_a_password_that_yaml_reads_as_a_number_must_be_in_quotes(tmp_path: Path, name: str, password: str) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text(f"kafka:\n  properties:\n    {name}: {password}\n    socket.timeout.ms: 7000\n")
    quoted = tmp_path / "quoted.yaml"
    quoted.write_text(f"kafka: {{properties: {{{name}: '{password}', socket.timeout.ms: 7000}}}}\n")

    with pytest.raises(ConfigurationError, match=f"{name}.*in quotes") as caught:
        read(file)
    assert read(quoted).kafka.properties == {name: password, "socket.timeout.ms": "7000"}
    assert name == "sasl.username" or password not in str(caught.value)
