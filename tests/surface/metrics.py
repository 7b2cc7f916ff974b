"""Describes the catalogue: every metric with its kind, labels, name on Kafka and help."""

from typing import Any

from kernelcast.wire.catalogue import CATALOGUE


def catalogue() -> dict[str, Any]:
    """Each metric by its Prometheus name."""
    return {
        row.prometheus_name: {
            "kind": row.kind.value,
            "labels": list(row.labels),
            "help": row.help,
            **({"otlp": row.otlp_name, "unit": row.unit} if row.otlp_name else {}),
            **({} if row.exposed else {"exposed": False}),
        }
        for row in CATALOGUE
    }
