"""Topics of several partitions, and what replicas show of them."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.service.conftest import Broker
from tests.service.replicas import Replicas


def make(kafka: Broker, *topics: str, partitions: int = 4) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for made in client.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        made.result()


def shown(replicas: Replicas, *indexes: int) -> list[set[str]]:
    """The values of replicas at their last check."""
    looks = [replicas.watch.looks[index] for index in indexes]
    return [set(seen[-1].values) if seen else set() for seen in looks]
