"""The runbooks that the bridge serves."""

import re

import pytest
from tests.support.bridge.asgi_client import AsgiClient

from kernelcast.bridge.browser.runbooks import Runbooks, rendered, sections
from kernelcast.grafana import rules


@pytest.fixture(scope="module")
def client() -> AsgiClient:
    return AsgiClient(Runbooks().routes())


def test_every_alert_has_a_page_with_its_meaning_and_first_step(client: AsgiClient) -> None:
    listed = client.get("/runbooks").text
    for alert in rules.alerts(rules.PRODUCTION):
        page = client.get(f"/runbooks/{alert.name}")
        assert page.status_code == 200
        assert f"<h1>{alert.name}</h1>" in page.text
        assert "<p><strong>First:</strong> " in page.text
        assert page.text.count("<li>") == len(alert.steps)
        assert re.search(r"<details[^>]*>\s*<summary>[\w ]+</summary><pre>.+</pre></details>", page.text)
        assert f'href="/runbooks/{alert.name}"' in listed
        assert f'id="{alert.name.lower()}"' in listed, "a link to /runbooks#ALERT leads to its line"


def test_text_that_looks_like_html_is_shown_as_text() -> None:
    assert rendered("a `<b>` & *c*\n\n```promql\nx < 1\n```") == (
        "<p>a <code>&lt;b&gt;</code> &amp; <em>c</em></p><pre>x &lt; 1</pre>"
    )


def test_a_code_with_stars_numbered_steps_and_links_are_read() -> None:
    assert rendered("1. `a*b*c`\n2. **two**") == "<ol><li><code>a*b*c</code></li><li><strong>two</strong></li></ol>"
    assert rendered("Source: A, <https://a.example/b>.") == (
        '<p>Source: A, <a href="https://a.example/b">https://a.example/b</a>.</p>'
    )
    assert dict(sections("# T\n\nHead.\n\n## A\n\nx\n\n## B\n\ny\n")) == {"A": "x", "B": "y"}


def test_an_alert_that_is_none_is_not_found_and_its_name_is_no_html(client: AsgiClient) -> None:
    page = client.get("/runbooks/%3Cscript%3E")
    assert page.status_code == 404
    assert "There is no alert &lt;script&gt; in this version." in page.text
    assert "<script" not in page.text
    assert re.search(r"default-src 'none'", page.headers["content-security-policy"])
