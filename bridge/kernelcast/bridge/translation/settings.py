"""Choices that the specification leaves for OTLP in Prometheus: the section `bridge.translation`."""

from typing import Annotated, Final, Literal

from kernelcast.runtime.settings.service import Remedy, Section

WITH_SUFFIXES: Final = "UnderscoreEscapingWithSuffixes"
WITHOUT_SUFFIXES: Final = "UnderscoreEscapingWithoutSuffixes"


class TranslationSettings(Section):
    """Choices for metrics of strangers; those of the catalogue look the same everywhere, whatever stands here.

    Attributes:
        strategy: How metrics are named, in Prometheus' and the Collector's words: with or without suffixes for unit and
            kind. Their other two, NoUTF8EscapingWithSuffixes and NoTranslation, keep dots, which text 0.0.4 cannot
            write.
        scope_labels: Whether a series says which instrumentation scope made it: `otel_scope_name`,
            `otel_scope_version`, `otel_scope_schema_url` and `otel_scope_…` for each attribute of the scope. Without
            them, two scopes that write one series are one writer too many.
        target_info: Whether what else is known of a producer stands in its `target_info`.
        promote_resource_attributes: Keys of resource attributes that become labels of every series, those of the
            catalogue, too, since somebody asked for them by name; `all` promotes every one, of strangers only.
    """

    strategy: Annotated[
        Literal["UnderscoreEscapingWithSuffixes", "UnderscoreEscapingWithoutSuffixes"],
        Remedy("/metrics writes only names of letters, digits, colons and underscores; choose one of these two"),
    ] = WITH_SUFFIXES
    scope_labels: bool = True
    target_info: bool = True
    promote_resource_attributes: tuple[str, ...] | Literal["all"] = ()
