"""Topics on the embedded broker, which cannot be administrated."""

from kernelcast.runtime.kafka.admin import TopicResult, apply_topics, list_topics
from kernelcast.runtime.kafka.embedded import EMBEDDED_PARTITIONS, EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.topics import DEVICE, HINTS, TOPICS


def test_the_embedded_broker_starts_with_every_topic_of_the_contract() -> None:
    with EmbeddedBroker() as broker:
        found = list_topics(KafkaSettings(bootstrap_servers=broker.bootstrap_servers))

    assert set(found) == {topic.name for topic in TOPICS}
    assert {state.partitions for state in found.values()} == {EMBEDDED_PARTITIONS}


def test_applying_to_the_embedded_broker_makes_topics_and_says_that_they_are_not_configured() -> None:
    with EmbeddedBroker(topics=[]) as broker:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        changes = apply_topics(settings, [DEVICE, HINTS])
        found = list_topics(settings)

    assert [(change.topic, change.result, change.good) for change in changes] == [
        ("kernelcast.device", TopicResult.TOUCHED, True),
        ("kernelcast.hints", TopicResult.TOUCHED, True),
    ]
    assert set(found) == {"kernelcast.device", "kernelcast.hints"}
