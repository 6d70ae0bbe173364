"""Types of Protobuf messages that a schema registry keeps: a file for each id, and the files that it imports."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from skep_format.errors import SchemaError
from skep_stream.proto.options import DESCRIPTORS
from skep_stream.proto.types import Types, file_of
from skep_stream.schemas.registry import Registered, SchemaRegistry, read_registered, without_user

_KIND = "PROTOBUF"
_ROOT = "the schema"  # no name of a file that another one imports
_SERIALIZED = "format=serialized"


def registered_types(registry: SchemaRegistry) -> Callable[[int, Sequence[int]], Any]:
    """What finds a message by the id of its file, each read once, and its place there. SchemaError for none."""

    def read(path: str) -> Registered:
        return registry.read(f"{path}?{_SERIALIZED}")

    @cache
    def types(number: int) -> Types:
        path = f"schemas/ids/{number}"
        return _types(path, read(path), read)

    return lambda number, indexes: types(number).at(_ROOT, indexes)


def first_message(url: str, user_info: str) -> Any:
    """The first message of the file at …/subjects/<subject>/versions/<version>, as Confluent takes it."""
    registry = SchemaRegistry((url.partition("/subjects/")[0],), user_info)
    found = read_registered(f"{url}?{_SERIALIZED}", user_info)
    return _types(without_user(url)[0], found, lambda path: registry.read(f"{path}?{_SERIALIZED}")).at(_ROOT, (0,))


def _types(origin: str, found: Registered, read: Callable[[str], Registered]) -> Types:
    files: dict[str, Any] = {}

    def add(name: str, registered: Registered, origin: str) -> None:
        files[name] = _file(name, registered, origin)
        for reference in registered.references:
            if reference.name not in files:
                add(reference.name, read(reference.path), reference.path)

    add(_ROOT, found, origin)
    return Types.of(origin, list(files.values()))


def _file(name: str, found: Registered, origin: str) -> Any:
    if found.kind != _KIND:
        raise SchemaError(f"{origin}: the schema is of {found.kind}, not of Protobuf", found=found.kind, expected=_KIND)
    try:
        return file_of(base64.b64decode(found.text, validate=True), name, origin)
    except binascii.Error as error:
        problem = "the registry has the schema as text only, which can't be read without protoc"
        raise SchemaError.of_file(origin, problem, hint=f"{DESCRIPTORS.key} names a file of descriptors") from error
