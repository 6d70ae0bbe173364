"""Tagging the rows that Spark holds: keys are shuffled by candidate file, so that each file is read by one task.

    payloads → candidates → shuffle by file → confirm → shuffle by payload → tags beside the payloads

Only where some key is in several files, and one of them has to be chosen, do such keys go to these files once more.

The shuffles move keys one way and numbers the other; the driver sees counts only. Numbers of files go back to the
payloads by a join: broadcast while they are few, else the payloads are shuffled once more. An index that needs no file
tags the payloads where they are; one with shards gets the keys by shard, before the shuffle by file.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skep_format.errors import RowsChangedError
from skep_format.runner import Runner, ThreadRunner
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.hashes import key_hashes
from skep_table.keys.text import single
from skep_table.write.indexes.contract import Candidates, KeyLookUp
from skep_table.write.indexes.global_tagging import tagged_counts
from skep_table.write.indexes.tagging import (
    Found,
    Hits,
    Tagging,
    hits_of,
    in_shards,
    joined,
    of_several,
    parts_by_number,
    resolved,
    share,
)
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.planning.profile import pack as pack_tasks
from skep_table.write.tags import NEW_KEY, Located
from skep_writer.edge import Batches, map_frame, pack, slots, unpack
from skep_writer.writing.tasks import ROUTED, arrivals, buffer_of, cut_by_code, payloads_of, pieces, row_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAYLOADS = pa.schema([pa.field("id", pa.int64()), pa.field("payload", pa.binary())])
TAGGED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("payload", pa.binary()),
        pa.field("tags", pa.binary()),
        pa.field("positions", pa.binary()),
        pa.field("paths", pa.list_(pa.string())),
        pa.field("files", pa.list_(pa.int64())),
        pa.field("counts", pa.list_(pa.int64())),
    ]
)
_ASKED: Final = pa.schema([pa.field("slot", pa.int32()), pa.field("id", pa.int64()), pa.field("share", pa.binary())])
_HITS: Final = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("checksum", pa.int64()),
        pa.field("rows", pa.binary()),
        pa.field("files", pa.binary()),
        pa.field("positions", pa.binary()),
        pa.field("several", pa.bool_()),
    ]
)
# Rows that one task combines by key for a global index.
_ROWS_A_TASK: Final = 250_000
# About what a key takes in a shuffle, and a footer with its bloom filter when it is read.
_KEY_BYTES: Final = 48
_FOOTER_BYTES: Final = 512 << 10
_BROADCAST_BYTES: Final = 64 << 20
# Files that one task reads at a time: storage answers late, and the key columns of all are in memory.
_THREADS: Final = 4


def tag(
    payloads: DataFrame, tagging: Tagging, rows: int, runner: Runner, hold: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """A frame of TAGGED for one of PAYLOADS with so many rows. `hold` persists what is evaluated more than once.

    Raises what the index raises; RowsChangedError when Spark evaluated the payloads again and they were others.
    """
    parallelism = payloads.sparkSession.sparkContext.defaultParallelism
    if tagging.relocation is not None:  # the rows of one key meet in one task, from whatever partitions of the table
        count = max(1, min(2 * parallelism, -(-rows // _ROWS_A_TASK)))
        cut = map_frame(payloads, ByKey(slots(count)), ROUTED)
        by_key = cut.repartition(count, "slot").sortWithinPartitions("slot", "arrival").select("payload")
        if not tagging.look_up.confirms:
            return map_frame(by_key, TagCombined(tagging), TAGGED)
        payloads = hold(map_frame(by_key, Combine(tagging), PAYLOADS))
    elif not tagging.look_up.confirms:
        return map_frame(payloads, Tag(tagging), TAGGED)
    hits = hold(_hits(payloads, tagging, rows, runner, parallelism))
    size = "coalesce(sum(length(rows) + length(files) + coalesce(length(positions), 0)), 0) as size"
    found = hits.selectExpr(size, "coalesce(max(several), false) as several").collect()[0]
    hint = "broadcast" if found.size <= _BROADCAST_BYTES else "merge"
    chooses = tagging.look_up.among_several
    if chooses is not None and found.several:
        by_file = _Tasks.of_files(tagging, parallelism)
        unsure = map_frame(_with_hits(payloads, hits, hint), AskAgain(by_file), _ASKED)
        hits = hold(_confirmed(unsure, chooses, by_file))
    return map_frame(_with_hits(payloads, hits, hint), Settle(tagging), TAGGED)


def _with_hits(payloads: DataFrame, hits: DataFrame, hint: str) -> DataFrame:
    columns = ("id", "payload", "checksum", "rows", "files", "positions")
    return payloads.join(hits.hint(hint), "id", "left").select(*columns)


def _hits(payloads: DataFrame, tagging: Tagging, rows: int, runner: Runner, parallelism: int) -> DataFrame:
    """A frame of _HITS: one row for each payload, with its rows that are in a file."""
    look_up = tagging.look_up
    by_file = _Tasks.of_files(tagging, parallelism)
    if look_up.shard_bytes:
        by_shard = _Tasks.of(look_up.shard_bytes, parallelism)
        shards = map_frame(payloads, Ask(look_up, by_shard), _ASKED).repartition(len(by_shard.slots), "slot")
        asked = map_frame(shards.select("id", "share"), LookIntoShards(look_up, by_file), _ASKED)
    else:
        # Without ranges each key goes to every task that has files of its partition.
        copies = min(len(by_file.slots), max((len(of_path) for of_path in _groups(tagging)), default=0))
        if rows * _KEY_BYTES * (copies - 1) > len(by_file.slot_of) * _FOOTER_BYTES:
            look_up = look_up.with_ranges(runner)
        asked = map_frame(payloads, Ask(look_up, by_file), _ASKED)
    return _confirmed(asked, look_up, by_file)


def _confirmed(asked: DataFrame, look_up: KeyLookUp, by_file: _Tasks) -> DataFrame:
    """A frame of _HITS for one of _ASKED."""
    shares = asked.repartition(len(by_file.slots), "slot").select("id", "share")
    confirmed = map_frame(shares, Confirm(look_up), _HITS)
    return map_frame(confirmed.repartition(len(by_file.slots), "id").sortWithinPartitions("id"), MergeHits(), _HITS)


@dataclass(frozen=True)
class _Tasks:
    """The slots of tasks, and for each number, of a file or shard, that of the task which reads it."""

    slots: Sequence[int]
    slot_of: np.ndarray[Any, np.dtype[np.int32]]

    @classmethod
    def of(cls, sizes: Sequence[int], parallelism: int) -> _Tasks:
        """Balanced by the sizes of what is read."""
        tasks = pack_tasks(sizes, 2 * parallelism) or [[]]
        numbers = slots(len(tasks))
        slot_of = np.full(len(sizes), numbers[0], np.int32)
        for task, positions in enumerate(tasks):
            slot_of[positions] = numbers[task]
        return cls(numbers, slot_of)

    @classmethod
    def of_files(cls, tagging: Tagging, parallelism: int) -> _Tasks:
        """Those that read the candidate files."""
        return cls.of([file.size_bytes for of_path in tagging.files.values() for file in of_path], parallelism)

    def of_payload(self, id_: int) -> int:
        """The task that passes on what is known about a payload."""
        return self.slots[id_ % len(self.slots)]

    def shares(self, candidates: Candidates) -> Iterator[tuple[int, Candidates]]:
        """The candidates of each task."""
        spans: dict[int, list[tuple[int, int, int]]] = {}
        for span in candidates.spans:
            spans.setdefault(int(self.slot_of[span[0]]), []).append(span)
        for slot, of_slot in spans.items():
            yield slot, share(candidates, of_slot)


def _groups(tagging: Tagging) -> list[Any]:
    """The candidate files that a key may have, by partition; of a global index all files together."""
    files: CandidateFiles = tagging.files
    if tagging.relocation is not None:
        return [[file for of_path in files.values() for file in of_path]]
    return list(files.values())


class ByKey:
    """Payloads are cut up by the hash of their keys."""

    def __init__(self, slot_of: Sequence[int]) -> None:
        self._slot_of = np.array(slot_of, np.int32)

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for arrival, table in _payloads(batches):
            parts = key_hashes(table.column(RECORD_KEY).combine_chunks()) % np.uint64(len(self._slot_of))
            yield cut_by_code(table, parts.astype(np.int32), self._slot_of, arrival)


class Combine:
    """All rows of a task's keys: those that are looked up, as new payloads."""

    def __init__(self, tagging: Tagging) -> None:
        self._tagging = tagging

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        tables = [unpack(value) for value in payloads_of(batches)]
        if tables:
            for number, table in zip(arrivals(), pieces(self._rows(tables)), strict=False):
                yield row_of(PAYLOADS, id=number, payload=pack(table))

    def _rows(self, tables: list[pa.Table]) -> pa.Table:
        return self._tagging.combined(pa.concat_tables(tables).combine_chunks())


