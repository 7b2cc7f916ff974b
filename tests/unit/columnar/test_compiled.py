import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from numba.core.dispatcher import Dispatcher

import kernelcast.columnar
from kernelcast.columnar import Decoder, Resource, Sample, encode, entries
from kernelcast.wire.catalogue import Kind, Metric

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import kernelcast.columnar
assert kernelcast.columnar.__file__.startswith(sys.argv[1]), kernelcast.columnar.__file__
from kernelcast.columnar import tables
from kernelcast.columnar import entries
tables.grown_store(tables.new_store(), 0)
print(type(entries.rehash._cache).__name__, sum(entries.rehash.stats.cache_hits.values()))
"""


def run(root: Path, cache: Path) -> list[str]:
    """Compile the smallest entry in a fresh interpreter that finds the package at root and may write to cache only."""
    environment = {**os.environ, "HOME": "/nonexistent", "XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def copy_of_the_package(root: Path) -> Path:
    core = Path(kernelcast.columnar.__file__).parents[2]
    for part in ("wire", "columnar"):
        shutil.copytree(
            core / "kernelcast" / part, root / "kernelcast" / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    return root


def test_compiles_where_nothing_can_be_written_and_is_cached_where_something_can(tmp_path: Path) -> None:
    root = copy_of_the_package(tmp_path / "site")
    # A file where a cache folder would be: not even root can write there, as on a read-only file system.
    for part in ("wire", "columnar"):
        (root / "kernelcast" / part / "__pycache__").write_text("")
    nowhere = tmp_path / "nowhere"
    nowhere.write_text("")
    assert run(root, nowhere) == ["NullCache", "0"]
    cache = tmp_path / "cache"
    assert run(root, cache) == ["_Cache", "0"]
    assert run(root, cache) == ["_Cache", "1"]
    # A change in a file that the entry only calls must not meet the machine code of before.
    with (root / "kernelcast" / "columnar" / "points.py").open("a") as source:
        source.write("\n# a change\n")
    assert run(root, cache) == ["_Cache", "0"]


def signatures() -> dict[str, list[object]]:
    """What each entry was compiled for."""
    return {name: list(entry.signatures) for name, entry in vars(entries).items() if isinstance(entry, Dispatcher)}


def test_nothing_is_compiled_after_warm_up() -> None:
    Decoder.warm_up()
    before = signatures()
    decoder = Decoder()
    decoder.decode([b"\x0a\x00", b"\xff", b"\x0b\x0c"])
    decoder.forget(np.array([0], np.int32))
    assert signatures() == before
    assert {name: len(known) for name, known in before.items()} == dict.fromkeys(
        ("batch", "roll_back", "release", "compact", "rehash"), 1
    )


def test_decoders_of_several_threads_do_not_disturb_each_other() -> None:
    Decoder.warm_up()
    metric = Metric("m", Kind.GAUGE, "help", "m")
    resource = Resource((("service.instance.id", "i"), ("service.name", "s")))
    results: list[list[tuple[tuple[str, str], ...]]] = []

    def work(thread: int) -> None:
        decoder = Decoder()
        for time_ns in range(50):
            samples = [Sample(metric, (("gpu", f"{thread}-{gpu}"),), time_ns, gpu) for gpu in range(300)]
            numbers = decoder.decode([export.body for export in encode(resource, samples, scope="s")]).numbers
            if numbers.integer.tolist() == list(range(300)):
                results.append([decoder.identity(int(number)).attributes for number in numbers.series[:2]])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted([[(("gpu", f"{t}-0"),), (("gpu", f"{t}-1"),)] for t in range(4)] * 50)
