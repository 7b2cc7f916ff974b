"""A topic that exists already is taken for the one asked for only where it is that one, and empty."""

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.cimpl import NewTopic
from tests.service.conftest import Broker
from tests.service.topics import create_topics

pytestmark = pytest.mark.service


def test_a_topic_that_exists_is_accepted_only_with_the_same_partitions_and_without_messages(
    shared_kafka: Broker,
) -> None:
    servers = shared_kafka.bootstrap_servers
    create_topics(servers, [NewTopic("twice", 2, 1)])
    create_topics(servers, [NewTopic("twice", 2, 1)])
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create_topics(servers, [NewTopic("twice", 3, 1)])
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("twice", b"x")
    assert producer.flush(10) == 0
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create_topics(servers, [NewTopic("twice", 2, 1)])
