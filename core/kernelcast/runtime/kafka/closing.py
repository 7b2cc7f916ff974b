"""Closes librdkafka's consumers within a time limit; `consumer.Consumer` calls it."""

import ctypes
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaException

from kernelcast.runtime.threads import Worker


def end_client(client: Any, group_id: str, timeout_seconds: float, *, leaves: bool) -> bool:
    """Close a client; returns whether it has ended within the time limit.

    librdkafka's own `close` has no time limit: with a frozen broker it waits for minutes. So it runs on a separate
    thread. After the time limit the client is abandoned until the process ends, and Kafka removes the member from
    the group when its session times out.

    Args:
        client: confluent_kafka's consumer.
        group_id: Its group, for the log.
        timeout_seconds: The time limit.
        leaves: Whether it is a member of the group, which has to be told.
    """
    closing = Worker("close-consumer", partial(_close, client, leaves=leaves))
    closing.start()
    if closing.stop(timeout_seconds):
        return True
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    structlog.stdlib.get_logger("kafka.consumer").warning(
        "consumer not closed in time; Kafka removes it from its group when its session times out",
        group_id=group_id,
        limit_seconds=timeout_seconds,
    )
    return False


def _close(client: Any, *, leaves: bool) -> None:
    try:
        if leaves and not client.assignment():
            # librdkafka 2.16 does not report to Kafka that a member without partitions leaves, and the others wait
            # until its session times out. It does report a member that has unsubscribed.
            client.unsubscribe()
        client.close()
    except (KafkaException, RuntimeError) as error:
        structlog.stdlib.get_logger("kafka.consumer").warning("closing the consumer failed", reason=str(error))
