"""Which librdkafka properties are secret; they are never printed."""

from collections.abc import Mapping
from typing import Final

MASKED: Final = "<secret>"

_SECRET_PARTS: Final = (
    "password",
    "secret",
    "oauthbearer.config",
    "ssl.key",
    "token",
    "jaas",
    "private.key",
    "basic.auth.users",
)


def is_secret(name: str) -> bool:
    """Whether the property's value may be a password, a key or a token."""
    lowered = name.lower().replace("_", ".")
    return any(part in lowered for part in _SECRET_PARTS)


def mask(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties, fit to be printed."""
    return {name: MASKED if is_secret(name) else value for name, value in properties.items()}
