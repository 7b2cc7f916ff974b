"""A picture as HTML, for the first page of an exporter and of a bridge: without scripts, and with names as text.

`STYLE` goes into the page's one style element; a bar's widths are attributes of SVG, as the page's policy allows no
style beside that element.
"""

from html import escape
from typing import Final
from urllib.parse import quote

from kernelcast.view.model import Picture
from kernelcast.view.sections import Cell, Column, Section, sections
from kernelcast.view.words import percent, since
from kernelcast.wire.verdict import phase_label

MOST_KERNELS: Final = 25
"""Rows of the kernels' table."""
MOST_NEWS: Final = 5
STYLE: Final = """
.news{list-style:none;margin:.8rem 0;padding:0}
.news li{border-left:.35rem solid var(--line);padding:.25rem .7rem;margin:.3rem 0;overflow-wrap:anywhere}
.news .bad{border-color:var(--bad);font-weight:600}
.news .warn{border-color:var(--warn)}
section{margin:1.1rem 0}
section h2{font-size:1.05rem;margin:0 0 .1rem}
section p{margin:.1rem 0}
section table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9rem;line-height:1.45}
section th{font-weight:400;color:var(--dim);text-align:left;vertical-align:bottom}
section th,section td,section td:first-child{padding:.15rem .8rem .15rem 0;vertical-align:top;white-space:nowrap}
section td.grows:not(.name){white-space:normal;overflow-wrap:anywhere}
section th.grows{width:99%}
section td.name{max-width:1px;min-width:7rem;overflow:hidden;text-overflow:ellipsis}
section .right{text-align:right}
section .bad{color:var(--bad);font-weight:600}
section .warn{color:var(--warn)}
section .good{color:var(--good)}
.dim{color:var(--dim)}
.bar{display:block;width:100%;min-width:6rem;height:.5rem;margin:.15rem 0}
.p0{fill:#d97706}.p1{fill:#2f74c0}.p2{fill:#6a51a3}.p3{fill:#3f9b63}.p4{fill:#999}
@media (max-width:46rem){section .desk{display:none}section table{font-size:.8rem}
section th,section td,section td:first-child{padding-right:.45rem;white-space:normal;overflow-wrap:break-word}
section th.grows{width:auto}section td:first-child{max-width:9rem}
section td:first-child,section td.grows:not(.name){overflow-wrap:anywhere;min-width:5.5rem}
section .right,section td.name{white-space:nowrap;max-width:none}section td.name{max-width:1px;width:99%}}
@media (max-width:26rem){section th,section td,section td:first-child{padding-right:.3rem}
section td:first-child,section td.grows:not(.name){min-width:3.5rem}section td.name{min-width:5.5rem}}
"""
_HERE: Final = ("live", "cpu")
"""Sources of data that are measured on this machine and now."""
_FILLS: Final = {"data": 0, "forward": 1, "backward": 2, "optimizer": 3}
"""Number of the colour of a phase; others share the last one."""
_OTHER_FILL: Final = 4


def body(picture: Picture) -> str:
    """News and tables of a picture, for the page of a service."""
    tables = "".join(_section(section) for section in sections(picture))
    age = "" if picture.age_seconds is None else f" Figures are {since(picture.age_seconds)} old."
    elsewhere = ", ".join(source for source in picture.sources if source not in _HERE)
    source = f" <strong>Source: {_text(elsewhere)}, not a GPU here and now.</strong>" if elsewhere else ""
    return f'{_news(picture)}<p class="dim">{age}{source}</p>{tables}'


def _news(picture: Picture) -> str:
    if not picture.news:
        return '<ul class="news"><li>Nothing that needs attention is known.</li></ul>'
    items = "".join(f'<li class="{news.level}">{_text(news.text)}</li>' for news in picture.news[:MOST_NEWS])
    hidden = len(picture.news) - MOST_NEWS
    more = f'<li class="dim">and {hidden} more below</li>' if hidden > 0 else ""
    return f'<ul class="news">{items}{more}</ul>'


def _section(section: Section) -> str:
    rows = section.rows[:MOST_KERNELS] if section.name == "kernels" else section.rows
    title = f"<h2>{_text(section.title[:1].upper() + section.title[1:])}</h2>"
    if not rows:
        return f'<section>{title}<p class="dim">{_text(section.empty)}</p></section>'
    styles = [_style(column, first=not place) for place, column in enumerate(section.columns)]
    head = "".join(
        f'<th scope="col"{_class(style)}>{_text(column.title)}</th>'
        for column, style in zip(section.columns, styles, strict=True)
    )
    lines = "".join(
        f"<tr>{''.join(_cell(cell, style) for cell, style in zip(row, styles, strict=True))}</tr>" for row in rows
    )
    hidden = len(section.rows) - len(rows)
    more = f'<p class="dim">and {hidden} more</p>' if hidden else ""
    return f"<section>{title}<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}</section>"


def _style(column: Column, *, first: bool) -> str:
    """Class of the cells of a column; a name in a column that grows is cut to one line, with the whole on pointing."""
    hidden = column.wide or not column.phone
    kind = "name" if first else "grows"
    words = (("right", column.right), ("desk", hidden), ("grows", column.grows), (kind, column.grows))
    return " ".join(dict.fromkeys(word for word, applies in words if applies))


def _cell(cell: Cell, style: str) -> str:
    limit = f'<span class="dim">/{_text(cell.limit)}</span>' if cell.limit else ""
    text = f'<a href="{escape(quote(cell.href))}">{_text(cell.text)}</a>' if cell.href else _text(cell.text)
    words = f"{style} {cell.level}".strip()
    whole = f' title="{_text(cell.text)}"' if "name" in style else ""
    return f"<td{_class(words)}{whole}>{_bar(cell.shares)}{text}{limit}</td>"


def _class(words: str) -> str:
    return f' class="{words}"' if words else ""


def _bar(shares: tuple[tuple[str, float], ...]) -> str:
    """The shares as one bar of 100 units."""
    if not shares:
        return ""
    left, parts, measured = 0.0, [], {name for name, _share in shares}
    for name, share in sorted(shares, key=lambda one: list(_FILLS).index(one[0]) if one[0] in _FILLS else len(_FILLS)):
        fill = _FILLS.get(name, _OTHER_FILL)
        label = f"<title>{_text(phase_label(name, measured))} {percent(share)}</title>"
        parts.append(f'<rect class="p{fill}" x="{left:.2f}" width="{100 * share:.2f}" height="8">{label}</rect>')
        left += 100 * share
    return f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def _text(words: str) -> str:
    return escape("".join(letter if letter.isprintable() else " " for letter in words))
