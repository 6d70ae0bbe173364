"""Which columns of a Parquet file are worth a dictionary, and row groups of rows that have some already.

The choice is measured on the first row group, since a dictionary that grows past its page is thrown away after all the
work of building it. Text that is read with its dictionary keeps it until it is written, which spares copying, hashing
and comparing a text for each row: of the meta columns most are one text for all rows of a file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile.parquet_metadata import LENGTH_BYTES
from skep_format.schema.types import COMMIT_SEQNO, FILE_NAME

_SAMPLED_ROWS = 2048
# Where Parquet writers give a dictionary up.
_DICTIONARY_BYTES = 1 << 20
# A dictionary that saves less than this part of the bytes is not worth its time.
_WORTH = 0.8
ENCODED_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text with a dictionary: the type in which base files are read and written where that is faster."""
NEVER_FILTERED = (COMMIT_SEQNO, FILE_NAME)
"""By these no reader selects: they have no statistics, which cost as much as encoding them."""


def constant(text: str, rows: int) -> pa.DictionaryArray:
    """A column with the same text in all rows."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def row_group(batches: Sequence[pa.RecordBatch], schema: pa.Schema, started: pa.Schema | None) -> pa.Table:
    """Batches of `schema`, whose text columns may have dictionaries, as the table that is written as a row group.

    `started` is the schema of the file's first row group; for that one, dictionaries are kept where they make the
    column smaller.
    """
    if started in (None, schema) and all(batch.schema == schema for batch in batches):
        return pa.Table.from_batches(batches, schema)
    columns = []
    for at, field in enumerate(schema):
        chunks = [batch.column(at) for batch in batches]
        columns.append(_column(chunks, field.type, None if started is None else started.field(at).type))
    fields = [pa.field(field.name, found.type, field.nullable) for field, found in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _column(chunks: Sequence[pa.Array], plain: pa.DataType, wanted: pa.DataType | None) -> pa.ChunkedArray:
    encoded_rows = sum(len(chunk) for chunk in chunks if chunk.type == ENCODED_TEXT)
    # Text that came without a dictionary may not be worth one.
    keeps = wanted == ENCODED_TEXT if wanted is not None else 2 * encoded_rows > sum(map(len, chunks))
    if not keeps:
        return pa.chunked_array([chunk.cast(plain) if encoded_rows else chunk for chunk in chunks], plain)
    encoded = [chunk if chunk.type == ENCODED_TEXT else chunk.dictionary_encode() for chunk in chunks]
    unified = pa.chunked_array(encoded, ENCODED_TEXT).unify_dictionaries()
    dictionary = unified.chunk(0).dictionary
    if len(dictionary) == 1:  # one text in all rows, as most meta columns have it
        counts = np.array([len(unified) - unified.null_count])
    else:
        counts = np.zeros(len(dictionary), np.int64)
        for chunk in unified.chunks:
            counts += np.bincount(chunk.indices.drop_null().to_numpy(), minlength=len(dictionary))
    if wanted is None and not _is_worth(dictionary, counts):
        return unified.cast(plain)
    return unified if counts.all() else _without_unused(unified, counts > 0)


def _is_worth(dictionary: pa.Array, counts: npt.NDArray[np.int64]) -> bool:
    sizes = pc.binary_length(dictionary).to_numpy().astype(np.int64) + LENGTH_BYTES
    return _saves(int(sizes[counts > 0].sum()), int((counts > 0).sum()), int(counts.sum()), int(counts @ sizes))


def _without_unused(column: pa.ChunkedArray, used: npt.NDArray[np.bool_]) -> pa.ChunkedArray:
    """What updates have replaced must not stay in the dictionary for good."""
    dictionary = column.chunk(0).dictionary.filter(pa.array(used))
    codes = pa.array((np.cumsum(used) - 1).astype(np.int32))
    chunks = [pa.DictionaryArray.from_arrays(codes.take(chunk.indices), dictionary) for chunk in column.chunks]
    return pa.chunked_array(chunks, ENCODED_TEXT)


def dictionary_columns(rows: pa.Table, plain: Collection[str] = ()) -> list[str]:
    """Parquet paths of the columns that a dictionary makes smaller; those within nested ones all get one, and the
    `plain` ones none.
    """
    count = rows.num_rows
    if count == 1:
        return []
    chosen, measured = [], []
    for field in rows.schema:
        if field.type == ENCODED_TEXT:
            chosen.append(field.name)
        elif pa.types.is_nested(field.type):
            chosen += [path for path, kind in leaves(field.name, field.type) if not pa.types.is_boolean(kind)]
        elif field.name not in plain:
            measured.append(field.name)
    if measured:
        sample = _sample(rows.select(measured))
        chosen += [name for name in measured if _is_worth_it(sample.column(name), count)]
    return chosen


def _sample(rows: pa.Table) -> pa.Table:
    """Some rows from all over the table. Batch by batch: the `take` of a table joins the chunks of a column first."""
    if rows.num_rows <= _SAMPLED_ROWS:
        return rows
    places = np.linspace(0, rows.num_rows - 1, _SAMPLED_ROWS).astype(np.int64)
    taken, start = [], 0
    for batch in rows.to_batches():
        low, high = np.searchsorted(places, [start, start + batch.num_rows])
        if high > low:
            taken.append(batch.take(pa.array(places[low:high] - start)))
        start += batch.num_rows
    return pa.Table.from_batches(taken).combine_chunks()


def _is_worth_it(column: pa.ChunkedArray, rows: int) -> bool:
    valid = len(column) - column.null_count
    if pa.types.is_boolean(column.type) or not valid:
        return not valid  # a column of nulls costs nothing either way
    found = len(column.unique()) - (column.null_count > 0)  # twice as fast as `count_distinct`
    distinct = _distinct_of_all(found, valid, rows * valid // len(column))
    width = column.nbytes / len(column)
    return _saves(distinct * width, distinct, rows, rows * width)


def _saves(dictionary: float, distinct: int, rows: int, plain: float) -> bool:
    """Whether a dictionary of so many bytes with the indices of all rows is worth more than the values, in bytes."""
    indices = rows * math.ceil(math.log2(max(distinct, 2))) / 8
    return dictionary <= _DICTIONARY_BYTES and dictionary + indices < _WORTH * plain


def _distinct_of_all(found: int, sampled: int, rows: int) -> int:
    """How many values `rows` rows have when `sampled` of them had `found`, all values being equally frequent."""
    if sampled >= rows:
        return found
    low, high = found, rows
    while low < high:  # of D values, a sample of n meets D * (1 - e^(-n/D)), which grows with D
        middle = (low + high) // 2
        if middle * -math.expm1(-sampled / middle) < found:
            low = middle + 1
        else:
            high = middle
    return low


def leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The Parquet paths, and the types, of the columns in which a column is stored: its own unless it is nested."""
    if pa.types.is_list(kind):
        yield from leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from leaves(f"{path}.key_value.key", kind.key_type)
        yield from leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from leaves(f"{path}.{kind.field(at).name}", kind.field(at).type)
    else:
        yield path, kind


def leaf_values(values: pa.Array) -> Iterator[pa.Array]:
    """The values of the columns that `leaves` names, in its order. Those within nulls may come, too."""
    kind = values.type
    if pa.types.is_list(kind):
        yield from leaf_values(values.flatten())
    elif pa.types.is_map(kind):
        yield from leaf_values(values.keys)
        yield from leaf_values(values.items)
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from leaf_values(values.field(at))
    else:
        yield values
