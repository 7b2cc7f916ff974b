"""The frame of a page: its questions and the line about the data, a first screen that answers, and collapsed rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.grafana.dashboards import data_line, events
from kernelcast.grafana.model.dashboard import GRID_COLUMNS, Dashboard, Row
from kernelcast.grafana.model.panels import Placed, prose

_DATA_WIDTH: Final = 9
_HEIGHT: Final = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A page's name and questions.

    Attributes:
        uid: In its address and file name.
        title: As Grafana lists it.
        questions: The questions that it answers, the first ones on its first screen. The page begins with them.
        tags: Beside the tag that all pages have.
    """

    uid: str
    title: str
    questions: str
    tags: tuple[str, ...]

    def dashboard(self, variables: Sequence[Any], first_screen: Iterable[Placed], rows: Iterable[Row]) -> Dashboard:
        """The page with its panels.

        Args:
            variables: From the widest choice to the narrowest.
            first_screen: Panels that are drawn when the page opens.
            rows: Collapsed rows.
        """
        head = (
            prose(self.questions, width=GRID_COLUMNS - _DATA_WIDTH, height=_HEIGHT),
            data_line.panel(width=_DATA_WIDTH, height=_HEIGHT),
        )
        return Dashboard(
            uid=self.uid,
            title=f"kernelcast / {self.title}",
            description=self.questions,
            tags=self.tags,
            variables=variables,
            annotations=events.everywhere(),
            rows=(Row("", (*head, *first_screen)), *rows),
        )
