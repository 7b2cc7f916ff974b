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
    assert file.load("key") is None  # type: ignore[no-untyped-call]
    file.save("key", b"machine code")  # type: ignore[no-untyped-call]
    assert file.load("key") == b"machine code"  # type: ignore[no-untyped-call]
