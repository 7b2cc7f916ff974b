"""Modules that a new interpreter imports with the probe."""

import subprocess
import sys

FOREIGN = """
import sys
from importlib.metadata import packages_distributions
import kernelcast.probe
loaded = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")}
print(sorted(loaded - sys.stdlib_module_names - {"kernelcast"}))
"""


def test_importing_the_probe_imports_nothing_but_the_standard_library() -> None:
    # -S -E would hide the editable install: the roots are passed in instead.
    roots = [root for root in sys.path if (root.endswith(("core", "exporter")))]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {roots!r}\n{FOREIGN}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr
