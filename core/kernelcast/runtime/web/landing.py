"""The first page of a daemon: its state, problems, what the service shows there, and links.

The web server calls `page` for each request to `/`; the service gives it `Fact`s, and a `Front` if it has one.
"""

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

REFRESH_SECONDS: Final = 5
STYLE: Final = """
:root{--dim:light-dark(#5b6470,#9aa4b0);--line:light-dark(#c9ced6,#3d444d);--bad:light-dark(#b3151f,#ff7076);
--warn:light-dark(#8a5a00,#e0a640);--good:light-dark(#1a7f37,#5cc27a)}
body{font:16px/1.6 system-ui,sans-serif;margin:1.5rem auto;max-width:62rem;padding:0 1rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1.05rem}
td{padding-right:2rem;vertical-align:top}
td:first-child{white-space:nowrap}
td:last-child{overflow-wrap:anywhere}
.wrong{color:var(--bad);font-weight:600}
a{color:light-dark(#1f5fa8,#7db4f0)}
"""
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{refresh}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{css}</style></head>
<body><h1>{title}</h1><p>Version {version}, <span class="{style}">{state}</span>.</p>
{wrong}{body}<h2>This service</h2><table>{facts}</table><h2>Pages</h2><table>{rows}</table></body></html>
"""
_WRONG: Final = '<h2 class="wrong">Wrong now</h2><ul>{items}</ul>\n'


@dataclass(frozen=True, slots=True)
class Fact:
    """One line about a service.

    Attributes:
        name: A few words.
        text: The figure, with its age where it is not of now.
        wrong: Whether it needs an action; it is then listed under "Wrong now".
    """

    name: str
    text: str
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Front:
    """What a service shows on its first page beside its facts.

    Attributes:
        body: Makes it, as HTML whose texts are escaped; called on a thread, one request at a time.
        style: Its rules of CSS.
    """

    body: Callable[[], str] = str
    style: str = ""


Facts = Callable[[], Sequence[Fact]]


def no_facts() -> Sequence[Fact]:
    """The facts of a service that has none."""
    return ()


def headers(css: str) -> dict[str, str]:
    """Headers of a page: its policy allows no script, and no style but the page's own style element."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return {
        "content-security-policy": (
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "x-frame-options": "DENY",
    }


def page(  # noqa: PLR0913  parts of a page
    *,
    title: str,
    version: str,
    state: str,
    wrong: Iterable[str],
    facts: Sequence[Fact],
    pages: Mapping[str, str],
    body: str = "",
    css: str = STYLE,
) -> str:
    """The first page as HTML.

    Args:
        title: Name of the service.
        version: Its version.
        state: `ready`, or why not.
        wrong: Reasons why it is not healthy or not ready.
        facts: Its facts.
        pages: Its pages, with a line about each.
        body: What the service shows, as HTML.
        css: Content of its style element.
    """
    troubles = [*wrong, *(f"{fact.name}: {fact.text}" for fact in facts if fact.wrong)]
    items = "".join(f'<li class="wrong">{html.escape(text)}</li>' for text in troubles)
    return _PAGE.format(
        refresh=REFRESH_SECONDS,
        css=css,
        body=body,
        title=html.escape(title),
        version=html.escape(version),
        state=html.escape(state),
        style="wrong" if troubles else "",
        wrong=_WRONG.format(items=items) if items else "",
        facts="".join(_row(html.escape(fact.name), fact.text, wrong=fact.wrong) for fact in facts),
        rows="".join(
            _row(f'<a href="{html.escape(path)}">{html.escape(path)}</a>', about) for path, about in pages.items()
        ),
    )


def ago(seconds: float) -> str:
    """An age in words."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def _row(left: str, right: str, *, wrong: bool = False) -> str:
    style = ' class="wrong"' if wrong else ""
    return f"<tr><td>{left}</td><td{style}>{html.escape(right)}</td></tr>"
