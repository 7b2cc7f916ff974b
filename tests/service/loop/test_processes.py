"""Several processes of one program on one GPU are one series that never falls, whatever dies in between."""

import itertools
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.service import program
from tests.service.conftest import Broker
from tests.service.grafana.panels_without import present_metrics, still_shown
from tests.service.servers import PrometheusServer, ServerProcess, wait_for
from tests.service.stack import Stack
from tests.support.service.programs import LAUNCHES, SCRIPT, topics

pytestmark = pytest.mark.service

SECONDS = "cuda_kernel_duration_seconds_sum"
SOON_WITHDRAWN = {"ttl_seconds": 20.0, "ttl_floor_seconds": 10.0}


def run_program(stack: Stack, name: str, launches: int, seconds: float, hold: Path | None = None) -> ServerProcess:
    arguments = [name, "void work<float>(int)", str(launches), str(seconds), *([str(hold)] if hold else [])]
    return stack.background(f"program-{time.monotonic_ns()}", sys.executable, SCRIPT, *arguments)


def falls(prometheus: PrometheusServer, selector: str) -> list[tuple[dict[str, str], float, float]]:
    """Every place where a counter in Prometheus went down."""
    return [
        (labels, before, after)
        for labels, samples in prometheus.samples(selector)
        for (_, before), (_, after) in itertools.pairwise(samples)
        if after < before
    ]


def exact_increase(prometheus: PrometheusServer, selector: str) -> float:
    """`increase()` over exactly the time from the first sample to the last, where it extrapolates nothing."""
    ((_, samples),) = prometheus.samples(selector)
    first, last = samples[0][0], samples[-1][0]
    value = prometheus.scalar(f"increase({selector}[{round((last - first) * 1000)}ms])", last)
    assert value is not None
    return value


def test_a_process_that_ends_and_restarts_beside_another_loses_and_doubles_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    topics(broker)
    with Stack(tmp_path, broker.bootstrap_servers) as stack:
        stack.service("bridge")
        stack.service("exporter")
        prometheus = stack.prometheus(rules=False)
        hold = tmp_path / "hold"
        first = run_program(stack, "train", 10, 0.2, hold)
        wait_for("a first value in Prometheus", lambda: prometheus.scalar(f"sum({LAUNCHES})") == 10)
        base = prometheus.scalar(f"sum({SECONDS})")
        second = run_program(stack, "train", 700, 2)
        wait_for("the second process's end", lambda: second.poll() is not None)
        third = run_program(stack, "train", 1300, 2)
        wait_for("its restart's end", lambda: third.poll() is not None)
        wait_for("all of it in Prometheus", lambda: prometheus.scalar(f"sum({LAUNCHES})") == 2010)
        hold.touch()
        wait_for("the first process's end", lambda: first.poll() is not None)
        time.sleep(3)  # whatever would come too late or twice has now come
        assert prometheus.scalar(f"sum({LAUNCHES})") == 2010
        assert falls(prometheus, LAUNCHES) == []
        assert exact_increase(prometheus, LAUNCHES) == pytest.approx(2000, abs=1e-6)
        expected_seconds = sum(program.durations_ns(700) + program.durations_ns(1300)) / 1e9
        assert base == pytest.approx(sum(program.durations_ns(10)) / 1e9, rel=1e-9)
        assert exact_increase(prometheus, SECONDS) == pytest.approx(expected_seconds, rel=1e-9)


def test_kill_minus_nine_of_every_service_loses_nothing_and_no_counter_falls(kafka: Broker, tmp_path: Path) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers, {"bridge": SOON_WITHDRAWN}) as stack:
        services = {name: stack.service(name) for name in ("bridge", "exporter", "predictor")}
        prometheus = stack.prometheus()
        hold = tmp_path / "hold"
        ended = run_program(stack, "train", 300, 1)
        running = run_program(stack, "train", 6000, 24, hold)
        wait_for("the short process's end", lambda: ended.poll() is not None)
        wait_for("its totals", lambda: stack.total(LAUNCHES) > 300)
        for name in ("exporter", "bridge", "predictor"):
            services[name].kill()
            time.sleep(1.5)
            stack.start(services[name])
            time.sleep(2)
        wait_for("all of it in Prometheus", lambda: prometheus.scalar(f"sum({LAUNCHES})") == 6300)
        hold.touch()
        wait_for("the program's end", lambda: running.poll() is not None)
        time.sleep(3)
        assert prometheus.scalar(f"sum({LAUNCHES})") == 6300
        assert falls(prometheus, '{__name__=~"cuda_.+"}') == []
        assert falls(prometheus, '{__name__=~"kernelcast_(hint|probe)_.+_total"}') == []
        expected = sum(program.durations_ns(300) + program.durations_ns(6000)) / 1e9
        assert prometheus.scalar(f"sum({SECONDS})") == pytest.approx(expected, rel=1e-9)
        assert running.poll() == 0
        for name, shown in shown_without(prometheus, services):
            assert shown == {}, f"panels that say nothing about their age while the {name} is stopped"


def is_empty(prometheus: PrometheusServer, query: str) -> bool:
    return prometheus.scalar(query) is None


def shown_without(
    prometheus: PrometheusServer, services: dict[str, ServerProcess]
) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Kill the exporter, then the bridge too; yields the panels that show something of theirs all the same."""
    before = present_metrics(prometheus)
    assert before >= {LAUNCHES, "kernelcast_exporter_ticks_total", "kernelcast_bridge_lines"}
    for name, counter in (("exporter", LAUNCHES), ("bridge", "kernelcast_bridge_points_total")):
        services[name].kill()
        wait_for(f"the end of {counter}", partial(is_empty, prometheus, f"sum(rate({counter}[20s]))"))
        yield name, still_shown(prometheus, before, name)
        before = present_metrics(prometheus)


def test_the_services_stop_cleanly_on_sigterm(kafka: Broker, tmp_path: Path) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        for server in [stack.service(name) for name in ("bridge", "exporter", "predictor")]:
            assert server.stop() == 0, server.tail()
