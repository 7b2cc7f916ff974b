"""`kernelcast demo` as a person meets it first: no Kafka, no GPU, no options."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.service.servers import ServerProcess, stopping, wait_for
from tests.service.stack import KERNELCAST, kernelcast

pytestmark = pytest.mark.service


def processes_of(directory: Path) -> list[str]:
    """Command lines that name this run's folder, without the demo's own."""
    listed = subprocess.run(["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(directory) in line and "ps -ewwo" not in line]


def test_the_demo_shows_the_loop_on_the_embedded_broker_and_leaves_nothing_behind(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    done = kernelcast(
        "demo", "--source", "simulate", "--duration", "25", "--summary", str(summary), "--no-servers",
        "--directory", str(tmp_path / "demo"), timeout_seconds=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(summary.read_text())
    assert result["source"]["label"] == "simulated"
    assert "SIMULATED, not a real GPU" in done.stdout
    assert result["broker"]["kind"] == "embedded"
    assert result["kernels"]["launches"] > 1000
    assert [hint["tunable"] for hint in result["hints"]] == ["block_size"]
    assert "applied" in [outcome["state"] for outcome in result["outcomes"]]
    assert result["dead_letters"] == 0
    assert set(result["processes"].values()) == {0}, result["processes"]
    assert processes_of(tmp_path) == []


def test_kill_minus_nine_of_the_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = ServerProcess(
        "demo", [*KERNELCAST, "demo", "--source", "simulate", "--no-servers", "--directory", str(tmp_path)], tmp_path
    )
    with stopping(demo):
        demo.start()
        wait_for("the demo's services", lambda: len(processes_of(tmp_path)) >= 4, 60)
        demo.kill()
        wait_for("all of them to end", lambda: processes_of(tmp_path) == [], 30)


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
def test_bad_input_gives_an_error_message_and_an_exit_code(arguments: tuple[str, ...], code: int, message: str) -> None:
    done = kernelcast("demo", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
