"""Protobuf messages of other people's gRPC services, made from the field numbers that they publish.

A field that we do not name is skipped by the parser, so a service may grow. proto2 is used for its presence: what a
`oneof` of the service leaves out is told from zero.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        name: As the service's own definition has it.
        number: On the wire.
        kind: A scalar type of protobuf, or the name of a message in the same table.
        repeated: Whether there may be several.
    """

    name: str
    number: int
    kind: str
    repeated: bool = False


Messages = Mapping[str, Sequence[Field]]


def message_classes(package: str, messages: Messages) -> Mapping[str, Any]:
    """Classes for a table of messages, in a pool of their own: the process may hold others of the same name.

    Args:
        package: As the service has it; it stands in no message, only in method names.
        messages: Name to fields.
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields:
            message.field.append(_described(package, field, messages))
    pool = DescriptorPool()
    pool.Add(file)
    found = {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
    return MappingProxyType(found)


def _described(package: str, field: Field, messages: Messages) -> FieldDescriptorProto:
    described = FieldDescriptorProto(name=field.name, number=field.number)
    described.label = FieldDescriptorProto.LABEL_REPEATED if field.repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if field.kind in messages:
        described.type = FieldDescriptorProto.TYPE_MESSAGE
        described.type_name = f".{package}.{field.kind}"
    else:
        described.type = FieldDescriptorProto.Type.Value(f"TYPE_{field.kind.upper()}")
    return described
