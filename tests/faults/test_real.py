"""Random schedules of faults with three Kafka nodes and real processes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from tests.faults.model.operations import Schedule
from tests.faults.model.world import Operation, Setting
from tests.faults.real.operations import drawn
from tests.faults.real.run import Runner, run_together, runner
from tests.faults.record import Record
from tests.service.require import binary

pytestmark = [pytest.mark.service, pytest.mark.nightly]
NAMES: Final = ("1/0", "1/1")
"""Drawn from the operations that the model has, too: a group whose bridges are rolled and which gets messages again,
and shares of which one is suspended while producers fall silent and have twins. `make nightly` runs these and 18
others; leaders that are lost and producers that are restarted are in `tests/service/bridge/test_bridge_faults.py`."""
EXPORTER: Final = Schedule(
    Setting("group", 2, 2, 2),
    (
        Operation("disk_full"),
        Operation("program"),
        Operation("wait", 0, 2),
        Operation("web_wrong", 1, 0),
        Operation("exporter_kill"),
        Operation("wait", 0, 4),
        Operation("web_right", 1),
        Operation("bridge_clock", 0, 2),
        Operation("wait", 0, 2),
    ),
)
"""The others: those of the exporter and of the web configuration."""
REPLICAS: Final = Setting("replica", 2, 2, 1)
WRONG_FILE: Final = Schedule(REPLICAS, (Operation("web_wrong", 1, 0), Operation("wait", 0, 1)))
DEFECTS: Final = {
    "handshakes_hang": (WRONG_FILE, "health is not answered"),
    "the_door_is_open": (WRONG_FILE, "health has the wrong status"),
    "ready_at_once": (Schedule(REPLICAS, ()), "ready before it has caught up"),
}
"""Each with a schedule, and the invariant that finds it."""


@pytest.fixture(scope="module")
def running(compiled: None) -> Iterator[Runner]:
    binary("cc", "gcc")
    with runner(print) as made:
        yield made


@pytest.mark.timeout(900)
def test_no_real_schedule_breaks_an_invariant(running: Runner) -> None:
    named = [(name, drawn(name, more=False)) for name in NAMES]
    results = run_together(running, [*named, ("exporter", EXPORTER)], at_once=len(NAMES) + 1, record=Record(None, ""))
    assert not [(result.name, result.kind, result.detail) for result in results if result.kind]


@pytest.mark.timeout(300)
def test_a_defect_that_is_put_back_in_a_process_is_found(running: Runner) -> None:
    with ThreadPoolExecutor(len(DEFECTS)) as pool:
        found = pool.map(lambda name: running.with_defect(name).run(DEFECTS[name][0])[0], DEFECTS)
    assert dict(zip(DEFECTS, found, strict=True)) == {name: kind for name, (_, kind) in DEFECTS.items()}
