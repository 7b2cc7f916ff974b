"""A reading must survive JSON: another process may do the looking."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.nvml.sampling.reading import REASONS, GpuReading, NodeReading, ProcessUse, XidTotal
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions

TEXTS = st.text(max_size=8)
NUMBERS = st.integers(0, 2**63) | st.floats(allow_nan=False, allow_infinity=False)
PERCENT = st.none() | st.integers(0, 100)
PROCESSES = st.builds(
    ProcessUse,
    pid=st.integers(0, 2**22),
    type=st.sampled_from(["compute", "graphics", "mps"]),
    memory_bytes=st.none() | st.integers(0, 2**40),
    sm_percent=PERCENT,
    memory_percent=PERCENT,
    enc_percent=PERCENT,
    dec_percent=PERCENT,
    name=TEXTS,
)
GPUS = st.builds(
    GpuReading,
    uuid=TEXTS,
    index=TEXTS,
    gi_id=TEXTS,
    mig_uuids=st.lists(TEXTS, max_size=2).map(tuple),
    values=st.dictionaries(TEXTS, NUMBERS, max_size=3),
    absent=st.dictionaries(TEXTS, st.sampled_from(REASONS), max_size=3),
    processes=st.lists(PROCESSES, max_size=2).map(tuple),
    xids=st.lists(st.builds(XidTotal, st.integers(0, 200), st.integers(0), st.integers(0)), max_size=2).map(tuple),
)
NODES = st.builds(
    NodeReading,
    time_ns=st.integers(0, 2**62),
    driver_version=TEXTS,
    gpus=st.lists(GPUS, max_size=2).map(tuple),
    errors=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
    missing=st.lists(TEXTS, max_size=2).map(tuple),
)


@given(NODES)
def test_a_reading_is_the_same_after_json(node: NodeReading) -> None:
    assert NodeReading.from_json(json.loads(json.dumps(node.to_json()))) == node


def test_options_are_the_same_after_json() -> None:
    options = SamplerOptions(rows=("DCGM_FI_DEV_GPU_UTIL",))
    assert SamplerOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
