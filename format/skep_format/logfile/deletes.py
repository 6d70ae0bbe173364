"""Delete entries: which keys a delete block deletes, and their ordering values (format guide 6.4)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.avro import decode_records, parse_record
from skep_format.avro.types import arrow_of
from skep_format.avro_schemas import RELEASES, schema_of
from skep_format.errors import FormatError, SchemaError
from skep_format.schema.types import StructType

# Hudi's wrappers of ordering values, and the type of what they hold where that is more than the wrapper's own.
_MEANING: Final = {
    "DateWrapper": pa.date32(),
    "LocalDateWrapper": pa.date32(),
    "TimestampMicrosWrapper": pa.timestamp("us", "UTC"),
}
# The wrapper that a column's values are written in. Avro hands timestamps on as plain numbers, so Hudi wraps longs.
_WRITTEN_AS: Final = (
    (pa.types.is_boolean, "BooleanWrapper"),
    (pa.types.is_int64, "LongWrapper"),
    (pa.types.is_timestamp, "LongWrapper"),
    (pa.types.is_integer, "IntWrapper"),
    (pa.types.is_float32, "FloatWrapper"),
    (pa.types.is_float64, "DoubleWrapper"),
    (pa.types.is_string, "StringWrapper"),
    (pa.types.is_binary, "BytesWrapper"),
    (pa.types.is_date32, "DateWrapper"),
    (pa.types.is_decimal, "DecimalWrapper"),
    (pa.types.is_time64, "TimeMicrosWrapper"),
)


_NO_ENTRIES: Final = b"\x00"  # an Avro array without elements


@cache
def delete_record_list() -> StructType:
    """The newest form: the files have no schema, and each release only added branches at the end of the union."""
    return parse_record(schema_of("HoodieDeleteRecordList", RELEASES[-1]))


def read_deletes(content: pa.Buffer, path: str, offset: int) -> pa.Table:
    """The content behind version and length, as columns record_key, partition_path and ordering_value."""
    if content == _NO_ENTRIES:  # as each file group of a metadata table begins
        none = pa.array([], pa.string())
        return pa.table({"record_key": none, "partition_path": none, "ordering_value": pa.nulls(0)})
    starts, lengths = np.zeros(1, np.int64), np.array([len(content)], np.int64)
    batch = decode_records(delete_record_list(), content, starts, lengths, path=path, offset=offset)
    entries = batch.column(0).flatten()
    keys, partitions, ordering = entries.flatten()
    return pa.table(
        {"record_key": keys, "partition_path": partitions, "ordering_value": ordering_values(ordering, path, offset)}
    )


def ordering_values(wrapped: Any, path: str, offset: int) -> Any:
    """Wrapped values as one plain column: a struct of columns when several ordering fields are wrapped together.

    The integer 0 is Hudi's word for "no ordering value": a delete that always applies.
    """
    return _plain(_used(wrapped, zero_is_none=True), len(wrapped), path, offset)


def _used(wrapped: Any, *, zero_is_none: bool) -> list[tuple[str, Any]]:
    """The wrappers that hold values, by name."""
    used = []
    for field, member in zip(wrapped.type, wrapped.flatten(), strict=True):
        if zero_is_none and field.name == "IntWrapper":
            value = member.field("value")
            none = pc.equal(value, pa.scalar(0, pa.int32())).fill_null(False)
            member = pc.if_else(none, pa.scalar(None, member.type), member)
        if member.null_count < len(member):
            used.append((field.name, member))
    return used


def _plain(used: list[tuple[str, Any]], count: int, path: str, offset: int) -> Any:
    if not used:
        return pa.nulls(count)
    if len(used) > 1:
        names = [name for name, _ in used]
        problem = f"deletes with ordering values of different types at byte {offset}: {', '.join(names)}"
        raise FormatError.of_file(path, problem, offset=offset, found=names, expected="one type")
    name, member = used[0]
    if name == "ArrayWrapper":
        return _several(member, path, offset)
    value = member.field("value") if member.null_count == 0 else pc.struct_field(member, "value")
    return value.cast(_MEANING[name]) if name in _MEANING else value


def _several(member: Any, path: str, offset: int) -> Any:
    """Arrays of wrapped values, one entry an ordering field, as a struct with members `0`, `1`, …"""
    lists = pc.struct_field(member, "wrappedValues")
    sizes = pc.unique(pc.list_value_length(lists).drop_null()).to_pylist()
    if len(sizes) != 1:
        problem = f"deletes with different numbers of ordering values at byte {offset}: {sizes}"
        raise FormatError.of_file(path, problem, offset=offset, found=sizes, expected="one number")
    columns = [_one_of_several(pc.list_element(lists, i), path, offset) for i in range(sizes[0])]
    absent = pc.is_null(lists)
    return pa.StructArray.from_arrays(columns, names=[str(i) for i in range(sizes[0])], mask=absent)


def _one_of_several(wrapped: Any, path: str, offset: int) -> Any:
    """Here an integer 0 is a value, but for columns of other types: then it takes the place of null."""
    used = _used(wrapped, zero_is_none=False)
    return _plain(used if len(used) == 1 else _used(wrapped, zero_is_none=True), len(wrapped), path, offset)


def wrap_deletes(deletes: pa.Table) -> pa.Table:
    """The reverse of `read_deletes`: one row with the list of all entries."""
    entry = arrow_of(delete_record_list().fields[0].type).value_type
    union = entry.field("orderingVal").type
    ordering = deletes.column("ordering_value").combine_chunks()
    columns = [deletes.column(name).combine_chunks().cast(pa.string()) for name in ("record_key", "partition_path")]
    entries = pa.StructArray.from_arrays([*columns, wrap_ordering(ordering, union)], fields=list(entry))
    offsets = pa.array([0, len(entries)], pa.int32())
    listed = pa.ListArray.from_arrays(offsets, entries, type=arrow_of(delete_record_list().fields[0].type))
    return pa.table({"deleteRecordList": listed})


def wrap_ordering(values: Any, union: pa.StructType) -> Any:
    """Plain ordering values as a union of wrappers. Null becomes the integer 0: "no ordering value"."""
    absent = pc.is_null(values)
    members = {field.name: pa.nulls(len(values), field.type) for field in union}
    if pa.types.is_struct(values.type):
        name, wrapped = "ArrayWrapper", _wrap_several(values, union.field("ArrayWrapper").type)
        members[name] = pc.if_else(absent, pa.scalar(None, wrapped.type), wrapped)
    elif not pa.types.is_null(values.type):
        name = _wrapper_for(values.type)
        members[name] = _wrap(values, union.field(name).type)
    zero = _wrap(pc.if_else(absent, pa.scalar(0, pa.int32()), None), union.field("IntWrapper").type)
    members["IntWrapper"] = pc.if_else(absent, zero, members["IntWrapper"])
    return pa.StructArray.from_arrays(list(members.values()), fields=list(union))


def _wrap(values: Any, wrapper: pa.StructType) -> Any:
    """Each value in a wrapper; null is no wrapper."""
    held = wrapper.field(0)
    plain = values.cast(pa.timestamp("us", values.type.tz)) if pa.types.is_timestamp(values.type) else values
    if pa.types.is_date32(plain.type) and pa.types.is_int32(held.type):
        plain = plain.cast(pa.int32())
    return pa.StructArray.from_arrays([plain.cast(held.type)], fields=[held], mask=pc.is_null(values))


def _wrap_several(values: Any, wrapper: pa.StructType) -> Any:
    listed = wrapper.field(0).type
    union = listed.value_type
    width = values.type.num_fields
    columns = [wrap_ordering(column, union) for column in values.flatten()]
    # Row by row, field by field: row i's values are at i, rows + i, 2 · rows + i, …
    order = np.arange(len(values) * width).reshape(width, -1).T.ravel()
    items = pa.concat_arrays(columns).take(pa.array(order))
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * np.int32(width))
    lists = pa.ListArray.from_arrays(offsets, items, type=listed)
    return pa.StructArray.from_arrays([lists], fields=list(wrapper))


def _wrapper_for(kind: pa.DataType) -> str:
    for matches, name in _WRITTEN_AS:
        if matches(kind):
            return name
    raise SchemaError(f"an ordering value of type {kind} can't be written to a delete entry", found=str(kind))
