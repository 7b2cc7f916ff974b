"""Modules that a new interpreter imports for the encoder and for the decoder."""

import subprocess
import sys

LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"


def brought_in(statement: str) -> set[str]:
    """The modules that a statement imports in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


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
