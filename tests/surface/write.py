"""Writes the public surface of this revision: `python -m tests.surface.write [--breaking]`.

Additions and reworded text are written. Where something is gone, renamed or changed, nothing is written: whoever runs
kernelcast would have to change settings, queries or programs. `--breaking` accepts that; it belongs into CHANGELOG.md.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.surface.collect import SURFACES, frozen_file
from tests.surface.tree import differences, read, render


def main(arguments: Sequence[str]) -> int:
    """Write the files; returns 1 where a difference is breaking and that was not accepted."""
    parser = argparse.ArgumentParser("python -m tests.surface.write", description=__doc__.partition("\n")[0])
    parser.add_argument("--breaking", action="store_true", help="accept entries that are gone, renamed or changed")
    breaking = parser.parse_args(arguments).breaking
    described = {surface: describe() for surface, describe in SURFACES.items()}
    refused = []
    for surface, tree in described.items():
        path = frozen_file(surface)
        if path.exists():
            refused += [one.sentence(surface) for one in differences(read(path), tree) if one.kind.breaking]
    if refused and not breaking:
        sys.stderr.write("\n".join([*refused, "nothing is written", ""]))
        return 1
    for surface, tree in described.items():
        frozen_file(surface).write_text(render(tree))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
