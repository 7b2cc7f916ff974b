import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.columnar.otlp_messages import Writer, broken, request
from tests.support.columnar.otlp_oracle import assert_decodes_as_protobuf_says, decoded_truth, truth
from tests.support.examples import parser_examples

from kernelcast.columnar import Decoder, SeriesIdentity
from kernelcast.columnar.walk.layout import HASH_MASK

seeds = st.integers(0, 2**63)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    """One decoder for many messages, so that the memory of one message could mislead it in the next."""
    return Decoder()


@parser_examples(500)
@given(seed=seeds)
def test_a_plain_message_decodes_as_protobuf_says(decoder: Decoder, seed: int) -> None:
    assert_decodes_as_protobuf_says(decoder, request(random.Random(seed)).SerializeToString())


@parser_examples(1500)
@given(seed=seeds, disturbance=st.sampled_from((0.02, 0.1, 0.3)))
def test_fields_reordered_doubled_grouped_unpacked_or_unknown_decode_as_protobuf_says(
    decoder: Decoder, seed: int, disturbance: float
) -> None:
    rng = random.Random(seed)
    assert_decodes_as_protobuf_says(decoder, Writer(rng, disturbance).message(request(rng)))


@parser_examples(2000)
@given(seed=seeds, disturbance=st.sampled_from((0.0, 0.05)))
def test_mutated_and_truncated_messages_are_refused_or_decode_as_protobuf_says(
    decoder: Decoder, seed: int, disturbance: float
) -> None:
    rng = random.Random(seed)
    assert_decodes_as_protobuf_says(decoder, broken(rng, Writer(rng, disturbance).message(request(rng))))


@parser_examples(500)
@given(message=st.binary(max_size=60))
def test_random_bytes_are_refused_or_decode_as_protobuf_says(decoder: Decoder, message: bytes) -> None:
    assert_decodes_as_protobuf_says(decoder, message)


@parser_examples(60)
@given(seed=seeds)
def test_every_truncation_of_a_message_ends_in_the_verdict_of_protobuf(decoder: Decoder, seed: int) -> None:
    rng = random.Random(seed)
    message = Writer(rng, 0.02).message(request(rng))
    for length in range(0, len(message), 1 + len(message) // 60):
        assert_decodes_as_protobuf_says(decoder, message[:length])


@parser_examples(150)
@given(seed=seeds)
def test_a_batch_keeps_good_messages_whole_and_leaves_nothing_of_bad_ones(decoder: Decoder, seed: int) -> None:
    rng = random.Random(seed)
    messages = [request(rng).SerializeToString() for _ in range(rng.randrange(1, 7))]
    messages = [broken(rng, message) if rng.random() < 0.4 else message for message in messages]
    truths = [truth(message) for message in messages]
    decoded = decoder.decode(messages)
    assert [index for index, _ in decoded.failures] == [i for i, known in enumerate(truths) if known is None]
    assert decoded.unsupported == sum(known.unsupported for known in truths if known is not None)
    for index, known in enumerate(truths):
        found = decoded_truth(decoder, decoded, index)
        assert found.numbers == ([] if known is None else known.numbers)
        assert found.histograms == ([] if known is None else known.histograms)
        assert found.exemplars == ([] if known is None else known.exemplars)


@parser_examples(150)
@given(seed=seeds, hash_bits=st.sampled_from((0, 1, 3)))
def test_series_whose_hashes_collide_stay_apart(seed: int, hash_bits: int) -> None:
    decoder = Decoder()
    decoder._state.series.counters[HASH_MASK] = decoder._state.contexts.counters[HASH_MASK] = (1 << hash_bits) - 1
    rng = random.Random(seed)
    for _ in range(4):
        assert_decodes_as_protobuf_says(decoder, request(rng).SerializeToString())
        decoder.forget(np.array([rng.randrange(20) for _ in range(5)], np.int32))


@parser_examples(100)
@given(seed=seeds)
def test_forgetting_any_series_at_any_time_never_mixes_identities(seed: int) -> None:
    rng = random.Random(seed)
    decoder = Decoder()
    messages = [request(rng).SerializeToString() for _ in range(4)]
    for _ in range(12):
        assert_decodes_as_protobuf_says(decoder, rng.choice(messages))
        decoder.forget(np.array([rng.randrange(-2, 30) for _ in range(rng.randrange(12))], np.int32))


@parser_examples(100)
@given(seed=seeds)
def test_identities_read_together_are_those_read_one_by_one(seed: int) -> None:
    rng, decoder = random.Random(seed), Decoder()
    decoded = decoder.decode([request(rng).SerializeToString() for _ in range(4)])
    numbers = np.concatenate([decoded.numbers.series, decoded.histograms.series])
    parts = decoder.identities(numbers)
    for i, number in enumerate(numbers.tolist()):
        metric, scope = parts.metrics[parts.metric[i]], parts.scopes[parts.scope[i]]
        assert decoder.identity(number) == SeriesIdentity(
            scope.resource,
            scope.name,
            scope.version,
            metric.name,
            metric.unit,
            metric.type,
            metric.temporality,
            metric.monotonic,
            parts.attributes[parts.attribute_set[i]],
            scope.attributes,
            metric.schema_url,
            metric.part,
        )
        assert decoder.identity(number).description == metric.description


@pytest.mark.parametrize("number", [-1, 0, 1, 2**31 - 1])
def test_unused_numbers_have_no_identities(number: int) -> None:
    decoder = Decoder()
    decoder.decode([request(random.Random(1)).SerializeToString()])
    decoder.forget(np.arange(100, dtype=np.int32))
    with pytest.raises(KeyError):
        decoder.identities(np.array([number], np.int32))
