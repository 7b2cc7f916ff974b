import errno
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelcast.columnar.compiled import code_cache


@pytest.mark.parametrize("kept", ["a module that has moved", "not a pickle"])
def test_an_index_that_cannot_be_read_is_as_if_empty_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    moved = ModuleType("kernelcast_moved")
    moved.Columns = type("Columns", (), {"__module__": moved.__name__})  # type: ignore[attr-defined]
    with monkeypatch.context() as before:
        before.setitem(sys.modules, moved.__name__, moved)
        index = pickle.dumps(("stamp", {moved.Columns: "function-1.nbc"}))
    file = code_cache._CacheFile(str(tmp_path), "function", "stamp")  # type: ignore[no-untyped-call]
    content = index if kept == "a module that has moved" else b"not a pickle"
    (tmp_path / "function.nbi").write_bytes(pickle.dumps(file._version) + content)
    assert file.load("key") is None
    file.save("key", b"machine code")
    assert file.load("key") == b"machine code"


@pytest.mark.parametrize("left", [b"", b"\x80\x05\x95"], ids=["empty", "torn"])
def test_machine_code_that_a_crash_of_the_node_has_cut_short_is_compiled_again(tmp_path: Path, left: bytes) -> None:
    file = code_cache._CacheFile(str(tmp_path), "function", "stamp")  # type: ignore[no-untyped-call]
    file.save("key", b"machine code")
    (code,) = tmp_path.glob("*.nbc")
    code.write_bytes(left)
    assert file.load("key") is None
    file.save("key", b"machine code")
    assert file.load("key") == b"machine code"


def test_machine_code_of_older_sources_is_not_loaded_where_a_full_disk_kept_the_new_one_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    code_cache._CacheFile(str(tmp_path), "function", "older").save("key", b"older")  # type: ignore[no-untyped-call]
    newer = code_cache._CacheFile(str(tmp_path), "function", "newer")  # type: ignore[no-untyped-call]
    with monkeypatch.context() as while_full:
        while_full.setattr(newer, "_save_data", full)  # numba has written the index before
        with pytest.raises(OSError, match="No space left"):
            newer.save("key", b"newer")
    assert newer.load("key") is None


def test_machine_code_for_other_arguments_is_not_loaded_where_two_processes_chose_one_file(tmp_path: Path) -> None:
    file = code_cache._CacheFile(str(tmp_path), "function", "stamp")  # type: ignore[no-untyped-call]
    file.save("float64", b"for doubles")
    (tmp_path / "function.nbi").unlink()  # as the other process saw the folder
    file.save("int64", b"for integers")
    file._save_index({"float64": file._data_name(1)})  # type: ignore[no-untyped-call]
    assert file.load("float64") is None
