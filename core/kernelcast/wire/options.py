"""Names that people write, such as settings and options: what they may have meant, where one is unknown."""

import argparse
from collections.abc import Collection
from difflib import get_close_matches
from typing import NoReturn


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, else all of them."""
    near = get_close_matches(name, sorted(known), n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(sorted(known))}" if known else ""


class OptionParser(argparse.ArgumentParser):
    """An `ArgumentParser` that names the option nearest to an unknown one.

    >>> parser = OptionParser("kernelcast probe", exit_on_error=False)
    >>> option = parser.add_argument("--standalone", action="store_true")
    >>> parser.remedy("unrecognized arguments: --standlone")
    '; did you mean --standalone?'
    """

    def remedy(self, message: str) -> str:
        """Return the end of a message: the option that was meant; empty where no option is near."""
        words = message.partition("unrecognized arguments: ")[2].split()
        unknown = next((word.partition("=")[0] for word in words if word.startswith("--")), "")
        near = get_close_matches(unknown, self._option_string_actions, n=1)
        return did_you_mean(unknown, near) if near else ""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with 2."""
        super().error(message + self.remedy(message))
