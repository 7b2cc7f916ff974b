"""`python -m lab.dcgm_names FILE > core/kernelcast/wire/catalogue/devices/dcgm_names.py`: DCGM's renamed fields.

FILE is `testing/python3/dcgm_fields.py` of NVIDIA/DCGM, whose dictionary `_DEPRECATED_ALIASES` has the pairs. Names of
single NVLink lanes are left out: kernelcast has the link as a label.
"""

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VERSION: Final = "4.6.0 (72fa3fea)"
PREFIX: Final = "DCGM_FI_"
LANE: Final = re.compile(r"_L\d+$")
_HEAD: Final = '''\
"""Fields that DCGM has renamed: their former names, and the canonical names of DCGM {version}.

Made by `python -m lab.dcgm_names` from NVIDIA/DCGM, testing/python3/dcgm_fields.py, `_DEPRECATED_ALIASES`.
"""

from types import MappingProxyType
from typing import Final

_PREFIX: Final = "{prefix}"
_PAIRS: Final = """\\
'''
_TAIL: Final = '''\
"""
CANONICAL_NAMES: Final = MappingProxyType(
    {_PREFIX + former: _PREFIX + canonical for former, canonical in map(str.split, _PAIRS.splitlines())}
)
"""Canonical name by former name."""
'''


def aliases(text: str) -> Mapping[str, str]:
    """The pairs of DCGM's module: canonical name by former name.

    Raises:
        LookupError: The module has no such dictionary.
    """
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_DEPRECATED_ALIASES":
            pairs: Mapping[str, str] = ast.literal_eval(statement.value)
            return pairs
    raise LookupError("the file has no _DEPRECATED_ALIASES; give testing/python3/dcgm_fields.py of DCGM 4.6 or later")


def document(pairs: Mapping[str, str], version: str = VERSION) -> str:
    """The catalogue's module."""
    lines = (
        f"{former.removeprefix(PREFIX)} {canonical.removeprefix(PREFIX)}\n"
        for former, canonical in pairs.items()
        if not LANE.search(former)
    )
    return _HEAD.format(version=version, prefix=PREFIX) + "".join(lines) + _TAIL


if __name__ == "__main__":
    sys.stdout.write(document(aliases(Path(sys.argv[1]).read_text())))
