"""Files with types of their own as Arrow tables: Parquet, ORC, Avro."""

from __future__ import annotations

import io

import pyarrow as pa

from skep_format.avro.container import Container
from skep_format.errors import CorruptFileError, InputError, SchemaError


def parquet_rows(name: str, data: bytes) -> pa.Table:
    """All rows. InputError for what is no Parquet file."""
    from pyarrow import parquet

    try:
        return parquet.read_table(pa.BufferReader(data), partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} can't be read: {error}", path=name) from error


def orc_rows(name: str, data: bytes) -> pa.Table:
    """All rows. InputError for what is no ORC file."""
    from pyarrow import orc

    try:
        return orc.ORCFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} can't be read: {error}", path=name) from error


def avro_rows(name: str, data: bytes) -> pa.Table:
    """All rows of a container file, by the schema in it. InputError for what is none."""
    try:
        file = Container(io.BytesIO(data), name)
        return pa.Table.from_batches(file.batches(), file.schema)
    except (CorruptFileError, SchemaError) as error:
        raise InputError(error.message, path=name) from error
