"""What a file group of the metadata table holds once all of its changes are merged: the puts of its next base file.

Marks of deleted files, and deleted keys, are no longer among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import MetadataTableError
from skep_table.metadata_table.entries import Entries, alive, latest, since_reset, widened
from skep_table.metadata_table.partitions import FILES, STATS_MEMBER, PartitionKind, record_kind
from skep_table.metadata_table.records.build import record_type, wrapped
from skep_table.metadata_table.records.expression_index import numbers_of_statistics
from skep_table.metadata_table.records.files import files_changed, files_merged, merged_files
from skep_table.metadata_table.records.files import merged_changes as changed_files

_PIECE_ROWS: Final = 65_536
_DELETED: Final = "isDeleted"
_TIGHT: Final = "isTightBound"
_DECIMAL: Final = 10  # the ordinal of decimals among the types that records state
_HIGHEST_TEXT: Final = "\U0010ffff" * 8
_ENDS: Final[Mapping[str, tuple[Any, Any]]] = {
    "StringWrapper": ("", _HIGHEST_TEXT),
    "FloatWrapper": (-math.inf, math.nan),
    "DoubleWrapper": (-math.inf, math.nan),
}
"""Bounds that hold for all values, of the types of which Parquet writers leave bounds out."""


def merged_puts(
    partition: str, entries: Iterable[Entries], release: str, index_type: str | None = None
) -> Iterator[pa.Table]:
    """The records of a file group, oldest first, as puts piece by piece, ascending by their keys.

    `index_type` as for `record_kind`. MetadataTableError for statistics of one file that can't be merged.
    """
    if partition == FILES:
        yield files_merged(merged_files(list(entries))).puts
        return
    kind = record_kind(partition, index_type)
    assert kind is not None, partition
    keys, records = _by_key(partition, entries, kind)
    if len(keys):
        there = records.is_valid()
        yield from _puts(kind, *alive(keys.filter(there), records.filter(there)), release)


def merged_changes(
    partition: str, entries: Sequence[Entries], release: str, index_type: str | None = None
) -> tuple[pa.Table, pa.Array] | None:
    """What the entries of log files come to, oldest first, with one for each key: puts, and keys that were deleted.

    The puts ascend by their keys, and marks of deleted files and partitions are among them. Statistics that replace
    others and were widened since count as widening, and then state more than there is. None where puts would state
    less. `index_type` and errors as for `merged_puts`.
    """
    none = pa.array([], pa.string())
    if partition == FILES:
        changed = changed_files(entries)
        return None if changed is None else (files_changed(changed).puts, none)
    kind = record_kind(partition, index_type)
    assert kind is not None, partition
    keys, records = _by_key(partition, entries, kind)
    deleted = pc.unique(
        pa.concat_arrays([none, *(each.keys.cast(pa.string()) for each in entries if each.records is None)])
    )
    deletes = deleted.filter(pc.invert(pc.is_in(deleted, value_set=keys)))
    pieces = list(_puts(kind, keys, records, release)) if len(keys) else []
    puts = pa.concat_tables(pieces) if pieces else pa.table({"key": none})
    return puts, deletes.take(pc.sort_indices(deletes))


def _by_key(partition: str, entries: Iterable[Entries], kind: PartitionKind) -> tuple[pa.Array, Any]:
    """One record for each key that was not deleted, marks of a deletion among them."""
    return _statistics(entries, partition) if kind.member == STATS_MEMBER else latest(entries, kind.member)


def _puts(kind: PartitionKind, keys: pa.Array, records: Any, release: str) -> Iterator[pa.Table]:
    records = widened(records, record_type(kind.record, release))  # which may know more members than others
    order = pc.sort_indices(keys)  # by their bytes, as in an HFile
    for at in range(0, len(keys), _PIECE_ROWS):
        some = order[at : at + _PIECE_ROWS]
        numbers = numbers_of_statistics(keys.take(some), kind.number) if kind.member == STATS_MEMBER else None
        yield pa.table({"key": keys.take(some), "record": wrapped(kind, records.take(some), numbers)})


# -- statistics --------------------------------------------------------------------------------------------------------


def _statistics(entries: Iterable[Entries], partition: str) -> tuple[pa.Array, Any]:
    """One record for each key: those since the last one that replaces all before it, added up."""
    keys, found = since_reset(entries, STATS_MEMBER, (_DELETED, _TIGHT))
    if not len(keys):
        return keys, found
    code = keys.dictionary_encode().indices.to_numpy()
    several = np.bincount(code)[code] > 1
    if not several.any():
        return keys, found
    single = pa.array(~several)
    order = np.flatnonzero(several)[np.argsort(code[several], kind="stable")]
    rows = zip(keys.take(pa.array(order)).to_pylist(), found.take(pa.array(order)).to_pylist(), strict=True)
    # Those of few keys: a partition that was widened, a log file that two commits wrote to.
    sums = {key: _sum([record for _, record in same], partition) for key, same in groupby(rows, lambda row: row[0])}
    there = [key for key, record in sums.items() if record is not None]
    added = pa.array([sums[key] for key in there], found.type)
    return (
        pa.concat_arrays([keys.filter(single), pa.array(there, pa.string())]),
        pa.concat_arrays([found.filter(single), added]),
    )


def _sum(records: list[dict[str, Any]], partition: str) -> dict[str, Any] | None:
    """The records of one key, oldest first, as one; None where only marks of a deletion are left."""
    alive = [record for record in records if not record[_DELETED]]
    if not alive:
        return None
    total = dict(alive[-1])
    for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"):
        total[name] = sum(record[name] or 0 for record in alive)
    total[_TIGHT] = len(alive) == 1 and bool(alive[0].get(_TIGHT))
    stated = [record for record in alive if _wrapper(record) is not None]
    if stated:
        total |= _bounds(stated, partition, open_ended=any(_lacks_bounds(record) for record in alive))
    return total


def _lacks_bounds(record: Mapping[str, Any]) -> bool:
    """Whether all values count as null: Hudi states that too where a footer has no bounds."""
    return _wrapper(record) is None and (record["valueCount"] or 0) > 0


def _wrapper(record: Mapping[str, Any]) -> str | None:
    """Which of the wrappers a bound is in."""
    bound = record["minValue"] or record["maxValue"]
    return None if bound is None else next((name for name, value in bound.items() if value is not None), None)


def _bounds(records: list[dict[str, Any]], partition: str, *, open_ended: bool) -> dict[str, Any]:
    """`open_ended`: others that are counted in may have any values."""
    wrappers = {_wrapper(record) for record in records}
    if len(wrappers) > 1:
        column, name = records[-1]["columnName"], records[-1]["fileName"]
        raise MetadataTableError(
            f"{partition}: the statistics of column {column} of {name} are of several types",
            hint="skep metadata rebuild makes the metadata table again",
            column=column,
            found=sorted(map(str, wrappers)),
        )
    (wrapper,) = wrappers
    assert wrapper is not None
    lows, highs = (
        [record[name][wrapper] for record in records if record[name] is not None] for name in ("minValue", "maxValue")
    )
    if open_ended and wrapper in _ENDS:
        low, high = ({"value": end} for end in _ENDS[wrapper])
    else:
        order = _order_of(records[-1])
        low, high = min(lows, key=order), max(highs, key=order)
    members = dict.fromkeys(records[-1]["minValue"])
    stated = next((record["valueType"] for record in reversed(records) if record.get("valueType")), None)
    typed = {} if stated is None else {"valueType": stated}
    return {"minValue": {**members, wrapper: low}, "maxValue": {**members, wrapper: high}, **typed}


def _order_of(record: Mapping[str, Any]) -> Any:
    """How the values of a column are ordered: NaN above all numbers, decimals by the numbers that their bytes are."""
    stated = record.get("valueType") or {}
    if stated.get("typeOrdinal") == _DECIMAL:
        return lambda wrapped: int.from_bytes(wrapped["value"], "big", signed=True)

    def order(wrapped: Mapping[str, Any]) -> Any:
        value = wrapped["value"]
        if isinstance(value, float):
            return math.isnan(value), 0.0 if math.isnan(value) else value
        if isinstance(value, str):
            return value.encode()
        return value

    return order
