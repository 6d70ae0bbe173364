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
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skep_format.errors import RowsChangedError
from skep_format.runner import Runner, ThreadRunner
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.hashes import key_hashes
from skep_table.keys.text import single
from skep_table.write.indexes import tagging as tagged
from skep_table.write.indexes.contract import Candidates, KeyLookUp
from skep_table.write.indexes.global_tagging import tagged_counts
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.tags import NEW_KEY, Located
from skep_writer.edge import Batches, map_frame, pack, slots, unpack
from skep_writer.writing import tasks as worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAYLOADS = pa.schema([pa.field("id", pa.int64()), pa.field("payload", pa.binary())])
TAGGED = pa.schema(
    [
        *PAYLOADS,
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
    payloads: DataFrame, tagging: tagged.Tagging, rows: int, runner: Runner, hold: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """A frame of TAGGED for one of PAYLOADS with so many rows. `hold` persists what is evaluated more than once.

    Raises what the index raises; RowsChangedError when Spark evaluated the payloads again and they were others.
    """
    parallelism = payloads.sparkSession.sparkContext.defaultParallelism
    if tagging.relocation is not None:  # the rows of one key meet in one task, from whatever partitions of the table
        count = max(1, min(2 * parallelism, -(-rows // _ROWS_A_TASK)))
        cut = map_frame(payloads, partial(_cut_by_key, np.array(slots(count), np.int32)), worker.ROUTED)
        by_key = cut.repartition(count, "slot").sortWithinPartitions("slot", "arrival").select("payload")
        if not tagging.look_up.confirms:
            return map_frame(by_key, partial(_tag_combined, tagging), TAGGED)
        payloads = hold(map_frame(by_key, partial(_combine, tagging), PAYLOADS))
    elif not tagging.look_up.confirms:
        return map_frame(payloads, partial(_tag_known, tagging), TAGGED)
    hits = hold(_hits(payloads, tagging, rows, runner, parallelism))
    size = "coalesce(sum(length(rows) + length(files) + coalesce(length(positions), 0)), 0) as size"
    found = hits.selectExpr(size, "coalesce(max(several), false) as several").collect()[0]
    hint = "broadcast" if found.size <= _BROADCAST_BYTES else "merge"
    chooses = tagging.look_up.among_several
    if chooses is not None and found.several:
        by_file = _Tasks.of_files(tagging, parallelism)
        unsure = map_frame(_with_hits(payloads, hits, hint), partial(_ask_again, by_file), _ASKED)
        hits = hold(_confirmed(unsure, chooses, by_file))
    return map_frame(_with_hits(payloads, hits, hint), partial(_settle, tagging), TAGGED)


def _with_hits(payloads: DataFrame, hits: DataFrame, hint: str) -> DataFrame:
    columns = ("id", "payload", "checksum", "rows", "files", "positions")
    return payloads.join(hits.hint(hint), "id", "left").select(*columns)


def _hits(payloads: DataFrame, tagging: tagged.Tagging, rows: int, runner: Runner, parallelism: int) -> DataFrame:
    """A frame of _HITS: one row for each payload, with its rows that are in a file."""
    look_up = tagging.look_up
    by_file = _Tasks.of_files(tagging, parallelism)
    if look_up.shard_bytes:
        by_shard = _Tasks.of(look_up.shard_bytes, parallelism)
        shards = map_frame(payloads, partial(_ask, look_up, by_shard), _ASKED).repartition(len(by_shard.slots), "slot")
        asked = map_frame(shards.select("id", "share"), partial(_look_into_shards, look_up, by_file), _ASKED)
    else:
        # Without ranges each key goes to every task that has files of its partition.
        copies = min(len(by_file.slots), max((len(of_path) for of_path in _groups(tagging)), default=0))
        if rows * _KEY_BYTES * (copies - 1) > len(by_file.slot_of) * _FOOTER_BYTES:
            look_up = look_up.with_ranges(runner)
        asked = map_frame(payloads, partial(_ask, look_up, by_file), _ASKED)
    return _confirmed(asked, look_up, by_file)


def _confirmed(asked: DataFrame, look_up: KeyLookUp, by_file: _Tasks) -> DataFrame:
    """A frame of _HITS for one of _ASKED."""
    shares = asked.repartition(len(by_file.slots), "slot").select("id", "share")
    confirmed = map_frame(shares, partial(_confirm, look_up), _HITS)
    return map_frame(confirmed.repartition(len(by_file.slots), "id").sortWithinPartitions("id"), _merge_hits, _HITS)


@dataclass(frozen=True)
class _Tasks:
    """The slots of tasks, and for each number, of a file or shard, that of the task which reads it."""

    slots: Sequence[int]
    slot_of: np.ndarray[Any, np.dtype[np.int32]]

    @classmethod
    def of(cls, sizes: Sequence[int], parallelism: int) -> _Tasks:
        return cls(*worker.balanced(sizes, 2 * parallelism))

    @classmethod
    def of_files(cls, tagging: tagged.Tagging, parallelism: int) -> _Tasks:
        """Those that read the candidate files."""
        return cls.of([file.size_bytes for of_path in tagging.files.values() for file in of_path], parallelism)

    def of_payload(self, id_: int) -> int:
        """The task that passes on what is known about a payload."""
        return self.slots[id_ % len(self.slots)]

    def shares(self, candidates: Candidates) -> Iterator[tuple[int, Candidates]]:
        spans: dict[int, list[tuple[int, int, int]]] = {}
        for span in candidates.spans:
            spans.setdefault(int(self.slot_of[span[0]]), []).append(span)
        for slot, of_slot in spans.items():
            yield slot, tagged.share(candidates, of_slot)


def _groups(tagging: tagged.Tagging) -> list[Any]:
    """The candidate files that a key may have, by partition; of a global index all files together."""
    files: CandidateFiles = tagging.files
    if tagging.relocation is not None:
        return [[file for of_path in files.values() for file in of_path]]
    return list(files.values())


def _cut_by_key(slot_of: np.ndarray[Any, np.dtype[np.int32]], batches: Batches) -> Iterator[pa.Table]:
    """Payloads are cut up by the hash of their keys."""
    for id_, payload in worker.rows_in(batches):
        table = unpack(payload)
        parts = key_hashes(table.column(RECORD_KEY).combine_chunks()) % np.uint64(len(slot_of))
        yield worker.cut_by_code(table, parts.astype(np.int32), slot_of, id_.as_py())


def _combine(tagging: tagged.Tagging, batches: Batches) -> Iterator[pa.Table]:
    """All rows of a task's keys: those that are looked up, as new payloads."""
    tables = [unpack(value) for value in worker.payloads_of(batches)]
    if tables:
        rows = tagging.combined(pa.concat_tables(tables).combine_chunks())
        for number, table in zip(worker.arrivals(), worker.pieces(rows), strict=False):
            yield worker.row_of(PAYLOADS, id=number, payload=pack(table))


def _tag_combined(tagging: tagged.Tagging, batches: Batches) -> Iterator[pa.Table]:
    """The same where no file has to be read: tagged at once."""
    tables = [unpack(value) for value in worker.payloads_of(batches)]
    if tables:
        rows = tagging.combined(pa.concat_tables(tables).combine_chunks())
        yield from _tagged_rows(*tagging.settled(rows, _known(tagging.look_up, rows)))


def _tag_known(tagging: tagged.Tagging, batches: Batches) -> Iterator[pa.Table]:
    """Payloads get their tags beside them; no file has to be read."""
    for id_, payload in worker.rows_in(batches):
        table = unpack(payload)
        _, located = tagging.settled(table, _known(tagging.look_up, table))
        yield _tagged_row(id_.as_py(), payload.as_buffer(), table, located)


def _ask(look_up: KeyLookUp, tasks: _Tasks, batches: Batches) -> Iterator[pa.Table]:
    """Of each payload the keys that files, or shards, may hold, for their tasks; and what is known without any."""
    for scalar, payload in worker.rows_in(batches):
        id_ = scalar.as_py()
        found = look_up.candidates(unpack(payload).select(look_up.columns))
        known = np.flatnonzero(found.numbers != NEW_KEY)
        hits = zlib.crc32(payload.as_buffer()), (known, found.numbers[known], None)
        yield _asked_row(tasks.of_payload(id_), id_, hits)
        for slot, part in tasks.shares(found.candidates):
            yield _asked_row(slot, id_, part)


def _received(batches: Batches, ids: list[int], shares: list[Candidates]) -> Iterator[tuple[int, Any]]:
    """What is sent to a task, beside its payload, without shares of candidates: these are added to the lists."""
    for id_, value in worker.rows_in(batches):
        found = pickle.loads(value.as_buffer())
        if isinstance(found, Candidates):
            ids.append(id_.as_py())
            shares.append(found)
        else:
            yield id_.as_py(), found


def _ask_again(tasks: _Tasks, batches: Batches) -> Iterator[pa.Table]:
    """Of each payload with its hits the keys that several files hold, for the tasks of these; and the other hits."""
    for id_, payload, checksum, *hits in worker.rows_in(batches):
        keys = single(_unchanged(payload, checksum).column(RECORD_KEY))
        sure, unsure = tagged.of_several(_hits_in(*(each.as_buffer() for each in hits)), keys)
        yield _asked_row(tasks.of_payload(id_.as_py()), id_.as_py(), (checksum.as_py(), sure))
        for slot, part in tasks.shares(unsure):
            yield _asked_row(slot, id_.as_py(), part)


def _look_into_shards(look_up: KeyLookUp, tasks: _Tasks, batches: Batches) -> Iterator[pa.Table]:
    """All keys for the shards of a task: each is looked into once. What is not sure goes on to the tasks of files."""
    ids: list[int] = []
    shares: list[Candidates] = []
    for id_, found in _received(batches, ids, shares):
        yield _asked_row(tasks.of_payload(id_), id_, found)
    for at, hits, unsure in tagged.in_shards(look_up, shares):
        if len(hits[0]):
            yield _asked_row(tasks.of_payload(ids[at]), ids[at], (None, hits))
        for slot, part in tasks.shares(unsure):
            yield _asked_row(slot, ids[at], part)


def _confirm(look_up: KeyLookUp, batches: Batches) -> Iterator[pa.Table]:
    """All keys for the files of a task: each file is read once, and what it holds goes back to the payloads."""
    ids: list[int] = []
    shares: list[Candidates] = []
    for id_, (checksum, hits) in _received(batches, ids, shares):
        yield _hits_row(id_, checksum, hits)
    parts = tagged.parts_by_number(shares)

    def confirm(number: int) -> list[tuple[int, tagged.Hits]]:
        keys = [shares[at].keys.slice(low, high - low) for at, low, high in parts[number]]
        positions = look_up.confirm(number, pa.concat_arrays(keys))
        ends = np.cumsum([len(each) for each in keys])[:-1]
        return [
            (at, tagged.hits_of(look_up, number, part, shares[at].rows[low:high]))
            for (at, low, high), part in zip(parts[number], np.split(positions, ends), strict=True)
        ]

    of_shares: dict[int, list[tagged.Hits]] = {}
    for found in ThreadRunner(_THREADS).map(confirm, sorted(parts)):
        for at, hits in found:
            if len(hits[0]):
                of_shares.setdefault(at, []).append(hits)
    for at, of_share in of_shares.items():
        yield _hits_row(ids[at], None, tagged.joined(of_share))


def _merge_hits(batches: Batches) -> Iterator[pa.Table]:
    """Sorted by payload: one row for each, with the hits of all tasks."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for id_, of_payload in groupby(rows, itemgetter("id")):
        listed = list(of_payload)
        checksum = next((row["checksum"] for row in reversed(listed) if row["checksum"] is not None), None)
        yield _hits_row(
            id_, checksum, tagged.joined([_hits_in(row["rows"], row["files"], row["positions"]) for row in listed])
        )


def _settle(tagging: tagged.Tagging, batches: Batches) -> Iterator[pa.Table]:
    """Payloads with their hits beside them get their tags; a global index may change their rows."""
    combined: list[tuple[pa.Table, tagged.Found]] = []
    for id_, payload, checksum, *hits in worker.rows_in(batches):
        table = _unchanged(payload, checksum)
        found = tagged.resolved(
            np.full(table.num_rows, NEW_KEY, np.int64), [_hits_in(*(each.as_buffer() for each in hits))]
        )
        if tagging.relocation is None:
            _, located = tagging.settled(table, found)
            yield _tagged_row(id_.as_py(), payload.as_buffer(), table, located)
        else:
            combined.append((table, found))
    if combined:
        tables, of_tables = zip(*combined, strict=True)
        whole = pa.concat_tables(tables).combine_chunks()
        yield from _tagged_rows(*tagging.settled(whole, tagged.Found.joined(of_tables)))


def _unchanged(payload: pa.Scalar, checksum: pa.Scalar) -> pa.Table:
    """The rows of a payload, which have to be those that were looked up."""
    if checksum.as_py() != zlib.crc32(payload.as_buffer()):
        raise RowsChangedError(
            "the rows of the frame changed while they were written: Spark evaluated some of them again",
            hint="write a frame that gives the same rows each time, or persist it before",
        )
    return unpack(payload)


def _known(look_up: KeyLookUp, rows: pa.Table) -> tagged.Found:
    return tagged.Found(look_up.candidates(rows.select(look_up.columns)).numbers)


def _asked_row(slot: int, id_: int, found: Candidates | tuple[int | None, tagged.Hits]) -> pa.Table:
    return worker.row_of(_ASKED, slot=slot, id=id_, share=pickle.dumps(found))


def _hits_row(id_: int, checksum: int | None, hits: tagged.Hits) -> pa.Table:
    rows, files, positions = hits
    return worker.row_of(
        _HITS,
        id=id_,
        checksum=checksum,
        rows=worker.buffer_of(rows, np.int32),
        files=worker.buffer_of(files, np.int32),
        positions=worker.buffer_of(positions, np.int64),
        several=bool((np.bincount(rows) > 1).any()),
    )


def _hits_in(rows: Any, files: Any, positions: Any) -> tagged.Hits:
    """From the buffers of a row of _HITS."""
    return (
        np.frombuffer(rows, np.int32).astype(np.int64),
        np.frombuffer(files, np.int32).astype(np.int64),
        None if positions is None else np.frombuffer(positions, np.int64),
    )


def _tagged_rows(rows: pa.Table, located: Located) -> Iterator[pa.Table]:
    """Rows that have no payload yet."""
    start = 0
    for number, part in zip(worker.arrivals(), worker.pieces(rows), strict=False):
        yield _tagged_row(number, pack(part), part, located.of(slice(start, start + part.num_rows)))
        start += part.num_rows


def _tagged_row(id_: int, payload: pa.Buffer, table: pa.Table, located: Located) -> pa.Table:
    triples = [
        (path, tag, count)
        for path, counts in tagged_counts(table, located.tags).items()
        for tag, count in counts.items()
    ]
    paths, files, counts = zip(*triples, strict=True)
    return worker.row_of(
        TAGGED,
        id=id_,
        payload=payload,
        tags=worker.buffer_of(located.tags, np.int32),
        positions=worker.buffer_of(located.positions, np.int64),
        paths=list(paths),
        files=list(files),
        counts=list(counts),
    )
