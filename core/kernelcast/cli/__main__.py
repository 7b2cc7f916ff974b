"""The `kernelcast` command; also `python -m kernelcast.cli`."""

import sys

from kernelcast.cli.app import run


def main() -> None:
    """Run the command that the command line names, and exit with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
