"""The web configuration files of the bridges in real schedules, right and wrong, and a client for both."""

import http.client
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

NO_ANSWER: Final = 0
HEADERS: Final = {"http_server_config": {"headers": {"X-Frame-Options": "deny"}}}
WRONG: Final[tuple[dict[str, Any], ...]] = (
    {"basic_auth_users": {"prometheus": "no bcrypt hash"}},
    {"http_server_config": {"header": {}}},
    {"tls_server_config": {"cert_file": "gone.crt", "key_file": "gone.key"}},
)
"""A password in plain text, a setting that does not exist, files that do not exist."""


class Answer(NamedTuple):
    """A response; status 0 where there was none."""

    status: int
    body: str


@dataclass
class Door:
    """Web configuration file of a bridge, and the client that matches it.

    Attributes:
        path: The web configuration file.
        certificate: Certificate and key, for TLS.
        wrong: Whether the file is wrong now.
    """

    path: Path
    certificate: tuple[Path, Path] | None = None
    wrong: bool = False

    def __post_init__(self) -> None:
        self._context = None if self.certificate is None else ssl.create_default_context(cafile=self.certificate[0])
        self.set_right()

    def url(self, port: int) -> str:
        """The bridge's URL at a port."""
        return f"http{'' if self.certificate is None else 's'}://127.0.0.1:{port}"

    def set_right(self) -> None:
        """Write a valid web configuration."""
        content: dict[str, Any] = dict(HEADERS)
        if self.certificate is not None:
            content["tls_server_config"] = dict(zip(("cert_file", "key_file"), map(str, self.certificate), strict=True))
        self._write(content, wrong=False)

    def set_wrong(self, variant: int) -> None:
        """Write one of several invalid web configurations."""
        self._write({**HEADERS, **WRONG[variant % len(WRONG)]}, wrong=True)

    def ask(self, url: str, timeout_seconds: float) -> Answer:
        """The response at a URL over a new connection."""
        try:
            with urllib.request.urlopen(url, timeout=timeout_seconds, context=self._context) as answer:  # noqa: S310
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, "")
        except (OSError, http.client.HTTPException):
            return Answer(NO_ANSWER, "")

    def _write(self, content: dict[str, Any], *, wrong: bool) -> None:
        self.wrong = wrong
        self.path.write_text(yaml.safe_dump(content))