class TagCombined(Combine):
    """The same where no file has to be read: tagged at once."""

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        tables = [unpack(value) for value in payloads_of(batches)]
        if tables:
            rows = self._rows(tables)
            yield from _tagged_rows(*self._tagging.settled(rows, _known(self._tagging.look_up, rows)))


class Tag:
    """Payloads get their tags beside them; no file has to be read."""

    def __init__(self, tagging: Tagging) -> None:
        self._tagging = tagging

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for batch in batches:
            for at in range(batch.num_rows):
                table = unpack(batch.column(1)[at])
                _, located = self._tagging.settled(table, _known(self._tagging.look_up, table))
                yield _tagged_row(batch.column(0)[at].as_py(), batch.column(1)[at].as_buffer(), table, located)


class Ask:
    """Of each payload the keys that files, or shards, may hold, for their tasks; and what is known without any."""

    def __init__(self, look_up: KeyLookUp, tasks: _Tasks) -> None:
        self._look_up = look_up
        self._tasks = tasks

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for batch in batches:
            for at in range(batch.num_rows):
                id_, payload = batch.column(0)[at].as_py(), batch.column(1)[at]
                found = self._look_up.candidates(unpack(payload).select(self._look_up.columns))
                known = np.flatnonzero(found.numbers != NEW_KEY)
                hits = zlib.crc32(payload.as_buffer()), (known, found.numbers[known], None)
                yield _asked_row(self._tasks.of_payload(id_), id_, hits)
                for slot, part in self._tasks.shares(found.candidates):
                    yield _asked_row(slot, id_, part)


