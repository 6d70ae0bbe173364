"""The `files` partition: for each partition path a map of file names, newer records merged over older ones (guide 7.4).

A newer record adds files, and deletes those that it marks deleted; of several sizes of one file the largest counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.entries import Entries
from skep_table.metadata_table.partitions import FILES_MEMBER

_NONE: Final = pa.table(
    {"key": pa.array([], pa.string()), "name": pa.array([], pa.string()), "size": pa.array([], pa.int64())}
)


def merged_files(entries: Iterable[Entries]) -> pa.Table:
    """The live files as columns `key`, `name`, `size`, sorted by key and name."""
    rows = _rows(entries)
    return _NONE if rows is None else _merge(rows)


def merged_changes(entries: Iterable[Entries]) -> pa.Table | None:
    """What the entries come to for the files below them: as `key`, `name`, `size`, `deleted`, each file once.

    None where all files of a key were deleted at once, of which they name none.
    """
    rows = _rows(entries)
    if rows is None:
        return _NONE.append_column("deleted", pa.array([], pa.bool_()))
    if rows["name"].null_count:
        return None
    live = _merge(rows)
    ended = rows.filter(rows["deleted"]).group_by(["key", "name"]).aggregate([])
    ended = ended.join(live.select(["key", "name"]), ["key", "name"], join_type="left anti")
    deleted = ended.append_column("size", pa.array(np.zeros(len(ended), np.int64)))
    sides = ((live, False), (deleted, True))
    return pa.concat_tables([side.append_column("deleted", pa.array(np.full(len(side), mark))) for side, mark in sides])


def _rows(entries: Iterable[Entries]) -> pa.Table | None:
    """All that the entries state, as `key`, `name`, `size`, `deleted`, and the `number` of the entry; None for none."""
    tables = []
    for number, source in enumerate(entries):
        if source.records is None:
            whole = pa.table({"key": source.keys})
            tables.append(_numbered(whole, number, name=None, size=0, deleted=True))
            continue
        maps = source.records.column(FILES_MEMBER)
        owners, names, infos = _entries_of(maps)
        sizes, deleted = infos.flatten()
        rows = pa.table({"key": source.keys.take(owners), "name": names, "size": sizes, "deleted": deleted})
        tables.append(rows.append_column("number", pa.array(np.full(len(rows), number, np.int64))))
    return pa.concat_tables(tables) if tables else None


def _entries_of(maps: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.StructArray]:
    """All maps' entries, one after the other: which map each is of, file names, file infos."""
    offsets = maps.offsets.to_numpy()
    sizes = np.diff(offsets)
    owners = pa.array(np.repeat(np.arange(len(maps)), sizes))
    count = int(sizes.sum())
    return owners, maps.keys.slice(int(offsets[0]), count), maps.items.slice(int(offsets[0]), count)


def _numbered(table: pa.Table, number: int, *, name: str | None, size: int, deleted: bool) -> pa.Table:
    count = len(table)
    return pa.table(
        {
            "key": table.column("key"),
            "name": pa.array([name] * count, pa.string()),
            "size": pa.array(np.full(count, size, np.int64)),
            "deleted": pa.array(np.full(count, deleted)),
            "number": pa.array(np.full(count, number, np.int64)),
        }
    )


def _merge(rows: pa.Table) -> pa.Table:
    whole = pc.is_null(rows["name"])
    dropped = rows.filter(whole).group_by("key").aggregate([("number", "max")]).rename_columns(["key", "dropped"])
    named = rows.filter(pc.invert(whole))
    deletions = named.filter(named["deleted"]).group_by(["key", "name"]).aggregate([("number", "max")])
    live = named.filter(pc.invert(named["deleted"]))
    live = live.join(deletions, ["key", "name"]).join(dropped, ["key"])
    after = pc.greater(live["number"], pc.fill_null(live["number_max"], -1))
    after = pc.and_(after, pc.greater(live["number"], pc.fill_null(live["dropped"], -1)))
    sizes = live.filter(after).group_by(["key", "name"]).aggregate([("size", "max")])
    return sizes.rename_columns(["key", "name", "size"]).sort_by([("key", "ascending"), ("name", "ascending")])
