"""Descriptors of Protobuf files from short texts, as protoc makes them of .proto files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FIELD.Type.items()
    if name not in ("TYPE_ENUM", "TYPE_MESSAGE", "TYPE_GROUP")
}
GOOGLES = (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
WELL_KNOWN = tuple(each.name for each in GOOGLES)


def file_of(
    messages: Mapping[str, Mapping[str, str]],
    enums: Mapping[str, Mapping[str, int]] | None = None,
    *,
    name: str = "shop.proto",
    package: str = "shop",
    imports: tuple[str, ...] = WELL_KNOWN,
    **options: Any,
) -> Any:
    """A file of proto3. A field is `type`, `repeated type`, `map<key, type>`, `optional type` or `choice/type`.

    `choice` is a oneof. Types are scalars, `.full.Name` of messages, `enum .full.Name`. A message `A.B` is within `A`.
    """
    made = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    known: dict[str, Any] = {}
    for each, fields in messages.items():
        outer, _, own = each.rpartition(".")
        known[each] = (known[outer].nested_type if outer else made.message_type).add(name=own)
        for number, (field, text) in enumerate(fields.items(), 1):
            _add(known[each], f".{package}.{each}" if package else f".{each}", field, text, number)
    for each, values in (enums or {}).items():
        enum = made.enum_type.add(name=each)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for option, value in options.items():
        setattr(made.options, option, value)
    return made


def _add(message: Any, full_name: str, name: str, text: str, number: int) -> None:
    field = message.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
    if text.startswith("map<"):
        key, value = (part.strip() for part in text[4:-1].split(","))
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for at, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            _typed(entry.field.add(name=part, number=at, label=FIELD.LABEL_OPTIONAL), kind)
        field.label = FIELD.LABEL_REPEATED
        _typed(field, f"{full_name}.{entry.name}")
        return
    if text.startswith("repeated "):
        field.label, text = FIELD.LABEL_REPEATED, text.removeprefix("repeated ")
    oneof, slash, kind = text.rpartition("/")
    if text.startswith("optional "):
        kind, oneof, slash, field.proto3_optional = text.removeprefix("optional "), f"_{name}", "/", True
    if slash:
        names = [each.name for each in message.oneof_decl]
        if oneof not in names:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = names.index(oneof) if oneof in names else len(names)
    _typed(field, kind)


def _typed(field: Any, kind: str) -> None:
    if kind in SCALARS:
        field.type = SCALARS[kind]
    elif kind.startswith("enum "):
        field.type, field.type_name = FIELD.TYPE_ENUM, kind.removeprefix("enum ")
    else:
        field.type, field.type_name = FIELD.TYPE_MESSAGE, kind


def written(path: Path, *files: Any) -> Path:
    """A file of descriptors without those of Google's."""
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    return path


def class_of(file: Any, name: str, *imported: Any) -> Any:
    """The class of a message."""
    pool = descriptor_pool.DescriptorPool()
    for each in GOOGLES:
        pool.AddSerializedFile(each.serialized_pb)
    for each in (*imported, file):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
