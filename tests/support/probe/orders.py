"""Orders to stop that a test gives, in place of those that a person or an exporter writes to the node's files."""

from kernelcast.probe.conditions.stop_file import StopFile


class GivenOrders(StopFile):
    """The node's files, and an order that is in force at once.

    Attributes:
        order: The order; empty for none.
    """

    order = ""

    def reason(self, *, now: bool = False) -> str:
        """Return the order, or that of the files."""
        return self.order or super().reason(now=now)
