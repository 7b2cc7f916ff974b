"""`kernelcast doctor`: NVML's answers for each GPU, and the exporter's surroundings on its node."""

import os
import socket
import threading
import urllib.error
from collections import namedtuple
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from types import ModuleType
from typing import Any

import pytest

from kernelcast.cli.doctor import gpu, rows, surroundings
from kernelcast.cli.doctor.limit import within
from kernelcast.cli.doctor.result import CheckLevel, CheckResult, ok
from kernelcast.cli.doctor.settings import NodeSettings, SpoolPlace
from kernelcast.exporter.settings import ExporterSettings


class NVMLError(Exception):
    """pynvml's error of this name."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818  pynvml's name
    """pynvml's error of this name."""


class NVMLError_NoPermission(NVMLError):  # noqa: N801, N818  pynvml's name
    """pynvml's error of this name."""


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801, N818  pynvml's name
    """pynvml's error of this name."""


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


def nvml(**calls: Any) -> Callable[[str], ModuleType]:
    """An importer of a made-up pynvml of one GPU that answers every call, except `calls`."""
    module: Any = ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.nvmlInit = module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: 1
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetMigMode = lambda _gpu: [0, 0]
    for name in rows.CALLS:
        setattr(module, name, lambda _gpu: 1)
    for name, call in calls.items():
        setattr(module, name, call)
    return lambda _name: module


def levels(findings: list[CheckResult]) -> list[CheckLevel]:
    return [finding.level for finding in findings]


def test_a_gpu_with_all_rows_is_one_line() -> None:
    (found,) = rows.check_rows(nvml())

    assert (found.check, found.level, found.found) == ("rows gpu 0", CheckLevel.OK, f"{len(rows.CALLS)} of 10 kinds")


def test_missing_rows_of_a_gpu_are_named_and_no_fault() -> None:
    absent = raising(NVMLError_NotSupported("Not Supported"))

    (found,) = rows.check_rows(nvml(nvmlDeviceGetEccMode=absent, nvmlDeviceGetRemappedRows=absent))

    assert found.level is CheckLevel.OK
    assert found.found == "8 of 10 kinds; this GPU has no remapped rows, ECC"


def test_unreadable_files_are_distinguished_from_missing_ones() -> None:
    found = list(rows.check_rows(nvml(nvmlDeviceGetComputeRunningProcesses=raising(NVMLError_NoPermission("no")))))

    assert levels(found) == [CheckLevel.OK, CheckLevel.WARN]
    assert "processes" in found[1].found
    assert "NVIDIA_DRIVER_CAPABILITIES" in found[1].remedy


def test_an_older_binding_lacks_a_call_and_the_others_are_asked() -> None:
    module: Any = nvml()("pynvml")
    del module.nvmlDeviceGetRemappedRows

    (found,) = rows.check_rows(lambda _name: module)

    assert found.found == "9 of 10 kinds; this GPU has no remapped rows"


def test_a_gpu_that_fell_off_the_bus_fails_and_names_the_xid() -> None:
    (found,) = rows.check_rows(nvml(nvmlDeviceGetPowerUsage=raising(NVMLError_GpuIsLost("GPU is lost"))))

    assert (found.level, found.found) == (CheckLevel.FAIL, "GPU is lost")
    assert "Xid 79" in found.remedy


def test_mig_instances_are_counted_and_a_pending_change_is_named() -> None:
    def instance(_gpu: object, number: int) -> int:
        if number > 1:
            raise NVMLError_NotSupported("Not Found")
        return number

    mig = {
        "nvmlDeviceGetMigMode": lambda _gpu: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda _gpu: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
    }
    divided = list(rows.check_rows(nvml(**mig)))[-1]
    undivided = list(rows.check_rows(nvml(**{**mig, "nvmlDeviceGetMigDeviceHandleByIndex": raising(NVMLError())})))[-1]
    waiting = list(rows.check_rows(nvml(nvmlDeviceGetMigMode=lambda _gpu: [0, 1])))[-1]

    assert (divided.level, divided.found) == (CheckLevel.OK, "on, 2 instances")
    assert undivided.level is waiting.level is CheckLevel.WARN
    assert "reset" in waiting.remedy


def test_without_a_driver_nothing_is_logged_twice() -> None:
    assert not list(rows.check_rows(nvml(nvmlInit=raising(NVMLError("not found")))))


def test_a_hanging_driver_is_named_with_the_earlier_findings() -> None:
    hanging = threading.Event()

    def check() -> Iterator[CheckResult]:
        yield ok("nvml", "driver 580.1, 8 GPUs")
        hanging.wait()

    found = within(check, name="nvml", seconds=0.05)
    hanging.set()

    assert levels(found) == [CheckLevel.OK, CheckLevel.FAIL]
    assert found[1].found == "no answer within 0.05 s"
    assert "Xid" in found[1].remedy


