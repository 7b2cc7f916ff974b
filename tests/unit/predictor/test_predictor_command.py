"""The command `kernelcast predictor`: what it checks before it starts, and its first line."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.runtime import daemon_commands
from tests.support.runtime.daemon_commands import logs_left_alone

from kernelcast.predictor import command


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    with logs_left_alone():
        yield


run = partial(daemon_commands.run, command.predictor)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), ("\n", "it is empty"), ("secret", "")]
)
@pytest.mark.parametrize("setting", ["bearer_token_file: {file}", "user: ann, password_file: {file}"])
def test_a_check_of_the_settings_reads_the_credentials(
    setting: str, content: str | None, reason: str, tmp_path: Path
) -> None:
    file, config = tmp_path / "secret", tmp_path / "kernelcast.yaml"
    if content is not None:
        file.write_text(content)
    access = setting.format(file=file)
    config.write_text(f"predictor: {{prometheus: {{without_kafka: true, url: 'http://p:9090', {access}}}}}")
    result = run("--config", str(config), "--check-config")
    assert result.exit_code == (2 if reason else 0)
    assert reason in result.stderr
    assert "Errno" not in result.stderr


def test_a_check_of_the_settings_reads_the_racks(tmp_path: Path) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text(f"predictor: {{alarms: {{rack_file: {tmp_path}/racks}}}}")
    result = run("--config", str(config), "--check-config")
    assert result.exit_code == 2
    assert "racks cannot be read: No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        ((), "Kafka at localhost:9092; a site without Kafka gives --prometheus URL"),
        (("--prometheus", "http://ann:hidden@p:9090"), "Prometheus at http://p:9090"),
    ],
)
def test_the_first_line_comes_before_anything_is_compiled(
    arguments: tuple[str, ...], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_for_long(_settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_compile", compile_for_long)
    with capture_logs() as lines:
        run(*arguments)
    assert [line["reads"] for line in lines] == [source]


def test_settings_that_contradict_each_other_are_named_without_all_others(tmp_path: Path) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text("predictor: {prometheus: {without_kafka: true}}")
    result = run("--config", str(config), "--check-config")
    assert result.exit_code == 2
    assert "predictor.prometheus: without_kafka needs url, the address of a Prometheus" in result.stderr
