"""Entry point of the `kernelcast` command; also `python -m kernelcast.cli`."""

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command that the command line names, and exit with its code.

    `kernelcast probe` runs once for each rank and each wrapped command: it does without the rest of the command line,
    whose imports take ten times as long as an interpreter's start.
    """
    if sys.argv[1:2] == ["probe"]:
        from kernelcast.probe.command import main as probe  # noqa: PLC0415

        sys.exit(probe(sys.argv[2:]))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error, where an encoding lacks a character
    from kernelcast.cli.early_stop import UNTIL_STOPPED, exit_on_sigterm  # noqa: PLC0415

    if UNTIL_STOPPED.intersection(sys.argv[1:2]):
        exit_on_sigterm()
    from kernelcast.cli.app import run  # noqa: PLC0415

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
