"""The user's choices on the live screen, and the keys that change them."""

import re
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from kernelcast.view.model import SORTS

_SEQUENCE: Final = re.compile(r"\x1b(?:O.|\[M...|\[[0-9;<]*[A-Za-z~])", re.DOTALL)
"""Bytes of a function key, an arrow, or the mouse."""


@dataclass(slots=True)
class Controls:
    """Choices of the user: order, filter, pause.

    Attributes:
        sort: One of `SORTS`.
        text: Only kernels, programs and GPUs whose name has this text.
        paused: Whether the screen stays as it is.
        typing: Whether keys are added to `text`.
    """

    sort: str = SORTS[0]
    text: str = ""
    paused: bool = False
    typing: bool = False

    @property
    def order(self) -> str:
        """Order and filter, for the heading of the kernels."""
        return f" by {self.sort}" + (f", with “{self.text}”" if self.text else "")

    def press(self, keys: str) -> bool:
        """Apply keys; returns whether to quit. Function keys, arrows and the mouse have no effect."""
        for key in _SEQUENCE.sub("", keys):
            if self.typing:
                self._type(key)
            elif key in "qQ":
                return True
            elif key in "pP ":
                self.paused = not self.paused
            elif key in "sS":
                self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
            elif key in "fF/":
                self.typing, self.text = True, ""
            elif key == "\x1b":
                self.text = ""
        return False

    def line(self) -> Text:
        """The line of keys."""
        if self.typing:
            return Text(f"filter: {self.text}_   Enter keeps it, Esc clears it", style="bold")
        paused = Text("PAUSED  ", style="bold black on yellow") if self.paused else Text("")
        return paused + Text("q quit   p pause   s sort   f filter   Esc all", style="dim")

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.typing = False
        elif key == "\x1b":
            self.typing, self.text = False, ""
        elif key in "\x7f\b":
            self.text = self.text[:-1]
        elif key.isprintable():
            self.text = (self.text + key)[:60]
