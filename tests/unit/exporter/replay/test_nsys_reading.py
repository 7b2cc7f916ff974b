"""Nsight Systems exports, made here: tables that are missing, columns that differ, files that are none."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kernelcast.exporter.replay.formats import nsys
from kernelcast.exporter.replay.trace import LaunchConfiguration
from kernelcast.wire.errors import TraceError

EPOCH = 1_700_000_000_000_000_000


@contextmanager
def export(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        yield database
        database.commit()


def test_kernels_copies_fills_and_waits_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a report.sqlite"
    with export(path) as database:
        database.executescript("""
            CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
            INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'void gemm<float>(int)'), (2, 'gemm');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,
                gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,
                dynamicSharedMemory INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 15, 1, 7, 1, 2, 90, 2, 3, 1, 64, 1, 1, 100, 28);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER,
                copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
                (1, 3, 1, 4096, 1, 1, 2), (4, 5, 1, 8, 2, 2, 0), (6, 7, 1, 2, 8, 2, 2);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (20, 22, 1, 512);
            CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
                (start INTEGER, end INTEGER, deviceId INTEGER, syncType INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (12, 16, 1, 3);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, cuDevice INTEGER, name TEXT);
            INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'NVIDIA A100'), (1, 0, 'another');
        """)
    trace = nsys.read(path)
    assert trace.names == ("void gemm<float>(int)",)
    assert trace.launches.spans.start_ns.tolist() == [EPOCH + 10]
    assert trace.launches.spans.duration_ns.tolist() == [5]
    assert trace.configurations == (LaunchConfiguration("2x3x1", "64x1x1", 90, 128),)
    assert trace.copy_kinds == (("h2d", "true"), ("d2h", "false"), ("d2d", ""))
    assert trace.copies.size_bytes.tolist() == [4096, 8, 2]
    assert (len(trace.memsets), trace.memset_bytes.tolist()) == (1, [512])
    assert trace.sync_kinds == ("stream",)
    assert [device.model_name for device in trace.devices] == ["NVIDIA A100"]


def test_an_export_without_cuda_tables_has_no_gpu_activity(tmp_path: Path) -> None:
    path = tmp_path / "cpu.sqlite"
    with export(path):
        pass
    assert not nsys.read(path).has_gpu_activity


def test_columns_that_a_version_lacks_are_absent_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with export(path) as database:
        database.executescript("""
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 5), (3, NULL, 5), (9, 4, 5);
        """)
    trace = nsys.read(path)
    assert trace.names == ("unknown",)
    assert trace.configurations[0].variant == ""
    assert len(trace.launches.spans) == 1
    assert trace.unusable == 2


def test_the_call_that_waited_says_for_what_and_the_number_only_without_a_call(tmp_path: Path) -> None:
    path = tmp_path / "waits.sqlite"
    with export(path) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'cudaDeviceSynchronize_v3020'), (2, 'cuStreamSynchronize'),
                (3, 'cudaEventSynchronize_v3020'), (4, 'cudaMemcpy_v3020');
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, globalTid, correlationId, nameId);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                (1, 16777217, 1, 1), (1, 16777217, 2, 2), (1, 16777217, 3, 3), (1, 16777217, 4, 4);
            CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, globalPid, correlationId, syncType);
            INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1, 2, 16777216, 1, 1), (3, 4, 16777216, 2, 2),
                (5, 6, 16777216, 3, 3), (7, 8, 16777216, 4, 3), (9, 10, 16777216, 5, 4);
        """)
    trace = nsys.read(path)
    assert [trace.sync_kinds[number] for number in trace.syncs.kind.tolist()] == [
        "context", "stream", "event", "stream", "context",
    ]  # fmt: skip


def test_strings_without_a_text_and_a_call_of_another_era_are_survived(tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    with export(path) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER);
            INSERT INTO StringIds VALUES (5);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName, globalPid, correlationId);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 5, 16777216, 1), (5, 6, 5, 16777216, 2);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, globalTid, correlationId);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (-9223372036854775807, 16777216, 1), (2, 16777216, 2);
        """)
    trace = nsys.read(path)
    assert trace.names == ("unknown",)
    assert trace.launches.queue_delay_ns.tolist() == [-1, 3]


def test_a_file_that_is_no_export_is_refused_with_its_name_and_the_remedy(tmp_path: Path) -> None:
    text = tmp_path / "report.nsys-rep"
    text.write_bytes(b"NVIDIA report")
    foreign = tmp_path / "browser.sqlite"
    with closing(sqlite3.connect(foreign)) as database:
        database.execute("CREATE TABLE cookies (id INTEGER)")
        database.commit()
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(foreign.read_bytes()[:1000] + b"\x00" * 100)
    for path, said in ((text, "not a SQLite file"), (foreign, "no export"), (damaged, "SQLite")):
        with pytest.raises(TraceError, match=said) as raised:
            nsys.read(path)
        assert str(path) in str(raised.value)
        assert "nsys export" in str(raised.value)