def test_an_exception_of_a_check_is_raised_here() -> None:
    with pytest.raises(NVMLError, match="unheard of"):
        within(raising(NVMLError("unheard of")), name="nvml")


def test_a_check_that_answers_in_time_is_as_it_was() -> None:
    assert within(lambda: [ok("nvml", "driver 580.1, 1 GPU")], name="nvml") == [ok("nvml", "driver 580.1, 1 GPU")]


def test_the_kubelets_socket_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    (absent,) = surroundings.check_kubelet(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        (there,) = surroundings.check_kubelet(path)
        (without_grpc,) = surroundings.check_kubelet(path, present=lambda _module: False)
    path.unlink()
    path.touch()
    (file,) = surroundings.check_kubelet(path)

    assert levels([absent, there, file]) == [CheckLevel.OK, CheckLevel.OK, CheckLevel.FAIL]
    assert "not a Kubernetes node" in absent.found
    assert (without_grpc.level, without_grpc.found) == (CheckLevel.WARN, f"{path} is there, grpcio is not installed")
    assert "pip install 'kernelcast[exporter,grpc]'" in without_grpc.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every socket")
def test_a_kubelet_that_only_root_may_ask_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0)
        (found,) = surroundings.check_kubelet(path)

    assert found.level is CheckLevel.WARN


def test_job_files_are_counted_and_a_missing_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("4711\n")

    (there,) = surroundings.check_jobs(tmp_path)
    (missing,) = surroundings.check_jobs(tmp_path / "none")

    assert (there.level, there.found) == (CheckLevel.OK, f"{tmp_path}, 1 files")
    assert (missing.level, "prolog" in missing.remedy) == (CheckLevel.WARN, True)
    assert not list(surroundings.check_jobs(None))


def test_without_a_port_the_runtimes_own_is_tried(tmp_path: Path) -> None:
    tried: list[tuple[str, int]] = []

    def connect(host: str, port: int) -> bool:
        tried.append((host, port))
        return True

    (found,) = surroundings.check_tpu((), devices=tmp_path, connect=connect)

    assert tried == [("127.0.0.1", 8431)]
    assert found.level is CheckLevel.OK


def test_a_tpu_without_grpcio_is_a_warning_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "accel0").touch()

    (found,) = surroundings.check_tpu((), devices=tmp_path, connect=lambda *_: False, present=lambda _module: False)

    assert (found.level, found.found) == (CheckLevel.WARN, "this node has TPUs, grpcio is not installed")
    assert "pip install 'kernelcast[exporter,grpc]'" in found.remedy


def cupti(*, decoder: str = "") -> Callable[[str], ModuleType]:
    """An importer that gives a probe whose decoder fails with these words."""
    native: Any = ModuleType("native")
    found: Any = ModuleType("library")
    native.NativeError = NVMLError
    native.ActivityDecoder = raising(NVMLError(decoder)) if decoder else lambda: None
    found.candidates = lambda _environ: [Path("/cuda/libcupti.so.13")]
    return lambda name: {"native": native, "library": found}[name.rpartition(".")[2]]


def answering(code: int, out: str = "", error: str = "") -> Callable[[], "CompletedProcess[str]"]:
    """What the process that opens libcupti gives."""
    return lambda: CompletedProcess((), code, out, error)


def hanging() -> "CompletedProcess[str]":
    raise TimeoutExpired("python", 15)


def test_cupti_is_its_decoder_and_its_library(tmp_path: Path) -> None:
    none, there = tmp_path / "params", answering(0, "130500\n")
    both = list(gpu.check_cupti(cupti(), none, there))
    unbuilt = list(gpu.check_cupti(cupti(decoder="was not built"), none, there))
    absent = answering(1, error="no libcupti was found; install kernelcast[cupti]\n")
    missing = list(gpu.check_cupti(cupti(), none, absent))

    assert levels(both) == [CheckLevel.OK, CheckLevel.OK]
    assert "130500" in both[1].found
    assert (unbuilt[0].level, "C compiler" in unbuilt[0].remedy) == (CheckLevel.WARN, True)
    assert (missing[1].level, "events" in missing[1].remedy) == (CheckLevel.WARN, True)
    assert missing[1].found == "no libcupti was found; install kernelcast[cupti]"