def _received(batches: Batches) -> Iterator[tuple[int, Any]]:
    """What is sent to a task, each part beside the payload that it belongs to."""
    for batch in batches:
        for id_, value in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            yield id_, pickle.loads(value.as_buffer())


class AskAgain:
    """Of each payload with its hits the keys that several files hold, for the tasks of these; and the other hits."""

    def __init__(self, tasks: _Tasks) -> None:
        self._tasks = tasks

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for batch in batches:
            for at in range(batch.num_rows):
                id_, payload, checksum, *hits = (column[at] for column in batch.columns)
                keys = single(_unchanged(payload, checksum).column(RECORD_KEY))
                sure, unsure = of_several(_hits_in(*(each.as_buffer() for each in hits)), keys)
                yield _asked_row(self._tasks.of_payload(id_.as_py()), id_.as_py(), (checksum.as_py(), sure))
                for slot, part in self._tasks.shares(unsure):
                    yield _asked_row(slot, id_.as_py(), part)


class LookIntoShards:
    """All keys for the shards of a task: each is looked into once. What is not sure goes on to the tasks of files."""

    def __init__(self, look_up: KeyLookUp, tasks: _Tasks) -> None:
        self._look_up = look_up
        self._tasks = tasks

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        ids: list[int] = []
        shares: list[Candidates] = []
        for id_, found in _received(batches):
            if isinstance(found, Candidates):
                ids.append(id_)
                shares.append(found)
            else:
                yield _asked_row(self._tasks.of_payload(id_), id_, found)
        for at, hits, unsure in in_shards(self._look_up, shares):
            if len(hits[0]):
                yield _asked_row(self._tasks.of_payload(ids[at]), ids[at], (None, hits))
            for slot, part in self._tasks.shares(unsure):
                yield _asked_row(slot, ids[at], part)


class Confirm:
    """All keys for the files of a task: each file is read once, and what it holds goes back to the payloads."""

    def __init__(self, look_up: KeyLookUp) -> None:
        self._look_up = look_up

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        ids: list[int] = []
        shares: list[Candidates] = []
        for id_, found in _received(batches):
            if isinstance(found, Candidates):
                ids.append(id_)
                shares.append(found)
            else:
                checksum, hits = found
                yield _hits_row(id_, checksum, hits)
        parts = parts_by_number(shares)

        def confirm(number: int) -> list[tuple[int, Hits]]:
            keys = [shares[at].keys.slice(low, high - low) for at, low, high in parts[number]]
            positions = self._look_up.confirm(number, pa.concat_arrays(keys))
            ends = np.cumsum([len(each) for each in keys])[:-1]
            return [
                (at, hits_of(self._look_up, number, part, shares[at].rows[low:high]))
                for (at, low, high), part in zip(parts[number], np.split(positions, ends), strict=True)
            ]

        of_shares: dict[int, list[Hits]] = {}
        for found in ThreadRunner(_THREADS).map(confirm, sorted(parts)):
            for at, hits in found:
                if len(hits[0]):
                    of_shares.setdefault(at, []).append(hits)
        for at, of_share in of_shares.items():
            yield _hits_row(ids[at], None, joined(of_share))


