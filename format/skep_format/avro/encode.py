"""Arrow columns into Avro binary records: the pieces of every value for all rows at once, then joined row by row.

A piece is a binary array with one entry a row: a branch number, a length, a string, a number; or a scalar, the same for
all rows. Arrow's own joins put the pieces of a row, and the elements of a list, together; there is no loop over rows.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.avro.types import AvroType, UnionType, arrow_field, as_record, fixed_size, members_of, null_branch
from skep_format.buffers import bytes_and_offsets
from skep_format.errors import SchemaError
from skep_format.protobuf import format_varint
from skep_format.schema import types
from skep_format.schema.types import Field, Schema, StructType

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Pieces = list[Any]  # binary arrays and scalars; rows that are not asked for have empty entries

_CHUNK_ROWS = 65_536
_FEW_ROWS = 64


@cache
def _empty() -> pa.Scalar:
    """Made when it is first used: Arrow imports pandas for the first value of a process, where it is installed."""
    return pa.scalar(b"", pa.large_binary())


def encode_records(schema: Schema | StructType, table: pa.Table | pa.RecordBatch) -> tuple[pa.Buffer, I64]:
    """The rows as record bytes of `schema`, one after the other, and the offsets between them (rows + 1).

    Columns are found by name; one that is not there is null throughout. SchemaError for a null where the schema allows
    none, or a type that does not fit.
    """
    record = as_record(schema)
    parts: list[Any] = []
    sizes: list[I64] = []
    for at in range(0, table.num_rows, _CHUNK_ROWS):
        joined = _chunk(record, table.slice(at, _CHUNK_ROWS))
        data, offsets = bytes_and_offsets(joined)
        parts.append(data)
        sizes.append(np.diff(offsets))
    lengths = np.concatenate(sizes) if sizes else np.zeros(0, np.int64)
    whole = pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))
    return whole, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _chunk(record: StructType, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    count = rows.num_rows
    everywhere = np.ones(count, np.bool_)
    names = frozenset(rows.schema.names)
    pieces: Pieces = []
    for field in record.fields:
        if field.name not in names and field.nullable and not isinstance(field.type, UnionType):
            pieces.append(_varints(np.full(count, null_branch(field)), everywhere))
            continue
        arrow = arrow_field(field)
        if field.name not in names:
            column: Any = pa.nulls(count, arrow.type)
        else:
            column = rows.column(field.name)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            if column.type != arrow.type:
                column = _cast(column, arrow)
        pieces += _slot(field, column, everywhere, field.name)
    return _joined(pieces, count)


def _cast(column: Any, field: pa.Field) -> Any:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {field.name}: {column.type} does not fit {field.type}: {error}",
            column=field.name, found=str(column.type), expected=str(field.type),
        ) from error  # fmt: skip


def _joined(pieces: Pieces, count: int) -> pa.Array:
    merged: Pieces = []
    for is_same, group in groupby(pieces, lambda piece: isinstance(piece, pa.Scalar)):
        some = list(group)
        merged += [_scalar(b"".join(piece.as_py() for piece in some))] if is_same else some
    if len(merged) > 1:
        return pc.binary_join_element_wise(*merged, _empty())
    (piece,) = merged or [_empty()]
    return pa.repeat(piece, count) if isinstance(piece, pa.Scalar) else piece


def _scalar(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.large_binary())


def _slot(field: Field, values: Any, rows: Mask, path: str) -> Pieces:
    """A value for each of `rows`, behind the number of its branch where it may be null."""
    if isinstance(field.type, UnionType):
        return _union(field.type, values, rows, path)
    valid = _among(rows, values)
    if not field.nullable:
        if valid is not rows and valid.sum() != rows.sum():
            raise SchemaError(f"column {path} must not be null", column=path, found="null", expected=str(values.type))
        return _value(field.type, values, rows, path)
    null_at = null_branch(field)
    if not valid.any():
        return [_branches(null_at, null_at, valid, rows)]
    return [_branches(1 - null_at, null_at, valid, rows), *_value(field.type, values, valid, path)]


def _among(rows: Mask, values: Any) -> Mask:
    """The rows whose value is not null: `rows` itself where none is."""
    nulls = values.null_count
    if not nulls:
        return rows
    if nulls == len(values):
        return np.zeros(len(values), np.bool_)
    return rows & values.is_valid().to_numpy(zero_copy_only=False)


def _value(kind: AvroType, values: Any, rows: Mask, path: str) -> Pieces:
    match kind:
        case types.StringType() | types.UuidType() | types.BinaryType():
            return _sized(values.cast(pa.large_binary()), rows)
        case types.LongType() | types.TimestampType() | types.TimeType(unit="us"):
            return [_varints(_numbers(values, pa.int64()), rows)]
        case types.IntType() | types.DateType() | types.TimeType():
            return [_varints(_numbers(values, pa.int32()).astype(np.int64), rows)]
        case types.DoubleType():
            return [_fixed(_numbers(values, pa.float64()).astype("<f8"), rows)]
        case types.FloatType():
            return [_fixed(_numbers(values, pa.float32()).astype("<f4"), rows)]
        case types.BooleanType():
            return [_fixed(_numbers(values.cast(pa.uint8()), pa.uint8()), rows)]
        case types.DecimalType():
            return _decimals(kind, values, rows, path)
        case types.FixedType():
            return [_cleared(values.cast(pa.large_binary()), rows)]
        case types.EnumType():
            return [_varints(_symbols(kind, values, rows, path), rows)]
        case StructType():
            members = [
                piece
                for number, field in enumerate(kind.fields)
                for piece in _slot(field, values.field(number), rows, f"{path}.{field.name}")
            ]
            return members or [_fixed(np.zeros((len(values), 0), np.uint8), rows)]
        case types.ListType() | types.MapType():
            return _elements(kind, values, rows, path)
        case UnionType():
            return _union(kind, values, rows, path)


def _union(kind: UnionType, values: Any, rows: Mask, path: str) -> Pieces:
    branch = np.full(len(values), -1, np.int64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    asked = rows & valid
    pieces: Pieces = []
    member = 0
    for number, (name, inner) in enumerate(kind.branches):
        if inner is None:
            branch[~valid] = number
            continue
        column = values.field(member)
        member += 1
        if column.null_count == len(column):
            continue
        taken = _among(asked, column)
        branch[taken] = number
        if taken.any():
            pieces += _value(inner, column, taken, f"{path}.{name}")
    if (branch[rows] < 0).any():
        raise SchemaError(f"column {path}: no branch of the union is set", column=path)
    return [_varints(branch, rows), *pieces]


def _varints(values: I64, rows: Mask) -> Any:
    """Zig-zag varints of the values of `rows`, nothing for the others."""
    if len(values) <= _FEW_ROWS:
        return _few([_varint(value) if row else b"" for value, row in zip(values.tolist(), rows.tolist(), strict=True)])
    everywhere = bool(rows.all())
    if not everywhere:
        values = np.where(rows, values, 0)
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if everywhere and least == most and len(values) > 1:
        return _constant(least)
    unsigned = ((values << 1) ^ (values >> 63)).view(np.uint64)
    widest = max(most << 1, ~(least << 1)).bit_length()
    if widest <= 7:
        return _of_width(unsigned.astype(np.uint8).reshape(-1, 1), rows, everywhere=everywhere)
    size = np.ones(len(values), np.int64)
    for bits in range(7, widest, 7):
        size += unsigned >= np.uint64(1 << bits)
    widest_size = -(-widest // 7)
    matrix = np.empty((len(values), widest_size), np.uint8)
    for i in range(widest_size):
        group = (unsigned >> np.uint64(7 * i)).astype(np.uint8) & np.uint8(0x7F)
        matrix[:, i] = group | ((size > i + 1).astype(np.uint8) << np.uint8(7))
    return _ragged(matrix, np.where(rows, size, 0))


def _branches(value_at: int, null_at: int, valid: Mask, rows: Mask) -> Any:
    """The numbers of the branches of a value that may be null; `valid` are those of `rows` that are not."""
    if len(rows) <= _FEW_ROWS:
        value, null = _varint(value_at), _varint(null_at)
        if valid is rows and rows.all():
            return _few([value] * len(rows))
        there = zip(rows.tolist(), valid.tolist(), strict=True)
        return _few([(value if known else null) if row else b"" for row, known in there])
    everywhere = bool(rows.all())
    if everywhere and (valid is rows or value_at == null_at) and len(rows) > 1:
        return _constant(value_at)
    number = np.where(valid, np.uint8(2 * value_at), np.uint8(2 * null_at))  # as zig-zag varints
    return _of_width(number.reshape(-1, 1), rows, everywhere=everywhere)


@lru_cache(maxsize=1024)
def _constant(value: int) -> pa.Scalar:
    """The zig-zag varint of one number."""
    return _scalar(_varint(value))


@lru_cache(maxsize=1024)
def _varint(value: int) -> bytes:
    return format_varint(value << 1 ^ value >> 63)


def _few(pieces: list[bytes]) -> Any:
    """Pieces of few rows, for which a loop takes less than the steps over whole arrays."""
    if len(pieces) > 1 and pieces.count(pieces[0]) == len(pieces):
        return _scalar(pieces[0])
    return pa.array(pieces, pa.large_binary())


def _ragged(matrix: npt.NDArray[np.uint8], size: I64) -> pa.Array:
    """The first `size` bytes of each row of a matrix."""
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    return _binary(offsets, matrix[np.arange(matrix.shape[1]) < size[:, None]])


def _of_width(matrix: npt.NDArray[np.uint8], rows: Mask, *, everywhere: bool | None = None) -> pa.Array:
    """All bytes of `rows` of a matrix, nothing for the others."""
    if rows.all() if everywhere is None else everywhere:
        return _binary(np.arange(len(rows) + 1) * matrix.shape[1], np.ascontiguousarray(matrix))
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(rows, out=offsets[1:])
    return _binary(offsets * matrix.shape[1], matrix[rows])


def _binary(offsets: I64, data: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers, null_count=0)


def _fixed(values: npt.NDArray[Any], rows: Mask) -> pa.Array:
    matrix = values.view(np.uint8).reshape(len(values), -1) if len(values) else np.zeros((0, 1), np.uint8)
    return _of_width(matrix, rows)


def _numbers(values: Any, kind: pa.DataType) -> npt.NDArray[Any]:
    """The numbers behind an array of any type of that width; the values under nulls are undefined."""
    dtype = kind.to_pandas_dtype()
    return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * np.dtype(dtype).itemsize)


def _cleared(values: Any, rows: Mask) -> Any:
    if rows.all():
        return values
    return pc.if_else(pa.array(rows), values, _empty())


def _sized(values: Any, rows: Mask) -> Pieces:
    """The bytes of an array of large binary, each behind its length."""
    if not len(values):
        return [_varints(np.zeros(0, np.int64), rows), values]
    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    return [_varints(np.diff(offsets), rows), _cleared(values, rows)]


def _decimals(kind: types.DecimalType, values: Any, rows: Mask, path: str) -> Pieces:
    little = np.frombuffer(values.buffers()[1], np.uint8, len(values) * 16, values.offset * 16).reshape(-1, 16)
    size = fixed_size(kind) or 0
    if size > 16:
        sign = np.repeat((little[:, 15:].view(np.int8) >> 7).view(np.uint8), size - 16, axis=1)
        return [_fixed(np.concatenate([sign, little[:, ::-1]], axis=1), rows)]
    if size:
        sign = (little[:, size - 1].view(np.int8) >> 7).view(np.uint8)
        if size < 16 and (little[:, size:] != sign[:, None])[rows].any():
            raise SchemaError(f"column {path}: a decimal needs more than {size} bytes", column=path, expected=str(kind))
        return [_fixed(np.ascontiguousarray(little[:, size - 1 :: -1] if size < 16 else little[:, ::-1]), rows)]
    # As Java's BigInteger: the fewest bytes that hold the number with its sign.
    sign = (little[:, 15:].view(np.int8) >> 7).view(np.uint8)
    differs = little != sign
    used = np.where(differs.any(axis=1), 16 - np.argmax(differs[:, ::-1], axis=1), 1)
    top = little[np.arange(len(little)), used - 1]
    used = used + ((top ^ sign[:, 0]) >= 0x80)
    columns = np.minimum(used[:, None] - 1 - np.arange(16), 15)
    matrix = np.take_along_axis(little, np.maximum(columns, 0), axis=1)
    return [_varints(used.astype(np.int64), rows), _ragged(matrix, np.where(rows, used, 0))]


def _symbols(kind: types.EnumType, values: Any, rows: Mask, path: str) -> I64:
    number = pc.index_in(values, value_set=pa.array(kind.symbols, values.type))
    found: I64 = number.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if (found[rows] < 0).any():
        raise SchemaError(f"column {path}: a value that its enum has not", column=path, expected=kind.symbols)
    return found


def _elements(kind: types.ListType | types.MapType, values: Any, rows: Mask, path: str) -> Pieces:
    """Lists and maps: one block with all elements, or none, then the end mark."""
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    # The elements under null slots are encoded too, or refused: only what `rows` own is looked at.
    counts = np.where(rows, np.diff(offsets), 0).astype(np.int64)
    owned = np.repeat(rows, np.diff(offsets))
    # their offsets are not applied
    columns = [values.values] if isinstance(kind, types.ListType) else [values.keys, values.items]
    pieces = [
        piece
        for member, column in zip(members_of(kind), columns, strict=True)
        for piece in _slot(member, column.slice(first, last - first), owned, f"{path}.{member.name}")
    ]
    joined = _joined(pieces, last - first)
    lists = pa.LargeListArray.from_arrays(pa.array((offsets - first).astype(np.int64)), joined)
    body = _cleared(pc.binary_join(lists, _empty()), rows)
    some = counts > 0
    return [_varints(counts, rows & some), body, _fixed(np.zeros(len(values), np.uint8), rows)]
