"""Protobuf messages of foreign gRPC services, made from the field numbers in their documentation.

The parser skips fields that are not named here, so a service may add fields. proto2 is used because it records the
presence of fields: an absent member of a `oneof` differs from zero. protobuf (2 MB) is imported for the first message.
"""

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        name: Its name in the service's own definition.
        number: Its field number on the wire.
        kind: A scalar type of protobuf, or the name of a message in the same table.
        repeated: Whether there may be several.
    """

    name: str
    number: int
    kind: str
    repeated: bool = False


Messages = Mapping[str, Sequence[Field]]


def message_classes(package: str, messages: Messages) -> Mapping[str, Any]:
    """Return a class for each message of a table, from a descriptor pool of its own, which avoids clashes of names.

    Args:
        package: The service's package; it is part of method names only, not of messages.
        messages: Name to fields.
    """
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    file = descriptors.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields:
            message.field.append(_described(descriptors.FieldDescriptorProto, package, field, messages))
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pool.Add(file)
    class_of = importlib.import_module("google.protobuf.message_factory").GetMessageClass
    found = {name: class_of(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
    return MappingProxyType(found)


def _described(described_by: Any, package: str, field: Field, messages: Messages) -> Any:
    described = described_by(name=field.name, number=field.number)
    described.label = described_by.LABEL_REPEATED if field.repeated else described_by.LABEL_OPTIONAL
    if field.kind in messages:
        described.type = described_by.TYPE_MESSAGE
        described.type_name = f".{package}.{field.kind}"
    else:
        described.type = described_by.Type.Value(f"TYPE_{field.kind.upper()}")
    return described
