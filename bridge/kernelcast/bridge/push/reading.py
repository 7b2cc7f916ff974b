"""How a bridge reads its topics, which its destinations share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.translation.translate import Translator


@dataclass(frozen=True, slots=True)
class Reading:
    """What a destination does not choose itself.

    Attributes:
        topics: What is read where a destination names no topics.
        formats: By topic or pattern, the format of its messages.
        translator: Names series.
    """

    topics: tuple[str, ...] = ()
    formats: Mapping[str, TopicFormat] = field(default_factory=dict)
    translator: Translator = field(default_factory=Translator)
