"""The doctor and servers of a node on loopback."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
from tests.support.dripping_server import dripping

from kernelcast.cli.app import run
from kernelcast.cli.doctor import gpu, node, surroundings
from kernelcast.cli.doctor.result import CheckLevel, CheckResult
from kernelcast.cli.doctor.settings import NodeSettings
from kernelcast.exporter.programs.socket import ProbeSocket
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.wire.errors import ConfigurationError


def levels(findings: list[CheckResult]) -> list[CheckLevel]:
    return [finding.level for finding in findings]


def test_a_tpu_answers_only_while_a_program_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (there,) = surroundings.check_tpu([port], devices=tmp_path)
    (none,) = surroundings.check_tpu([port], devices=tmp_path)
    (tmp_path / "accel0").touch()
    (silent,) = surroundings.check_tpu([port], devices=tmp_path)

    assert levels([there, none, silent]) == [CheckLevel.OK, CheckLevel.OK, CheckLevel.WARN]
    assert f"port {port}" in there.found
    assert "tpu_ports" in silent.remedy


def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_WHOLE_SECONDS", 0.5)
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n") as url:
        begun = time.monotonic()
        (none,) = surroundings.check_dcgm_exporter(url)
        assert time.monotonic() - begun < 3.0
    assert levels([none]) == [CheckLevel.OK]


def deny_writing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer as the system does for a user who may see a directory, and not write to it."""
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: access(path, mode) and (mode == os.F_OK or Path(path) != directory)
    )


def test_the_probes_socket_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "probe.sock"
    absent = list(node.check_socket(path))
    no_folder = list(node.check_socket(tmp_path / "none" / "probe.sock"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        there = list(node.check_socket(path))
    left = list(node.check_socket(path))
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        others = list(node.check_socket(path))
    path.unlink()
    path.touch()
    file = list(node.check_socket(path))

    assert levels([*absent, *no_folder, *there, *left, *others, *file]) == [
        CheckLevel.WARN,
        CheckLevel.WARN,
        CheckLevel.OK,
        CheckLevel.WARN,
        CheckLevel.FAIL,
        CheckLevel.FAIL,
    ]
    assert left[0].found == f"{path} was left behind by an exporter that has ended: nobody listens"


@pytest.mark.parametrize("left", [False, True])
def test_a_socket_that_the_exporter_could_not_make_is_refused_in_the_same_words(
    *, left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "probe.sock"
    if left:
        path.parent.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ended:
            ended.bind(str(path))
    closed = path.parent if left else tmp_path

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(closed))

    monkeypatch.setattr(Path, "mkdir", refuse)
    deny_writing(closed, monkeypatch)
    with pytest.raises(ConfigurationError) as refused:
        ProbeSocket(path)
    (found,) = node.check_socket(path, starts=True)
    (elsewhere,) = node.check_socket(path)

    assert f"{found.found}; {found.remedy}" == str(refused.value)
    assert (found.level, found.wrong_settings, elsewhere.level) == (CheckLevel.FAIL, True, CheckLevel.WARN)


@pytest.mark.parametrize(("listens", "code"), [(False, 2), (True, 0)])
def test_the_default_state_directory_fails_where_the_exporter_would_end_and_not_where_one_runs(
    *, listens: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    default = NodeSettings().state_directory
    assert default is not None
    for directory in (default, *default.parents):
        deny_writing(directory, monkeypatch)
    monkeypatch.setattr(gpu, "check_gpu", list)
    monkeypatch.setattr(gpu, "check_cupti", list)
    monkeypatch.setattr(node, "check_listen_address", lambda *_, **__: [])
    path = tmp_path / "probe.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        if listens:
            listening.listen()

        assert run(["doctor", "--kafka", "off", "--probe.socket", str(path)]) == code

    refusal = f"exporter.state_directory {default} cannot be used: Permission denied"
    assert (refusal in capsys.readouterr().out) is not listens


def test_a_port_that_the_exporter_could_not_bind_fails_unless_an_exporter_runs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        (taken,) = node.check_listen_address(address, starts=True)
        (running,) = node.check_listen_address(address, starts=False)
    (free,) = node.check_listen_address(address, starts=True)

    assert levels([taken, running, free]) == [CheckLevel.FAIL, CheckLevel.OK, CheckLevel.OK]
    assert taken.found.startswith(f"web.listen_address is {address}; it cannot be bound: Address already in use")
    assert (taken.remedy, taken.wrong_settings) == ("choose another with --web.listen-address", True)


def test_the_doctor_reads_the_exporters_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text(
        f"exporter: {{state_directory: {tmp_path}, socket_path: {tmp_path}/probe.sock, "
        "web: {listen_address: '127.0.0.1:0'}}\n"
    )
    with EmbeddedBroker() as embedded:
        arguments = ["--kafka.bootstrap-servers", embedded.bootstrap_servers, "--config", str(config)]
        code = run(["doctor", "--json", "--no-clock", *arguments])

    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert code == 0
    assert str(tmp_path) in findings["spool"]["found"]
    assert str(tmp_path) in findings["probe socket"]["found"]
