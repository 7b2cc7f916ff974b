import subprocess
import sys
from importlib import import_module

import pytest

from kernelcast import columnar

LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"


def brought_in(statement: str) -> set[str]:
    """The modules that a statement imports in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", columnar.__all__)
def test_every_public_name_is_found_in_its_module(name: str) -> None:
    home = import_module(f"kernelcast.columnar.{columnar._HOMES[name]}")
    assert getattr(columnar, name) is getattr(home, name)
    assert name in dir(columnar)


def test_every_home_is_of_a_public_name() -> None:
    assert set(columnar._HOMES) == set(columnar.__all__)


def test_an_unknown_name_is_the_error_that_python_gives() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'decode'"):
        columnar.decode  # noqa: B018


def test_who_only_encodes_pays_for_no_array_and_no_compiler() -> None:
    modules = brought_in("from kernelcast.columnar import EndedSeries, Resource, Sample, encode")
    assert "kernelcast.columnar.encoding.encoder" in modules
    assert not modules & {"numpy", "numba", "llvmlite", "google.protobuf"}


def test_the_exporter_imports_neither_numpy_nor_numba() -> None:
    modules = brought_in("import kernelcast.exporter.command")
    assert "kernelcast.exporter.assembly" in modules
    assert not modules & {"numpy", "numba", "llvmlite", "google.protobuf"}


def test_the_decoder_is_there_for_who_asks() -> None:
    assert "numba" in brought_in("from kernelcast.columnar import Decoder")
