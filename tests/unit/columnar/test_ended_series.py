from kernelcast.columnar import NO_RECORDED_VALUE, Decoder, EndedSeries, Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

HOST = Resource((("service.instance.id", "n0"), ("service.name", "test")))


def info(value: str) -> Sample:
    return Sample(kernel.TUNABLE_INFO, (("program", "p"), ("value", value)), 10, 1)


def test_a_state_that_is_no_longer_reported_ends_once() -> None:
    ended: EndedSeries[str] = EndedSeries()
    assert ended.complete("p", [info("48")], 10) == [info("48")]
    second = ended.complete("p", [info("128")], 20)
    assert second == [info("128"), Sample(kernel.TUNABLE_INFO, info("48").attributes, 20, None)]
    assert ended.complete("p", [info("128")], 30) == [info("128")]


def test_a_patient_reader_lets_a_series_be_missing_for_a_while() -> None:
    ended: EndedSeries[str] = EndedSeries(patience=2)
    ended.complete("p", [info("48")], 10)
    assert ended.complete("p", [], 20) == []
    assert ended.complete("p", [info("48")], 30) == [info("48")]
    assert ended.complete("p", [], 40) == []
    assert ended.groups == ("p",)
    assert [sample.value for sample in ended.complete("p", [], 50)] == [None]
    assert not ended.groups


def test_a_series_ends_at_once_where_another_differs_only_in_a_label_with_one_value_at_a_time() -> None:
    ended: EndedSeries[str] = EndedSeries(patience=3, exclusive=("value",))
    other = Sample(kernel.TUNABLE_INFO, (("program", "q"), ("value", "48")), 10, 1)
    ended.complete("p", [info("48"), other], 10)
    assert ended.complete("p", [info("128")], 20) == [
        info("128"),
        Sample(kernel.TUNABLE_INFO, info("48").attributes, 20, None),
    ]


def test_history_does_not_end() -> None:
    ended: EndedSeries[str] = EndedSeries()
    launches = Sample(kernel.LAUNCHES, (("program", "p"),), 10, 5, 1)
    ended.complete("p", [launches], 10)
    assert ended.complete("p", [], 20) == []


def test_groups_do_not_end_each_others_series() -> None:
    ended: EndedSeries[str] = EndedSeries()
    ended.complete("p", [info("48")], 10)
    assert ended.complete("q", [info("64")], 20) == [info("64")]


def test_an_ended_series_arrives_without_a_value() -> None:
    gone = Sample(device.GPU_TEMP, (("gpu", "0"),), 20, None)
    (export,) = encode(HOST, [gone], scope="test")
    decoded = Decoder().decode([export.body])
    assert decoded.failures == ()
    assert decoded.numbers.flags.tolist() == [NO_RECORDED_VALUE]
    assert decoded.numbers.time_ns.tolist() == [20]
