"""Tables that have very much of one thing, made fast: their files and instants are copies of real ones, with changes.

Parquet without compression holds texts as they are, so a copy with another partition, file group, key or instant, each
as long as that of the original, is the file that a write of these would have made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from skep_format.basefile.options import BLOOM_ENTRIES, BLOOM_FPP, BLOOM_MAX_ENTRIES, BLOOM_TYPE
from skep_format.bloom import BloomBuilder, fitted
from skep_format.clock import SYSTEM_CLOCK, LateClock
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.table_config.keys import PROPERTIES_PATH
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_table.commit.create import TableSpec, create_table
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA: Final = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("part", pa.string())])
KEY, PARTITION = "k00000000", "p0000000"
"""The row that is changed and looked up; it is in the first file of the first partition, which was written for real."""

_MADE: Final = {
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.automatic": "false",
}
_VERSIONS_LEFT: Final = 30  # of a file, when the first clean begins
_BETWEEN_MS: Final = 2  # from one instant to the next


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table. `metadata`: it has a metadata table."""

    name: str
    version: int
    type: TableType
    metadata: bool

    @property
    def options(self) -> Mapping[str, str]:
        """Those of all writes."""
        return {**_MADE, "hoodie.metadata.enable": str(self.metadata).lower()}


KINDS: Final = (
    Kind("version 6, copy-on-write, no metadata table", 6, TableType.COPY_ON_WRITE, metadata=False),
    Kind("version 9, merge-on-read, metadata table", 9, TableType.MERGE_ON_READ, metadata=True),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much a table has: one of these is grown, and the others are so few that they cost little.

    `archived`: all commits but the newest are. There are more than a clean retains, so that one has been.
    """

    partitions: int = 10
    commits: int = 40
    archived: bool = False
    groups: int = 1
    rows: int = 1


def make(place: Path, kind: Kind, size: Size) -> None:
    """A table in the folder `place`. After what was grown come a clean, and writes, and in a merge-on-read table a
    compaction between them, as a table in use has them."""
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    create_table(LocalStorage(str(place)), replace(spec, type=kind.type, version=kind.version))
    off = {**kind.options, "hoodie.metadata.enable": "false"}
    early = LateClock(SYSTEM_CLOCK, 60 + size.commits * _BETWEEN_MS / 1000)
    done = LocalWriter(HudiTable.open(place, off).with_context(clock=early)).bulk_insert(_rows(size.rows)).instant
    table = HudiTable.open(place, off)
    first = table.commit_metadata(done)
    (stat,) = first.stats
    stats = [stat, *_partitions(place, stat, size.partitions), *_groups(place, stat, size.groups)]
    by_partition: dict[str, list[WriteStat]] = {}
    for each in stats:
        by_partition.setdefault(each.partition_path, []).append(each)
    whole = replace(first, partition_to_write_stats={path: tuple(found) for path, found in by_partition.items()})
    table.storage.replace_atomic(table.layout.path(done), table.layout.encode_commit(whole))
    _commits(place, table, done, first, stat, size.commits)
    clean(HudiTable.open(place, off))
    if size.archived:
        archive(HudiTable.open(place, off))
    for _ in range(2):
        upsert(place, kind)
        if kind.type is TableType.MERGE_ON_READ:
            compact(HudiTable.open(place, kind.options))
    upsert(place, kind)
    # Settings that were just written are read again by each snapshot: on a fast machine those of small tables would be.
    os.utime(place / PROPERTIES_PATH, (early.now().timestamp(),) * 2)


def upsert(place: Path, kind: Kind) -> None:
    """One row, whose key is there."""
    LocalWriter(HudiTable.open(place, kind.options)).upsert(changed())


def changed() -> pa.Table:
    """The row of an upsert."""
    return pa.table([[KEY], pa.array([2], pa.int64()), [PARTITION]], SCHEMA)


def _rows(count: int) -> pa.Table:
    keys = pa.array(np.char.add("k", np.char.zfill(np.arange(count).astype(str), len(KEY) - 1)).tolist())
    return pa.table([keys, pa.repeat(pa.scalar(1, pa.int64()), count), pa.repeat(PARTITION, count)], SCHEMA)


def _partitions(place: Path, stat: WriteStat, count: int) -> Iterator[WriteStat]:
    """Further partitions with a copy of the first file."""
    file = Path(stat.path).name
    content = (place / stat.path).read_bytes()
    metafiles = [(found.name, found.read_bytes()) for found in (place / PARTITION).glob(".hoodie_partition_metadata*")]
    for number in range(1, count):
        name = f"p{number:07}"
        folder = place / name
        folder.mkdir()
        for metafile, data in metafiles:
            (folder / metafile).write_bytes(data)
        (folder / file).write_bytes(content.replace(PARTITION.encode(), name.encode()))
        yield replace(stat, path=f"{name}/{file}", partition_path=name)


def _groups(place: Path, stat: WriteStat, count: int) -> Iterator[WriteStat]:
    """Further file groups of the first partition, each with a row of another key."""
    content = (place / stat.path).read_bytes()
    text = _filter_text(KEY)
    assert count == 1 or content.count(text) == 1
    for number in range(1, count):
        key, file_id = f"k{number:08}", f"{number:08}{stat.file_id[8:]}"
        path = stat.path.replace(stat.file_id, file_id)
        data = content.replace(stat.file_id.encode(), file_id.encode()).replace(text, _filter_text(key))
        (place / path).write_bytes(data.replace(KEY.encode(), key.encode()))
        yield replace(stat, path=path, file_id=file_id)


def _filter_text(key: str) -> bytes:
    entries = fitted(1, BLOOM_ENTRIES.default)
    builder = BloomBuilder(BLOOM_TYPE.default, entries, BLOOM_FPP.default, BLOOM_MAX_ENTRIES.default)
    builder.add(pa.array([key]))
    return builder.finish().to_base64()


def _commits(place: Path, table: HudiTable, done: Instant, first: CommitMetadata, stat: WriteStat, count: int) -> None:
    """Further commits, of which each wrote the next version of the first file; the newest versions are there."""
    time, before, layout = done.requested_time, done.requested_time, table.layout
    action = Action.DELTA_COMMIT if table.config.is_mor else Action.COMMIT
    content = (place / stat.path).read_bytes()
    for number in range(1, count):
        now = done.requested_time.plus_milliseconds(_BETWEEN_MS * number + 1000)
        path = stat.path.replace(time, now)
        if count - number <= _VERSIONS_LEFT:
            (place / path).write_bytes(content.replace(time.encode(), now.encode()))
        written = {stat.partition_path: (replace(stat, path=path, prev_commit=before, num_inserts=0, num_updates=1),)}
        metadata = replace(first, partition_to_write_stats=written)
        completed = CompletionTime(now.plus_milliseconds(1)) if layout.has_completion_times else None
        for state in State:
            instant = Instant(InstantTime(now), action, state, completed if state is State.COMPLETED else None)
            data = layout.encode_commit(metadata) if state is State.COMPLETED else b""
            (place / layout.path(instant)).write_bytes(data)
        before = now