@pytest.mark.parametrize(("ask", "words"), [(answering(-11), "SIGSEGV"), (hanging, "within 15 s")])
@pytest.mark.parametrize("driver", ["", "a driver"])
def test_a_libcupti_that_ends_or_holds_its_process_is_named_and_fails_where_programs_would_open_it(
    ask: Callable[[], "CompletedProcess[str]"], words: str, driver: str, tmp_path: Path
) -> None:
    parameters = tmp_path / "params"
    if driver:
        parameters.touch()

    found = list(gpu.check_cupti(cupti(), parameters, ask))[1]

    assert found.found.startswith("/cuda/libcupti.so.13 ")
    assert (words in found.found) is bool(driver)
    assert found.level is (CheckLevel.FAIL if driver else CheckLevel.OK)
    assert ("KERNELCAST_CUPTI" in found.remedy) is bool(driver)


def test_a_server_that_asks_for_a_password_counts_as_a_dcgm_exporter_as_in_the_daemon() -> None:
    refusal = urllib.error.HTTPError("http://x", 401, "Unauthorized", Message(), None)
    broken = urllib.error.HTTPError("http://x", 500, "Internal Server Error", Message(), None)
    (there,) = surroundings.check_dcgm_exporter("http://x", fetch=raising(refusal))
    (none,) = surroundings.check_dcgm_exporter("http://x", fetch=raising(broken))
    assert (there.level, none.level) == (CheckLevel.WARN, CheckLevel.OK)


def test_a_dcgm_exporter_on_the_node_is_named_with_a_remedy() -> None:
    (there,) = surroundings.check_dcgm_exporter("http://x", fetch=lambda _url: b"# HELP DCGM_FI_DEV_GPU_TEMP\n")
    (other,) = surroundings.check_dcgm_exporter("http://x", fetch=lambda _url: b"# HELP node_load1\n")
    (none,) = surroundings.check_dcgm_exporter("http://x", fetch=raising(ConnectionRefusedError()))

    assert levels([there, other, none]) == [CheckLevel.WARN, CheckLevel.OK, CheckLevel.OK]
    assert "device_metrics" in there.remedy


def test_a_directory_that_this_user_may_not_enter_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "kernelcast"
    closed.mkdir()

    def exists(path: Path) -> bool:
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return path.is_dir()

    def access(path: Path, mode: int) -> bool:
        return closed not in path.parents and (path != closed or mode == os.F_OK)

    monkeypatch.setattr(Path, "exists", exists)
    monkeypatch.setattr(os, "access", access)
    (found,) = surroundings.check_directory("spool", closed / "spool", needed_bytes=1, without="")
    assert (found.level, f"cannot write to {closed}" in found.found) == (CheckLevel.WARN, True)


def test_a_disk_with_less_room_than_the_spool_may_take_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024  as shutil has it
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage(100, 0, 100 * 2**20))

    def check(needed_bytes: int, directory: Path | None = tmp_path / "not" / "yet") -> CheckResult:
        (found,) = surroundings.check_directory(
            "spool", directory, needed_bytes=needed_bytes, without="the totals are lost"
        )
        return found

    assert check(100 * 2**20).level is CheckLevel.OK
    assert (check(100 * 2**20 + 1).level, "100 MiB free" in check(2**30).found) == (CheckLevel.WARN, True)
    assert (check(1, None).level, check(1, None).remedy) == (CheckLevel.WARN, "the totals are lost")


def test_a_directory_that_cannot_be_written_names_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)

    (found,) = surroundings.check_directory("spool", tmp_path, needed_bytes=0, without="")

    assert found.level is CheckLevel.WARN
    assert f"user {os.getuid()} cannot write" in found.found


def test_the_doctor_looks_where_the_exporter_does() -> None:
    """The exporter cannot be imported there, so its defaults are repeated; this holds them together."""
    theirs = ExporterSettings.model_fields
    ours = {name: field.default for name, field in NodeSettings.model_fields.items() if name != "spool"}
    assert ours.pop("to_kafka") is (theirs["to_kafka"].default == "on")

    assert ours == {name: theirs[name].default for name in ours}
    spool = ExporterSettings().spool
    assert SpoolPlace() == SpoolPlace(directory=spool.directory, max_bytes=spool.max_bytes)


def test_the_spools_directory_is_the_exporters(tmp_path: Path) -> None:
    assert NodeSettings(state_directory=tmp_path).spool_directory == tmp_path / "spool"
    assert NodeSettings(state_directory=None).spool_directory is None
    own = NodeSettings(state_directory=None, spool=SpoolPlace(directory=tmp_path / "mine"))
    assert own.spool_directory == tmp_path / "mine"
    assert NodeSettings(spool=SpoolPlace(directory=None)).spool_directory is None
