"""The machine of a measurement."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.service.kafka_installation import KAFKA_VERSION


def machine() -> dict[str, Any]:
    """Describes the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "load_average": os.getloadavg()[0],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
