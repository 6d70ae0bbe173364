"""Types of Protobuf messages, from descriptors of files; by full names, and by those of their Java classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from skep_format.errors import OptionError, SchemaError, needs
from skep_format.options import Options
from skep_stream.properties import read_bytes
from skep_stream.proto.options import DESCRIPTORS, MESSAGE

_WELL_KNOWN: Final = re.compile(r"google/protobuf/(\w+)\.proto")
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Types:
    """The types of some files. `origin` is where these were read, for errors."""

    origin: str
    files: Sequence[Any]
    pool: Any
    _names: Mapping[str, str] = field(repr=False, compare=False)

    @classmethod
    def of(cls, origin: str, files: Sequence[Any]) -> Types:
        """Of descriptors of files. SchemaError where one that is imported is missing."""
        names = {name: full_name for file in files for name, full_name in _named(file)}
        return cls(origin, files, _pool(origin, files), names)

    def named(self, name: str) -> Any:
        """A message by its full name or Java's. OptionError for one that is not there."""
        found = self._names.get(name.replace("$", "."))
        if found is None:
            known = sorted(set(self._names.values()))
            more = " and others" if len(known) > _LISTED else ""
            raise OptionError(
                f"{self.origin} has no message {name}",
                hint=f"there are {', '.join(known[:_LISTED])}{more}",
                option=MESSAGE.key,
                found=name,
            )
        return self.pool.FindMessageTypeByName(found)

    def at(self, file: str, indexes: Sequence[int]) -> Any:
        """A message by its place in a file: at the top level, then within messages. SchemaError for none."""
        found: Any = None
        within = list(self.pool.FindFileByName(file).message_types_by_name.values())
        for index in indexes:
            if index >= len(within):
                place = ".".join(map(str, indexes))
                raise SchemaError.of_file(self.origin, f"there is no message {place} in it", found=place)
            found = within[index]
            within = _nested(found)
        return found


def indexes_of(message: Any) -> tuple[int, ...]:
    """The place of a message in its file."""
    outer = message.containing_type
    if outer is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    return (*indexes_of(outer), [each.name for each in _nested(outer)].index(message.name))


def _nested(message: Any) -> list[Any]:
    """As Confluent's Java code counts them: the types that protoc makes of maps are none."""
    return [each for each in message.nested_types if not each.GetOptions().map_entry]


def types_of_file(options: Options) -> Types | None:
    """The types of the file that the options name; None where they name none. OptionError for what is no such file."""
    path = options.value(DESCRIPTORS)
    if not path:
        return None
    proto, message = _library()
    try:
        found = proto.FileDescriptorSet.FromString(read_bytes(path, options))
    except message.DecodeError as error:
        raise _no_descriptors(path) from error
    if not found.file:
        raise _no_descriptors(path)
    return Types.of(path, list(found.file))


def message_of_file(options: Options) -> Any:
    """The message that the options name. OptionError where it or the file is not given."""
    types = types_of_file(options)
    for needed in (MESSAGE, DESCRIPTORS):
        options.needed(needed, "Protobuf messages need", needed.doc)
    assert types is not None
    return types.named(options.value(MESSAGE))


def file_of(serialized: bytes, name: str, origin: str) -> Any:
    """The descriptor of a file, under another name. SchemaError for bytes that are none."""
    proto, message = _library()
    try:
        found = proto.FileDescriptorProto.FromString(serialized)
    except message.DecodeError as error:
        raise SchemaError.of_file(origin, f"not a descriptor of a Protobuf file: {error}") from error
    found.name = name
    return found


def _library() -> tuple[Any, Any]:
    with needs("kafka", "reading Protobuf needs the package protobuf", package="protobuf"):
        from google.protobuf import descriptor_pb2, message
    return descriptor_pb2, message


def _no_descriptors(path: str) -> OptionError:
    return OptionError(
        f"{path} is no file of Protobuf descriptors",
        hint="protoc --include_imports --descriptor_set_out=FILE makes one",
        option=DESCRIPTORS.key,
        path=path,
    )


def _pool(origin: str, files: Sequence[Any]) -> Any:
    """All types, each file behind those that it imports. Google's own files need not be among them."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, known, added = DescriptorPool(), {file.name: file for file in files}, set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = known.get(name) or _well_known(name)
        if file is None:
            return  # the file that imports it is refused below
        for dependency in file.dependency:
            add(dependency)
        pool.Add(file)

    try:
        for name in known:
            add(name)
    except TypeError as error:
        hint = "protoc writes imported files with --include_imports"
        raise SchemaError.of_file(origin, str(error), hint=hint) from error
    return pool


def _well_known(name: str) -> Any | None:
    proto, _ = _library()
    match = _WELL_KNOWN.fullmatch(name)
    try:
        module = import_module(f"google.protobuf.{match[1]}_pb2") if match else None
    except ImportError:
        module = None
    return None if module is None else proto.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _named(file: Any) -> Iterator[tuple[str, str]]:
    """The names of a file's messages, those of their Java classes with `.` for `$`, and the full names."""
    options = file.options
    package = options.java_package if options.HasField("java_package") else file.package
    outer = "" if options.java_multiple_files else options.java_outer_classname or _outer_class(file)
    yield from _within(file.message_type, file.package, ".".join(filter(None, (package, outer))))


def _within(messages: Sequence[Any], prefix: str, java: str) -> Iterator[tuple[str, str]]:
    for each in messages:
        if each.options.map_entry:
            continue
        full_name, java_name = (f"{before}.{each.name}" if before else each.name for before in (prefix, java))
        yield java_name, full_name
        yield full_name, full_name
        yield from _within(each.nested_type, full_name, java_name)


def _outer_class(file: Any) -> str:
    """The class around all of a file: its name in camel case, with a suffix where a type has that name."""
    stem = file.name.rpartition("/")[2].removesuffix(".proto")
    name = "".join(part[:1].upper() + part[1:] for part in re.findall(r"[A-Za-z]+[0-9]*|[0-9]+", stem))
    types = {*_all_names(file.message_type), *(each.name for each in (*file.enum_type, *file.service))}
    return f"{name}OuterClass" if name in types else name


def _all_names(messages: Sequence[Any]) -> Iterator[str]:
    for each in messages:
        yield each.name
        yield from (inner.name for inner in each.enum_type)
        yield from _all_names(each.nested_type)
