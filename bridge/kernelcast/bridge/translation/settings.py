"""Choices that the specification leaves for OTLP in Prometheus: the section `bridge.translation`."""

from typing import Annotated, Final, Literal

from kernelcast.runtime.settings.service import Remedy, Section

WITH_SUFFIXES: Final = "UnderscoreEscapingWithSuffixes"


class TranslationSettings(Section):
    """Choices for metrics that are not in the catalogue; those of the catalogue look the same everywhere.

    Attributes:
        strategy: Naming of metrics, in Prometheus' and the Collector's words: with or without suffixes for unit and
            kind. Their other two, NoUTF8EscapingWithSuffixes and NoTranslation, keep dots, which text 0.0.4 cannot
            write.
        scope_labels: Whether series have labels for their instrumentation scope: `otel_scope_name`,
            `otel_scope_version`, `otel_scope_schema_url` and `otel_scope_…` for each attribute of the scope. Without
            them, a second scope that writes the same series is refused as a second writer.
        target_info: Whether the other resource attributes of a producer are exposed in its `target_info`.
        promote_resource_attributes: Keys of resource attributes that become labels of every series, including those of
            the catalogue; `all` promotes every one, but not for metrics of the catalogue.
    """

    strategy: Annotated[
        Literal["UnderscoreEscapingWithSuffixes", "UnderscoreEscapingWithoutSuffixes"],
        Remedy("/metrics writes only names of letters, digits, colons and underscores; choose one of these two"),
    ] = WITH_SUFFIXES
    scope_labels: bool = True
    target_info: bool = True
    promote_resource_attributes: tuple[str, ...] | Literal["all"] = ()
