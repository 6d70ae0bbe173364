"""ProtoClassBasedSchemaProvider: the columns of a Protobuf message."""

from __future__ import annotations

from skep_stream.proto.columns import Shape, message_rows
from skep_stream.proto.types import message_of_file
from skep_stream.protocols import StreamContext
from skep_stream.schemas.providers import GivenSchemas


def message_schemas(context: StreamContext) -> GivenSchemas:
    """The message that the options name. OptionError for one that is not in the file of descriptors."""
    options = context.options
    return GivenSchemas(message_rows(message_of_file(options), Shape.of(options)).schema)