class MergeHits:
    """Sorted by payload: one row for each, with the hits of all tasks."""

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        current: int | None = None
        checksum: int | None = None
        hits: list[Hits] = []
        for batch in batches:
            for row in batch.to_pylist():
                if current is not None and row["id"] != current:
                    yield _hits_row(current, checksum, joined(hits))
                    checksum, hits = None, []
                current = row["id"]
                checksum = row["checksum"] if row["checksum"] is not None else checksum
                hits.append(_hits_in(row["rows"], row["files"], row["positions"]))
        if current is not None:
            yield _hits_row(current, checksum, joined(hits))


class Settle:
    """Payloads with their hits beside them get their tags; a global index may change their rows."""

    def __init__(self, tagging: Tagging) -> None:
        self._tagging = tagging

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        combined: list[tuple[pa.Table, Found]] = []
        for batch in batches:
            for at in range(batch.num_rows):
                id_, payload, checksum, *hits = (column[at] for column in batch.columns)
                table = _unchanged(payload, checksum)
                found = resolved(
                    np.full(table.num_rows, NEW_KEY, np.int64), [_hits_in(*(each.as_buffer() for each in hits))]
                )
                if self._tagging.relocation is None:
                    _, located = self._tagging.settled(table, found)
                    yield _tagged_row(id_.as_py(), payload.as_buffer(), table, located)
                else:
                    combined.append((table, found))
        if combined:
            tables, of_tables = zip(*combined, strict=True)
            whole = pa.concat_tables(tables).combine_chunks()
            yield from _tagged_rows(*self._tagging.settled(whole, Found.joined(of_tables)))


def _unchanged(payload: pa.Scalar, checksum: pa.Scalar) -> pa.Table:
    """The rows of a payload, which have to be those that were looked up."""
    if checksum.as_py() != zlib.crc32(payload.as_buffer()):
        raise RowsChangedError(
            "the rows of the frame changed while they were written: Spark evaluated some of them again",
            hint="write a frame that gives the same rows each time, or persist it before",
        )
    return unpack(payload)


def _known(look_up: KeyLookUp, rows: pa.Table) -> Found:
    return Found(look_up.candidates(rows.select(look_up.columns)).numbers)


def _payloads(batches: Batches) -> Iterator[tuple[int, pa.Table]]:
    for batch in batches:
        for id_, value in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            yield id_, unpack(value)


def _asked_row(slot: int, id_: int, found: Candidates | tuple[int | None, Hits]) -> pa.Table:
    return row_of(_ASKED, slot=slot, id=id_, share=pickle.dumps(found))


def _hits_row(id_: int, checksum: int | None, hits: Hits) -> pa.Table:
    rows, files, positions = hits
    return row_of(
        _HITS,
        id=id_,
        checksum=checksum,
        rows=buffer_of(rows, np.int32),
        files=buffer_of(files, np.int32),
        positions=buffer_of(positions, np.int64),
        several=bool((np.bincount(rows) > 1).any()),
    )


def _hits_in(rows: Any, files: Any, positions: Any) -> Hits:
    """From the buffers of a row of _HITS."""
    return (
        np.frombuffer(rows, np.int32).astype(np.int64),
        np.frombuffer(files, np.int32).astype(np.int64),
        None if positions is None else np.frombuffer(positions, np.int64),
    )


def _tagged_rows(rows: pa.Table, located: Located) -> Iterator[pa.Table]:
    """Rows that have no payload yet."""
    start = 0
    for number, part in zip(arrivals(), pieces(rows), strict=False):
        yield _tagged_row(number, pack(part), part, located.of(slice(start, start + part.num_rows)))
        start += part.num_rows


def _tagged_row(id_: int, payload: pa.Buffer, table: pa.Table, located: Located) -> pa.Table:
    triples = [
        (path, tag, count)
        for path, counts in tagged_counts(table, located.tags).items()
        for tag, count in counts.items()
    ]
    paths, files, counts = zip(*triples, strict=True)
    return row_of(
        TAGGED,
        id=id_,
        payload=payload,
        tags=buffer_of(located.tags, np.int32),
        positions=buffer_of(located.positions, np.int64),
        paths=list(paths),
        files=list(files),
        counts=list(counts),
    )
