"""Topics of several partitions, and what replicas show of them."""

from confluent_kafka.cimpl import NewTopic
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.topics import create_topics


def make(kafka: Broker, *topics: str, partitions: int = 4) -> None:
    create_topics(kafka.bootstrap_servers, [NewTopic(topic, partitions, 1) for topic in topics])


def shown(replicas: Replicas, *indexes: int) -> list[set[str]]:
    """The values of replicas at their last check."""
    looks = [replicas.watch.looks[index] for index in indexes]
    return [set(seen[-1].values) if seen else set() for seen in looks]
