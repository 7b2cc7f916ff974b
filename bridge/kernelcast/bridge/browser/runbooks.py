"""The runbooks that alerts link to, served as pages: one for each alert, and a list of all."""

# `Bridge` makes one `Runbooks` at its start and gives its routes to the web server; handlers run on the event loop.

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from kernelcast.runtime.web import landing
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.package_files import package_files

PATH: Final = "/runbooks"
FILE: Final = "runbooks.md"
_HERE: Final = Path(__file__)
_PACKAGE: Final = _HERE.parents[2] / "grafana"
"""`kernelcast/grafana` of an installed wheel: the file is read from it, and nothing is imported."""
_CHECKOUT: Final = _HERE.parents[4] / "docs"
_NOT_FOUND: Final = 404
_CODE: Final = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)
_FOLD: Final = re.compile(r"<details markdown=\"1\">\n<summary>[\w ]+</summary>|</details>")
"""Begin and end of a part that is folded: HTML in Markdown, too."""
_STEP: Final = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
_SPAN: Final = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\*(.+?)\*|<(https://[^>\s]+)>")
_MARKUP: Final = ("<code>{0}</code>", "<strong>{0}</strong>", "<em>{0}</em>", '<a href="{0}">{0}</a>')
"""Of the groups above."""
_CSS: Final = """
body {font: 16px/1.6 system-ui, sans-serif; margin: 2rem auto; max-width: 46rem; padding: 0 1rem}
pre {overflow-x: auto; white-space: pre-wrap}
a {color: light-dark(#1f5fa8, #7db4f0)}
"""
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>{css}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


class Runbooks:
    """Serves the runbooks of this version. The file is read when it is made, so no handler waits for a disk."""

    def __init__(self) -> None:
        """Read the runbooks.

        Raises:
            ConfigurationError: The file is missing from the installation.
        """
        path = package_files(_PACKAGE, _CHECKOUT) / FILE
        try:
            self._sections = sections(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}; install kernelcast again") from None

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route(PATH, self.all), Route(f"{PATH}/{{alert}}", self.one)]

    async def all(self, _request: Request) -> Response:
        """Runbooks: the first steps for each alert."""
        links = ((name, name.lower()) for name in self._sections)
        items = "".join(f'<li id="{anchor}"><a href="{PATH}/{name}">{name}</a></li>' for name, anchor in links)
        return _page("Runbooks", f"<ul>{items}</ul>")

    async def one(self, request: Request) -> Response:
        """The runbook of one alert."""
        alert = request.path_params["alert"]
        section = self._sections.get(alert)
        link = f'<p><a href="{PATH}">All runbooks</a></p>'
        if section is None:
            name = html.escape(alert[:100])
            return _page(f"No runbook {name}", f"<p>There is no alert {name} in this version.</p>{link}", _NOT_FOUND)
        return _page(alert, rendered(section) + link)


def sections(document: str) -> Mapping[str, str]:
    """The text below each heading of the second level, by heading."""
    parts = re.split(r"^## (.+)$", document, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))


def rendered(section: str) -> str:
    """A section as HTML: paragraphs, numbered steps, code, and parts that are folded.

    >>> rendered("**First:** look at `dmesg`.")
    '<p><strong>First:</strong> look at <code>dmesg</code>.</p>'
    """
    return "".join(_block(block.strip("\n")) for block in section.split("\n\n"))


def _block(text: str) -> str:
    if code := _CODE.fullmatch(text):
        return f"<pre>{html.escape(code[1])}</pre>"
    if _FOLD.fullmatch(text):
        return text
    if steps := _STEP.findall(text):
        return f"<ol>{''.join(f'<li>{_spans(step)}</li>' for step in steps)}</ol>"
    return f"<p>{_spans(text)}</p>"


def _spans(text: str) -> str:
    parts, end = [], 0
    for found in _SPAN.finditer(text):
        group = found.lastindex or 1
        inner = _MARKUP[group - 1].format(html.escape(found[group]))
        parts += [html.escape(text[end : found.start()], quote=False), inner]
        end = found.end()
    return "".join([*parts, html.escape(text[end:], quote=False)])


def _page(title: str, body: str, status: int = 200) -> Response:
    text = _PAGE.format(title=title, body=body, css=_CSS)
    return HTMLResponse(text, status_code=status, headers=landing.headers(_CSS))
