"""Links of documents to files outside `docs/`, for the documentation site; a hook of mkdocs.

In a checkout such a link is relative. On the site it leads to the repository; without an address it is plain text.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_LINK: Final = re.compile(r"\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s:]+)\)")


def with_outer_links(text: str, page: str, address: str) -> str:
    """Replace links that leave `docs/`.

    Args:
        text: A page's Markdown.
        page: Its path below `docs/`.
        address: The repository's address; empty while there is none.
    """

    def replaced(found: "re.Match[str]") -> str:
        path, _, anchor = found["target"].partition("#")
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), path))
        if not path or place.startswith("docs/"):
            return found[0]
        if not address:
            return found["text"]
        return f"[{found['text']}]({address}/blob/main/{place}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(replaced, text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    sys.path.insert(0, str(ROOT / "core"))
    try:
        from release.addresses import repository  # noqa: PLC0415  mkdocs loads this file by its path
    finally:
        sys.path.pop(0)
    return with_outer_links(markdown, page.file.src_uri, repository(ROOT))
