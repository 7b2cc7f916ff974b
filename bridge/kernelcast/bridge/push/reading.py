"""The bridge's settings that all destinations share: topics, formats, naming. `Bridge` makes one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.translation.translate import Translator


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The bridge's settings that apply to every destination.

    Attributes:
        topics: Topics of a destination that names none.
        formats: By topic or pattern, the format of its messages.
        translator: Names series.
    """

    topics: tuple[str, ...] = ()
    formats: Mapping[str, TopicFormat] = field(default_factory=dict)
    translator: Translator = field(default_factory=Translator)
