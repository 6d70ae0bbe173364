"""Files with types of their own as Arrow batches: Parquet, ORC, Avro."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from skep_format.avro.container import Container
from skep_format.errors import CorruptFileError, InputError, SchemaError

TypedRows = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""The columns of a file, and its rows, which are read as they are taken."""
_ROWS: Final = 65_536


def _parquet(_name: str, file: pa.NativeFile) -> TypedRows:
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)
    return opened.schema_arrow, opened.iter_batches(_ROWS)


def _orc(_name: str, file: pa.NativeFile) -> TypedRows:
    from pyarrow import orc

    opened = orc.ORCFile(file)
    return opened.schema, map(opened.read_stripe, range(opened.nstripes))


def _avro(name: str, file: pa.NativeFile) -> TypedRows:
    opened = Container(file, name)
    return opened.schema, opened.batches()


TYPED: Final[Mapping[str, Callable[[str, pa.NativeFile], TypedRows]]] = {
    "parquet": _parquet,
    "orc": _orc,
    "avro": _avro,
}
"""By format: a file's name for errors, and the file, that stays open while rows are taken."""


def typed_rows(format: str, name: str, data: bytes) -> pa.Table:
    """All rows. InputError for what is no file of this format."""
    try:
        schema, batches = TYPED[format](name, pa.BufferReader(data))
        return pa.Table.from_batches(batches, schema)
    except (CorruptFileError, SchemaError) as error:
        raise InputError(error.message, path=name) from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} can't be read: {error}", path=name) from error
