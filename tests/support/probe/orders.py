"""Orders to stop that a test gives, in place of those of a person or an exporter."""

from kernelcast.probe.conditions.orders import StopOrders


class GivenOrders(StopOrders):
    """Environment and files, and an order that is in force at once.

    Attributes:
        order: The order; empty for none.
    """

    order = ""

    def reason(self, *, now: bool = False) -> str:
        """Return the order, or theirs."""
        return self.order or super().reason(now=now)
