"""Random schedules of faults with three Kafka nodes and real bridges."""

import pytest
from tests.faults.real_run import run_real
from tests.service.require import binary

pytestmark = pytest.mark.service
SCHEDULES = 3


@pytest.mark.timeout(900)
def test_no_real_schedule_breaks_an_invariant(compiled: None) -> None:
    binary("faketime", "faketime")
    record = run_real(SCHEDULES, seed="1", first=0, say=print, shorten=False)
    assert not record["findings"]
