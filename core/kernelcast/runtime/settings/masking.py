"""Masks secrets in texts that are printed or logged: values of secret names, and user and password in an address.

Logs, error messages and the settings' representation use it. Pure functions.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

MASKED: Final = "<secret>"

_SECRET_PARTS: Final = (
    "password",
    "secret",
    "oauthbearer.config",
    "ssl.key",
    "token",
    "jaas",
    "private.key",
    "basic.auth",
    "authorization",
    "credential",
    "api.key",
    "apikey",
    "cookie",
    "headers",
)
_NESTED: Final = 20
"""Levels of a nested value that are printed, a bound on recursion; settings have five."""

# Lengths are bounded, so that no text takes longer than its length allows.
_USER_INFO: Final = re.compile(
    r"(?<![a-zA-Z0-9+.-])(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*+://)\S{0,1000}@"  # up to the last @: some have / and @
    r"|(?<![^\s,;'\"(=])[^\s:/@,;'\"]+:[^\s@]\S{0,1000}@(?=[\w\[])"  # without a scheme
)
_BCRYPT: Final = re.compile(r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{22,53}")
_ASSIGNED: Final = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]++)(?P<between>['\"]?\s*[=:]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;}\])]+)"
)


def is_secret(name: str) -> bool:
    """Whether the property's value may be a password, a key or a token."""
    lowered = name.lower().replace("_", ".")
    return any(part in lowered for part in _SECRET_PARTS)


def mask(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties, fit to be printed."""
    return {name: MASKED if is_secret(name) else without_userinfo(value) for name, value in properties.items()}


def without_userinfo(text: str) -> str:
    """The same text, without user and password of the addresses in it."""
    return _USER_INFO.sub(lambda found: f"{found['scheme'] or ''}{MASKED}@", text) if "@" in text else text


def without_hashes(text: str) -> str:
    """The same text, without bcrypt hashes: a user's name contains one if a colon before it was forgotten."""
    return _BCRYPT.sub(MASKED, text)


def without_secrets(value: Any, *, depth: int = _NESTED) -> Any:
    """A value of a setting, however nested, fit to be printed.

    In text, user and password of addresses are removed, and values assigned to a secret name (`sasl.password=…`).
    """
    if isinstance(value, str):
        return without_userinfo(_ASSIGNED.sub(_assigned, value))
    if depth == 0:
        return MASKED
    if isinstance(value, Mapping):
        return {
            key: MASKED if is_secret(str(key)) else without_secrets(item, depth=depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [without_secrets(item, depth=depth - 1) for item in value]
    return value


def _assigned(found: re.Match[str]) -> str:
    return f"{found['name']}{found['between']}{MASKED}" if is_secret(found["name"]) else found[0]
