"""Input formats besides OTLP in protobuf, each decoded to the same columns."""

from kernelcast.bridge.inputs.formats import FORMATS, TopicFormat
from kernelcast.bridge.inputs.protocol import IdentitySource, Input
from kernelcast.bridge.inputs.rows import timed
from kernelcast.bridge.inputs.selection import InputGroup, Selection

__all__ = ["FORMATS", "IdentitySource", "Input", "InputGroup", "Selection", "TopicFormat", "timed"]
