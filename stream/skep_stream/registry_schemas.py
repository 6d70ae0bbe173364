"""Schemas of a registry, of Avro or, by Hudi's converter, of Protobuf, and of Protobuf messages by a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from skep_format.errors import SchemaError, UnsupportedError
from skep_format.options import Option, Options
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema
from skep_stream.proto.columns import Shape, message_rows
from skep_stream.proto.registered import first_message
from skep_stream.proto.types import message_of_file
from skep_stream.protocols import ReadSchemas, StreamContext
from skep_stream.schemas.registry import CONVERTER, SOURCE_URL, TARGET_URL, read_schema, user_info, without_user

Read = Callable[[str, str], Schema]
"""The schema at an address, for a user with a password."""
_OF_PROTOBUF: Final = "ProtoSchemaToAvroSchemaConverter"


def registry_schemas(context: StreamContext) -> ReadSchemas:
    """SchemaRegistryProvider. OptionError without an address."""
    options = context.options
    options.needed(SOURCE_URL, "SchemaRegistryProvider needs")
    read, user = _reader(options), user_info(options)

    def schema(known: Option[str]) -> Schema | None:
        url = options.value(known)
        address = without_user(url)[0]
        try:
            return read(url, user).without_meta() if url else None
        except SchemaError as error:
            message = error.message if error.message.startswith(address) else f"{address}: {error.message}"
            raise SchemaError(message, hint=error.hint, **{**error.fields, "path": address}) from error

    return ReadSchemas(partial(schema, SOURCE_URL), partial(schema, TARGET_URL))


def message_schemas(context: StreamContext) -> ReadSchemas:
    """ProtoClassBasedSchemaProvider: the columns of the message that the options name. OptionError for one that is not
    in the file of descriptors."""
    options = context.options
    return ReadSchemas.known(message_rows(message_of_file(options), options.read(Shape)).schema)


def _reader(options: Options) -> Read:
    converter = options.value(CONVERTER)
    if not converter:
        return lambda url, user: parse_avro(read_schema(url, user))
    if converter.rpartition(".")[2] == _OF_PROTOBUF:
        shape = options.read(Shape)
        return lambda url, user: message_rows(first_message(url, user), shape).schema
    raise UnsupportedError(
        f"{CONVERTER.key}={converter} is not built", option=CONVERTER.key, found=converter, expected=_OF_PROTOBUF
    )
