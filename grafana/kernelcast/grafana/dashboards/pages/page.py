"""The frame of a page: a row about the data, a first screen that answers the page's question, and collapsed rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelcast.grafana.dashboards import data_row, events
from kernelcast.grafana.model.dashboard import Dashboard, Row
from kernelcast.grafana.model.panels import Placed


@dataclass(frozen=True, slots=True)
class Page:
    """A page's name and question.

    Attributes:
        uid: In its address and file name.
        title: As Grafana lists it.
        question: The one question that its first screen answers.
        answer: In a sentence, the panels that answer it.
        tags: Beside the tag that all pages have.
    """

    uid: str
    title: str
    question: str
    answer: str
    tags: tuple[str, ...]

    def dashboard(self, variables: Sequence[Any], first_screen: Iterable[Placed], rows: Iterable[Row]) -> Dashboard:
        """The page with its panels.

        Args:
            variables: From the widest choice to the narrowest.
            first_screen: Panels that are drawn when the page opens.
            rows: Collapsed rows.
        """
        return Dashboard(
            uid=self.uid,
            title=f"kernelcast / {self.title}",
            description=f"{self.question} {self.answer}",
            tags=self.tags,
            variables=variables,
            annotations=events.everywhere(),
            rows=(data_row.row(), Row(self.question, tuple(first_screen)), *rows),
        )
