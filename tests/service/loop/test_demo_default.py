"""`kernelcast demo` as a person meets it first: no Kafka, no GPU, no options."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.service.servers import ServerProcess, answers, get, stopping, wait_for
from tests.service.stack import KERNELCAST, kernelcast

from kernelcast.cli.app import run
from kernelcast.runtime.kafka import admin

pytestmark = pytest.mark.service


def processes_of(directory: Path) -> list[str]:
    """Command lines that name this run's folder, without the demo's own."""
    listed = subprocess.run(["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(directory) in line and "ps -ewwo" not in line]


def test_the_demo_shows_the_loop_on_the_embedded_broker_and_leaves_nothing_behind(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    command = (
        *("demo", "--source", "simulate", "--duration", "25", "--summary", str(summary), "--no-servers"),
        *("--directory", str(tmp_path / "demo")),
    )
    demo = ServerProcess("output", [*KERNELCAST, *command], tmp_path)
    with stopping(demo):
        demo.start()
        first = wait_for("the first line", lambda: demo.tail(100_000).partition("\n")[0])
        assert first.startswith("In a browser, as soon as the services run: http://127.0.0.1:")
        bridge = first.rpartition("http://")[2].partition("/")[0]
        first_page_answers(bridge)
        top_answers(bridge)
        assert wait_for("the demo's end", lambda: demo.poll() is not None, 180)
        assert demo.poll() == 0, demo.tail()
    result = json.loads(summary.read_text())
    assert result["source"]["label"] == "simulated"
    assert "SIMULATED, not a real GPU" in demo.tail(100_000)
    assert result["broker"]["kind"] == "embedded"
    assert result["kernels"]["launches"] > 1000
    assert [hint["tunable"] for hint in result["hints"]] == ["block_size"]
    assert "applied" in [outcome["state"] for outcome in result["outcomes"]]
    assert result["dead_letters"] == 0
    assert set(result["processes"].values()) == {0}, result["processes"]
    assert processes_of(tmp_path) == []


def body(url: str) -> str:
    """The body at a URL; empty while there is no answer."""
    return get(url) if answers(url) else ""


def first_page_answers(bridge: str) -> None:
    """The bridge's first page has GPUs, programs and kernels, without a Prometheus."""
    url = f"http://{bridge}/"
    words = ("sim-node-0 / 3", "sim-train-0", "gemm_tensorop_kernel", "launches/s", "not a GPU here and now")
    text = wait_for("the figures", lambda: page if all(word in (page := body(url)) for word in words) else "", 150)
    assert "<script" not in text


def top_answers(bridge: str) -> None:
    """`kernelcast top` shows the same GPUs, and rates of kernels."""
    done = kernelcast("top", bridge, "--once", "--json", "--interval", "5")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["gpus"]) == 4
    assert document["sources"] == ["simulated"]
    assert max(one["launches_per_second"] for one in document["kernels"]) > 1
    assert document["alerts"] is None
    assert document["alerts_unknown"]


def test_kill_minus_nine_of_the_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = ServerProcess(
        "demo", [*KERNELCAST, "demo", "--source", "simulate", "--no-servers", "--directory", str(tmp_path)], tmp_path
    )
    with stopping(demo):
        demo.start()
        wait_for("the demo's services", lambda: len(processes_of(tmp_path)) >= 4)
        demo.kill()
        wait_for("all of them to end", lambda: processes_of(tmp_path) == [])
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--source", "kineto:/nowhere.json"), 2, "there is no such file"),
        (("--source", "gpu"), 2, "--source is 'gpu'"),
        (("--source", "nvml:x"), 2, "takes no path"),
        (("--duration", "0"), 2, "must be above 0"),
        (("--nonsense",), 2, "No such option"),
        (("--source", "simulate", "--broker", "127.0.0.1:1", "--duration", "1"), 2, "Connection refused; start Kafka"),
    ],
)
def test_bad_input_gives_an_error_message_and_an_exit_code(
    arguments: tuple[str, ...],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_SECONDS", 2.0)
    assert run(["demo", *arguments]) == code
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
