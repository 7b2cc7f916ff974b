"""Input formats besides OTLP in protobuf, each a leaf module, decoded to the same columns."""

from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.parsing import Parsing
from kernelcast.bridge.inputs.protocol import IdentitySource, Input
from kernelcast.bridge.inputs.rows import BatchRows, timed
from kernelcast.bridge.inputs.selection import InputGroup, Selection

__all__ = ["BatchRows", "IdentitySource", "Input", "InputGroup", "Parsing", "Selection", "TopicFormat", "timed"]
