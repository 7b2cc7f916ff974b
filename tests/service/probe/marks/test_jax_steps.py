"""Steps and compilations of JAX and Keras programs, whose code knows nothing of the probe's marks."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.service.require import REPOSITORY
from tests.support.service.packages import FRAMEWORKS, environment, python_with
from tests.support.service.probe_node import Node

from kernelcast.probe.command import PRELOAD
from kernelcast.wire.catalogue import kernel

pytestmark = pytest.mark.service

HERE = Path(__file__).parent


def printed(name: str, *arguments: str, **environ: str) -> dict[str, Any]:
    """Run a program of this folder; returns what its last line prints as JSON."""
    command = [str(python_with(FRAMEWORKS)), str(HERE / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**environ), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    return printed("jax_loops.py")


@pytest.fixture(scope="module", params=["jax", "torch"])
def keras(request: pytest.FixtureRequest) -> dict[str, Any]:
    return printed("keras_loops.py", KERAS_BACKEND=request.param)


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "with_data",
        "until_the_data_end",
        "evaluated",
        "within_an_epoch",
        "compiled_again",
        "compiled_within_a_trace",
        "tuned",
        "explicit",
    ],
)
def test_every_annotated_step_is_counted_once(loops: dict[str, Any], name: str) -> None:
    assert loops[name]["steps"] == loops[name]["made"]


def test_an_annotated_step_has_the_phases_that_are_known(loops: dict[str, Any]) -> None:
    assert loops["with_data"]["phases"] == ["data", "other"]
    assert loops["evaluated"]["phases"] == ["evaluation", "other"]
    assert loops["compiled_again"]["phases"] == ["compilation", "other"]


def test_each_compilation_is_counted_and_no_longer_than_it_takes(loops: dict[str, Any]) -> None:
    again, nested = loops["compiled_again"], loops["compiled_within_a_trace"]
    assert again["compilations"] == 4
    assert nested["compilations"] > 1
    for found in (again, nested):
        assert 0.5 * found["took_ns"] < found["compile_ns"] <= found["took_ns"]
    assert loops["plain"]["compilations"] == loops["plain"]["compile_ns"] == 0


def test_calls_of_a_compiled_function_make_no_event_and_run_nothing_of_ours(loops: dict[str, Any]) -> None:
    cached = loops["cached"]
    assert (cached["told"], cached["ours"]) == (0, 0)
    assert cached["told_compiled"] > 0
    assert cached["ours_compiled"] > 0


def test_types_errors_traces_and_results_of_jax_are_those_without_the_probe(tmp_path: Path) -> None:
    without, found = (printed("unchanged_jax.py", switch, str(tmp_path / switch)) for switch in ("off", "on"))
    assert found == without
    assert all(found["errors"])
    assert found["traced"]


def test_every_training_batch_of_keras_is_counted_once(keras: dict[str, Any]) -> None:
    assert {name: found["steps"] for name, found in keras.items()} == {
        name: found["made"] for name, found in keras.items()
    }
    assert sum(found["made"] for found in keras.values()) > 300


def test_evaluation_of_keras_is_a_phase_and_no_step(keras: dict[str, Any]) -> None:
    with_evaluation = {name for name, found in keras.items() if "evaluation" in found["phases"]}
    assert with_evaluation == {"validation_data", "an_error_in_a_callback"}


def test_a_keras_program_that_knows_nothing_of_the_probe_reports_steps_and_compilations(tmp_path: Path) -> None:
    node = Node(tmp_path / "probe.sock")
    switched = environment(KERNELCAST_PROBE="1", KERNELCAST_SOCKET=str(node.path), KERAS_BACKEND="jax")
    switched["PYTHONPATH"] = f"{PRELOAD}{os.pathsep}{switched['PYTHONPATH']}"
    command = [str(python_with(FRAMEWORKS)), str(REPOSITORY / "examples" / "keras_fit.py"), "--epochs", "2"]
    subprocess.run(command, capture_output=True, env=switched, check=True)
    assert node.ended() == 1
    found: dict[str, float] = {}
    for group in node.aggregator.samples(time.time_ns()):
        for sample in group.samples:
            assert dict(sample.attributes)["source"] == "cpu"
            if isinstance(sample.value, int | float):
                found[sample.metric.prometheus_name] = found.get(sample.metric.prometheus_name, 0) + sample.value
    node.server.close()
    assert found[kernel.STEPS.prometheus_name] == 96
    assert found[kernel.COMPILATIONS.prometheus_name] > 0
    assert 0 < found[kernel.COMPILATION_SECONDS.prometheus_name] < 60


def test_the_marks_of_an_annotation_take_ten_microseconds_at_most() -> None:
    assert 0 < printed("jax_stopwatch.py")["step"] <= 10_000
