"""Deletes the topics and groups that a test left in Kafka, so the next one finds a Kafka as if it were new."""

from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tests.service.servers import wait_for
from tests.support.waiting import LONGEST_SECONDS

INTERNAL: Final = "__"
ALLOWED: Final = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NON_EMPTY_GROUP)


def emptied(bootstrap_servers: str) -> None:
    """Delete every topic and group, and wait until Kafka no longer lists the topics.

    A group with members that were killed cannot be deleted before their sessions end. It is left alone: the tests
    that share this Kafka name their groups, so none meets members of another test.
    """
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    topics = _topics(client)
    if topics:
        for deleted in client.delete_topics(topics).values():
            _unless_gone(deleted)
        wait_for("a Kafka without topics", lambda: not _topics(client))
    groups = [group.group_id for group in client.list_consumer_groups().result().valid or ()]
    for deleted in client.delete_consumer_groups(groups).values() if groups else ():
        _unless_gone(deleted)


def _topics(client: AdminClient) -> list[str]:
    return [name for name in client.list_topics(timeout=LONGEST_SECONDS).topics if not name.startswith(INTERNAL)]


def _unless_gone(deleted: Future[None]) -> None:
    try:
        deleted.result(LONGEST_SECONDS)
    except KafkaException as error:
        if error.args[0].code() not in ALLOWED:
            raise
