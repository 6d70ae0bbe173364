"""Messages of Avro as rows: Confluent's form, whose schema is in a registry, or plain records of one schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.avro.decode import decode_records
from skep_format.errors import CorruptFileError, InputError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.types import Schema, StructType
from skep_stream.kafka.confluent import HEADER, Rows
from skep_stream.kafka.parts import MessagePart, Parts


def avro_messages(
    topic: str,
    batch: pa.RecordBatch,
    *,
    writers: Callable[[int], StructType] | StructType,
    target: Schema | None,
    rejected: Rejected | None,
) -> tuple[pa.Table, pa.RecordBatch]:
    """The rows, of `target` or of all columns, and their messages, by `writers`: the schemas of ids, or that of all.

    InputError names topic, partition and offset of a message that can't be read; with `rejected` it is left out.
    """
    parts = Parts.of(topic, batch, rejected)
    if isinstance(writers, StructType):
        return parts.rows([MessagePart(partial(_records, writers), 0, parts.every)], target)
    found = ((parts.fitting(rows, partial(writers, number)), rows) for number, rows in parts.by_id())
    return parts.rows(
        (MessagePart(partial(_records, each), HEADER, rows) for each, rows in found if each is not None), target
    )


def _records(writer: StructType, data: npt.NDArray[np.uint8], starts: Rows, ends: Rows) -> pa.RecordBatch:
    try:
        return decode_records(writer, data, starts, ends - starts)
    except CorruptFileError as error:
        raise InputError(error.message.partition(": ")[2] or error.message) from error
