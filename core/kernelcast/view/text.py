"""A picture as text, in the width and height of a terminal: the screen of `kernelcast top` and of the demo.

Address and worst news are on the first lines at any size. A screen that is too low shows fewer rows of each section,
of the kernels first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from kernelcast.runtime.terminal import printable
from kernelcast.view.model import Level, News, Picture
from kernelcast.view.sections import Cell, Section, sections
from kernelcast.view.words import ABSENT, since

WIDE: Final = 100
"""Columns of a terminal from which every figure is shown."""
HEAD_LINES: Final = 2
"""Lines for the address and the worst news."""
MOST_NEWS: Final = 4
"""Lines of news where there is room."""
_MARK_COLUMNS: Final = 5
"""Columns of the mark before a piece of news, and of the space after it."""
_STYLES: Final[dict[Level, str]] = {"bad": "bold red", "warn": "yellow", "good": "green", "": ""}
_MOST_OF_A_LINE: Final = 24
"""Characters to which a cell is cut on a narrow screen, where its column does not grow."""


@dataclass(frozen=True, slots=True)
class Screen:
    """The whole screen.

    Attributes:
        picture: What matters now.
        order: How the kernels are sorted and filtered, for their heading.
        below: Further lines, above that of the keys.
        keys: The last line.
        most_kernels: Largest number of kernels.
        height: Lines of the terminal; None draws everything.
        banner: Style of the first line.
    """

    picture: Picture
    order: str = ""
    below: Sequence[Text] = ()
    keys: Text | None = None
    most_kernels: int = 20
    height: int | None = None
    banner: str = "bold white on blue"

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich to draw the screen in the width of the terminal."""
        width, height = options.max_width, self.height
        shown_sections = sections(self.picture, self.order)
        last = [*self.below, *([self.keys] if self.keys is not None else [])]
        lines = None if height is None else height - HEAD_LINES - len(last)
        rows = allotted(shown_sections, lines, self.most_kernels)
        used = sum(1 + count for count in rows if count is not None)
        spare = len(shown_sections) + MOST_NEWS if lines is None else max(0, lines - used)
        news = _news(self.picture, 1 + min(spare, MOST_NEWS - 1), width)
        gap = [Text("")] if spare - len(news) + 1 >= len(shown_sections) else []
        yield Group(_banner(self, width), *news)
        for section, count in zip(shown_sections, rows, strict=True):
            if count is not None:
                yield Group(*gap, _section(section, count, width))
        yield Group(*map(_cut, last))


def allotted(shown_sections: Sequence[Section], lines: int | None, most_kernels: int) -> list[int | None]:
    """Rows of each section within some lines, each with its heading; None for a section without a line.

    Every section has its heading and a row before any has more; then each has its `few`, in the order of importance;
    then the remaining lines are given in the same order.
    """
    wanted = [
        min(len(section.rows), most_kernels) if section.name == "kernels" else len(section.rows)
        for section in shown_sections
    ]
    if lines is None:
        return list(wanted)
    rows: list[int | None] = [None] * len(shown_sections)
    for upto in (lambda _: 1, lambda section: section.few, lambda section: len(section.rows)):
        for place, section in enumerate(shown_sections):
            if rows[place] is None and lines > 0 and (lines > 1 or not section.rows):
                rows[place], lines = 0, lines - 1
            count = rows[place]
            if count is not None:
                more = max(0, min(lines, min(upto(section), wanted[place]) - count))
                rows[place], lines = count + more, lines - more
    return rows


def _banner(screen: Screen, width: int) -> Text:
    picture = screen.picture
    age = f"data {ABSENT if picture.age_seconds is None else since(picture.age_seconds)} old"
    sources = ", ".join(picture.sources)
    note = screen.picture.note or (f"source: {sources}" if sources not in ("", "live") else "")
    right = f" {age} " if picture.has_page else " waiting for the first page "
    left = printable(f" {picture.title}  {note}")
    room = max(0, width - len(right))
    return _cut(Text(f"{left[:room]:<{room}}{right}", style=screen.banner))


def _news(picture: Picture, most: int, width: int) -> list[Text]:
    """The worst news on at most `most` lines, broken between words; the last one has the number of further news."""
    if not picture.news:
        calm = "nothing that needs attention is known" if picture.has_page else "no page was read yet"
        return [_cut(Text(f" {calm}", style="dim"))]
    lines: list[Text] = []
    for number, news in enumerate(picture.news, 1):
        room, further = most - len(lines), len(picture.news) - number
        parts = wrap(printable(news.text), max(1, width - _MARK_COLUMNS), break_on_hyphens=False)
        mark = f" +{further} " if further and len(parts) >= room else " ! "
        if len(parts) > room:
            parts[room - 1 :] = [" ".join(parts[room - 1 :])]  # the terminal cuts the last line
        lines += _news_lines(news, mark, parts)
        if len(lines) >= most:
            break
    return lines


def _news_lines(news: News, mark: str, parts: Sequence[str]) -> Iterator[Text]:
    style = "bold white on red" if news.level == "bad" else "bold black on yellow"
    for place, part in enumerate(parts):
        head = (" " * len(mark), "") if place else (mark, style)
        yield _cut(Text.assemble(head, (f" {part}", _STYLES[news.level])))


def _section(section: Section, count: int, width: int) -> RenderableType:
    if not section.rows:
        words = Text.assemble((section.title, "bold cyan"), "  ", (printable(section.empty), "dim"))
        return _cut(words)
    shown = [place for place, column in enumerate(section.columns) if width >= WIDE or not column.wide]
    table = Table(
        expand=any(section.columns[place].grows for place in shown),
        box=None,
        header_style="dim",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for place in shown:
        column = section.columns[place]
        table.add_column(
            _heading(section, count) if place == 0 else column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column.grows else None,
            max_width=None if column.grows or width >= WIDE else _MOST_OF_A_LINE,
            min_width=_least_width(section, place),
        )
    for row in section.rows[:count]:
        table.add_row(*(_cell(row[place]) for place in shown))
    return table


def _least_width(section: Section, place: int) -> int | None:
    """The first column shows its names as far as `_MOST_OF_A_LINE`: which GPU or kernel it is comes first."""
    if place:
        return None
    return min(_MOST_OF_A_LINE, max(len(row[0].text) for row in section.rows))


def _heading(section: Section, count: int) -> Text:
    hidden = len(section.rows) - count
    return Text(section.title + (f" ({hidden} more)" if hidden else ""), style="bold cyan")


def _cell(cell: Cell) -> Text:
    text = Text(printable(cell.text), style=_STYLES[cell.level])
    return Text.assemble(text, (f"/{printable(cell.limit)}", "dim")) if cell.limit else text


def _cut(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
