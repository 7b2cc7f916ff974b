"""Records whose times CUPTI's own clock contradicts: they count, but are not timed, and spoil nothing after them."""

import pytest
from tests.service.probe.cupti.double import Double
from tests.service.probe.cupti.records import START_NS, Packer

from kernelcast.probe.cupti.native import ActivityDecoder, Drain

SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
HOUR_NS = 3_600 * SECOND_NS

WILD = [
    pytest.param(2**62, 2**62 + 5, id="far in the future"),
    pytest.param(2**64 - 9, 2**64 - 3, id="at the end of 64 bits"),
    pytest.param(START_NS + 120 * SECOND_NS, START_NS + 121 * SECOND_NS, id="two minutes ahead"),
    pytest.param(START_NS, START_NS + 200 * SECOND_NS, id="ends minutes ahead"),
    pytest.param(7, 9, id="before the process"),
    pytest.param(START_NS - HOUR_NS, START_NS + MILLISECOND_NS, id="began an hour before the process"),
    pytest.param(START_NS + 9, START_NS + 3, id="ends before its start"),
]


def drained(decoder: ActivityDecoder, now_ns: int, *, final: bool = False) -> Drain:
    assert decoder.settle(5_000)
    return decoder.drain(now_ns, final=final)


@pytest.mark.parametrize(("start_ns", "end_ns"), WILD)
@pytest.mark.parametrize("drains_before", [0, 1])
def test_a_record_with_an_impossible_time_is_counted_untimed_and_the_device_continues(
    start_ns: int, end_ns: int, drains_before: int, decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder, now_ns=START_NS)
    now_ns = START_NS + drains_before * SECOND_NS
    for _ in range(drains_before):
        drained(decoder, now_ns)
    busy = [packer.kernel("k", now_ns + at * 10**7, now_ns + at * 10**7 + 5 * MILLISECOND_NS) for at in range(100)]
    double.bring(
        [
            *busy[:50],
            packer.kernel("wild", start_ns, end_ns, queued_ns=max(start_ns - 1, 1)),
            packer.copy(1, 64, start_ns, end_ns),
            packer.fill(32, start_ns, end_ns),
            packer.sync(3, start_ns, end_ns),
            *busy[50:],
        ]
    )
    drain = drained(decoder, now_ns + SECOND_NS, final=True)
    kernels = {drain.names.get(row.name): row for row in drain.kernels}
    (device,) = drain.devices
    assert device.state_ns == (100 * 5 * MILLISECOND_NS, 0, 0, 0, 99 * 5 * MILLISECOND_NS, 0)
    assert (device.late, drain.counts.untimed) == (0, 4)
    assert (kernels["wild"].launches, kernels["wild"].durations.count, kernels["wild"].queue_delays) == (1, 0, 0)
    assert (device.copies[1][2], device.memsets, device.syncs[3]) == ((1, 64, 0), (1, 32, 0), (1, 0, 0))


def test_a_time_within_a_minute_of_the_clock_is_believed(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, now_ns=START_NS)
    double.bring([packer.kernel("k", START_NS - 59 * SECOND_NS, START_NS + 59 * SECOND_NS)])
    drain = drained(decoder, START_NS, final=True)
    assert (drain.counts.untimed, drain.devices[0].state_ns[0]) == (0, 118 * SECOND_NS)


def test_without_cuptis_clock_every_time_is_believed(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    double.bring([packer.kernel("k", 7, 9), packer.kernel("k", START_NS, START_NS + 2)])
    assert drained(decoder, 0, final=True).counts.untimed == 0


def test_a_queueing_time_before_the_process_is_no_delay(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, now_ns=START_NS)
    double.bring([packer.kernel("k", START_NS, START_NS + 5, queued_ns=START_NS - HOUR_NS)])
    (row,) = drained(decoder, START_NS, final=True).kernels
    assert (row.durations.count, row.queue_delays, row.queue_delay_ns) == (1, 0, 0)


def test_a_clock_that_is_set_back_by_an_hour_costs_no_time_of_the_device(
    decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder, now_ns=START_NS)
    double.bring([packer.kernel("k", START_NS, START_NS + 100)])
    before = drained(decoder, START_NS + 3 * SECOND_NS)
    back_ns = START_NS + 4 * SECOND_NS - HOUR_NS
    drained(decoder, back_ns)
    double.bring([packer.kernel("k", back_ns + SECOND_NS, back_ns + SECOND_NS + 300)])
    after = drained(decoder, back_ns + 2 * SECOND_NS, final=True)
    assert (before.counts.untimed, after.counts.untimed, after.devices[0].late) == (0, 0, 0)
    assert after.devices[0].state_ns == (300, 0, 0, 0, 0, 0)
