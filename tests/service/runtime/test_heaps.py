"""Settings of the allocator, each in a process of its own, as they cannot be taken back."""

import platform
import subprocess
import sys

import pytest

THREADS_ALLOCATE = """
import threading
{setting}
held, barrier = [], threading.Barrier(4)
def work():
    barrier.wait()
    held.append([bytes(1000) for _ in range(100)])
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
HEAPS = """
reserved = 0
for line in open("/proc/self/maps"):
    begin, end = (int(one, 16) for one in line.split()[0].split("-"))
    reserved += line.split()[1].startswith("---") and end - begin > 32 * 2**20
print(reserved)
"""
"""A heap of a thread is a reservation of 64 MiB without rights, of which the used beginning gets them."""
FREED = """
from kernelcast.runtime.allocation import return_freed_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1])
blocks = [bytes(1000) for _ in range(30_000)]
pinned = blocks[-1]
del blocks
before = resident()
return_freed_memory()
print(before - resident())
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's settings")


def printed(program: str) -> int:
    """The number that a program prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_threads_share_one_heap_where_asked() -> None:
    shared = "from kernelcast.runtime.allocation import share_one_heap; assert share_one_heap()"
    assert printed(THREADS_ALLOCATE.format(setting=shared) + HEAPS) == 0
    assert printed(THREADS_ALLOCATE.format(setting="") + HEAPS) > 0


def test_pages_that_hold_nothing_any_more_go_back_to_the_system() -> None:
    assert printed(FREED) > 5_000  # of about 7,500 pages


def test_the_c_library_has_the_setting_for_the_free_end_of_the_heap() -> None:
    assert printed("from kernelcast.runtime.allocation import keep_freed_end; print(int(keep_freed_end()))") == 1
