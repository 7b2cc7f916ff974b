"""The day's own calls of CUPTI, on the double of libcupti: kinds, buffers and the records found in their bytes."""

from pathlib import Path

import pytest
from tests.gpu.day.layout import CONCURRENT_KERNEL, walk
from tests.gpu.day.programs.raw_cupti import RawCupti
from tests.service.probe.cupti.double import Double, compile_double
from tests.service.probe.cupti.records import START_NS, Packer

from kernelcast.probe.cupti.build import compiler

LENGTHS = {"12.9": 208, "13.0": 216, "13.5": 248}
KERNELS = 5_000


@pytest.mark.skipif(not compiler(), reason="the double of libcupti needs a C compiler")
@pytest.mark.parametrize("version", LENGTHS)
def test_buffers_are_kept_and_every_record_is_found_by_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    path = tmp_path / "libcupti_double.so"
    compile_double(path)
    double, packer = Double(path, version), Packer(version)
    monkeypatch.setenv("KERNELCAST_CUPTI_LIBRARY", str(path))
    cupti = RawCupti()
    assert cupti.enable(CONCURRENT_KERNEL) == 0
    assert double.enabled() == {CONCURRENT_KERNEL}
    starts = [START_NS + 10 * number for number in range(KERNELS)]
    double.bring([packer.kernel("spin", start, start + 4) for start in starts])
    cupti.close()
    assert double.enabled() == set()
    lengths, records = walk(cupti.buffers, [CONCURRENT_KERNEL])
    assert lengths == {CONCURRENT_KERNEL: LENGTHS[version]}
    assert sorted(record.start_ns for record in records) == starts
    assert {record.end_ns - record.start_ns for record in records} == {4}
    assert cupti.completed_bytes == KERNELS * LENGTHS[version]
