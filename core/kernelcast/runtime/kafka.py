"""Kafka clients, under one name."""

from kernelcast.runtime.connect import check
from kernelcast.runtime.consumer import NO_OFFSET, Consumer, Rebalance
from kernelcast.runtime.producer import DeliveryListener, Headers, Producer

__all__ = ["NO_OFFSET", "Consumer", "DeliveryListener", "Headers", "Producer", "Rebalance", "check"]
