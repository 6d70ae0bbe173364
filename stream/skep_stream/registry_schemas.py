"""SchemaRegistryProvider: the newest schemas of subjects, of Avro or, by Hudi's converter, of Protobuf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from skep_format.errors import OptionError, SchemaError, UnsupportedError
from skep_format.options import Options
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema
from skep_stream.proto.columns import Shape, message_rows
from skep_stream.proto.registered import first_message
from skep_stream.protocols import StreamContext
from skep_stream.schemas.registry import CONVERTER, SOURCE_URL, TARGET_URL, read_schema, user_info, without_user

Read = Callable[[str, str], Schema]
"""The schema at an address, for a user with a password."""
_OF_PROTOBUF: Final = "ProtoSchemaToAvroSchemaConverter"


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """The newest schemas of subjects, read again at each use: a stream that goes on follows them."""

    source: str = field(repr=False)
    target: str = field(repr=False)
    read: Read
    user_info: str = field(default="", repr=False)

    def source_schema(self) -> Schema:
        """The columns of the source."""
        return self._read(self.source)

    def target_schema(self) -> Schema | None:
        """The columns of the target, where it has a subject of its own."""
        return self._read(self.target) if self.target else None

    def _read(self, url: str) -> Schema:
        address = without_user(url)[0]
        try:
            return self.read(url, self.user_info).without_meta()
        except SchemaError as error:
            message = error.message if error.message.startswith(address) else f"{address}: {error.message}"
            raise SchemaError(message, hint=error.hint, **{**error.fields, "path": address}) from error


def registry_schemas(context: StreamContext) -> RegistrySchemas:
    """SchemaRegistryProvider. OptionError without an address."""
    options = context.options
    if not options.value(SOURCE_URL):
        raise OptionError(f"SchemaRegistryProvider needs {SOURCE_URL.key}", option=SOURCE_URL.key)
    return RegistrySchemas(options.value(SOURCE_URL), options.value(TARGET_URL), _reader(options), user_info(options))


def _reader(options: Options) -> Read:
    converter = options.value(CONVERTER)
    if not converter:
        return lambda url, user: parse_avro(read_schema(url, user))
    if converter.rpartition(".")[2] == _OF_PROTOBUF:
        return partial(_of_protobuf, Shape.of(options))
    raise UnsupportedError(
        f"{CONVERTER.key}={converter} is not built", option=CONVERTER.key, found=converter, expected=_OF_PROTOBUF
    )


def _of_protobuf(shape: Shape, url: str, user: str) -> Schema:
    return message_rows(first_message(url, user), shape).schema
