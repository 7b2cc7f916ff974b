"""The page of inference servers."""

from kernelcast.grafana.addresses import SERVING
from kernelcast.grafana.dashboards import frame, serving
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.model.dashboard import Dashboard


def servers() -> Dashboard:
    """Latency, throughput and cost of inference engines."""
    page = Page(
        SERVING,
        "Serving",
        "Do users wait, and for what: the queue, the prompt, the next token? Is the KV cache too small? What does a "
        "token cost?",
        ("inference", "serving"),
    )
    return page.dashboard((*frame.hardware(), *serving.variables()), serving.panels(), (serving.beside_training(),))
