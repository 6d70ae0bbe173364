"""After each step of a history, reads by all indexes have the rows of reads without them: now, then, and between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from indexed_tables import PARTS, SCHEMA, rows_of
from random_filters import conditions, literals

from skep_format.errors import SkepError
from skep_format.schema.change import AddColumn, DropColumn, RenameColumn
from skep_format.schema.types import LongType
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.query.filters.text import parse_predicate
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, compact_logs, schedule_compaction
from skep_table.services.metadata.indexing import build_index, index_named
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
KINDS = [
    pytest.param(6, MOR),
    pytest.param(9, MOR),
    pytest.param(8, COW),
    pytest.param(6, COW, marks=pytest.mark.slow),
    pytest.param(8, MOR, marks=pytest.mark.slow),
    pytest.param(9, COW, marks=pytest.mark.slow),
]
INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
    "hoodie.parquet.small.file.limit": "0",
}
SECONDARY = [
    index_named("secondary_index", "by_tag", ["tag"]),
    index_named("secondary_index", "by_number", ["number"]),
    index_named("column_stats", "capitals", ["tag"], {"expr": "upper"}),
    index_named("bloom_filters", "small", ["note"], {"expr": "lower", "numentries": "50", "fpp": "0.01"}),
]
KEYS = range(12)
# A history takes seconds: one that fails is shown as it is, with the seed of its rows.
UNSHRUNK = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],
}


class History:
    """A table with all indexes that its version has, and what may happen to it next."""

    def __init__(self, folder: Path, version: int, kind: TableType, chance: random.Random) -> None:
        self.chance, self.number, self.saved = chance, 0, ""
        spec = TableSpec(
            name="t",
            schema=SCHEMA,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            type=kind,
            version=version,
        )
        self.table = create_table(LocalStorage(str(folder)), spec, INDEXES)
        for _ in range(2):
            self.writer().upsert(pa.concat_tables([self.rows(part, 4) for part in range(len(PARTS))]))
        if version > 6:
            for each in SECONDARY:
                build_index(self.now(), each)

    def now(self, **options: object) -> HudiTable:
        return HudiTable.open(self.table.storage, {"hoodie.parquet.small.file.limit": "0", **options})

    def writer(self, **options: object) -> LocalWriter:
        return LocalWriter(self.now(**options))

    def rows(self, part: int, count: int) -> pa.Table:
        """Of the keys of a partition; some with an ordering value that is lower than those before."""
        self.number += 1
        keys = [part * 100 + key for key in self.chance.sample(KEYS, count)]
        made = rows_of(self.chance, part, keys, self.number - self.chance.choice([0, 0, 0, 3]))
        held = self.now().schema() if self.number > 8 else None
        if held is not None and "more" in held:
            made = made.append_column(
                "more", pa.array([self.chance.choice([None, 7, key]) for key in keys], pa.int64())
            )
        return made

    def part(self) -> int:
        return self.chance.randrange(len(PARTS))

    def last(self) -> Any:
        last = self.now().timeline.data().completed().last()
        assert last is not None
        return last.requested_time

    def upsert(self) -> None:
        self.writer().upsert(pa.concat_tables([self.rows(self.part(), 3)]))

    def upsert_of_some_columns(self) -> None:
        if self.table.config.version > 6 and self.table.config.is_mor:
            self.writer().upsert(self.rows(self.part(), 3).select(["id", "part", "ts", "tag"]), partial=True)

    def move(self) -> None:
        """Rows of one partition go to another one: only the record index knows it."""
        source, target = self.chance.sample(range(len(PARTS)), 2)
        rows = rows_of(
            self.chance, target, [source * 100 + key for key in self.chance.sample(KEYS, 2)], self.number + 9
        )
        self.writer(**{"hoodie.index.type": "GLOBAL_SIMPLE"}).upsert(rows)

    def delete(self) -> None:
        self.writer().delete(self.rows(self.part(), 3))

    def overwrite(self) -> None:
        self.writer().insert_overwrite(self.rows(self.part(), 5))

    def drop_partition(self) -> None:
        self.writer().delete_partitions([PARTS[self.part()]])

    def compact(self) -> None:
        if self.table.config.is_mor:
            self.chance.choice([compact, schedule_compaction])(self.now())

    def compact_logs(self) -> None:
        if self.table.config.is_mor:
            compact_logs(self.now(**{"hoodie.log.compaction.blocks.threshold": "2"}))

    def cluster(self) -> None:
        cluster(self.now(**{"hoodie.clustering.plan.strategy.sort.columns": self.chance.choice(["number", "tag"])}))

    def clean(self) -> None:
        clean(self.now(**{"hoodie.cleaner.commits.retained": "2"}))

    def roll_back(self) -> None:
        roll_back_instant(self.now(), self.last())

    def save(self) -> None:
        self.saved = self.last()
        create_savepoint(self.now(), self.saved)

    def restore(self) -> None:
        if self.saved:
            restore(self.now(), self.saved)

    def add_or_rename(self) -> None:
        held = self.now().schema()
        if "more" not in held:
            self.writer().alter([AddColumn("more", LongType())])
        elif "less" not in held:
            self.writer().alter([RenameColumn("more", "less")])
        else:
            self.writer().alter([DropColumn("less")])

    def serve_indexes(self) -> None:
        maintain_metadata_table(self.now(**{"hoodie.metadata.compact.max.delta.commits": "1"}))


STEPS: list[Callable[[History], None]] = [
    *[History.upsert, History.upsert, History.upsert_of_some_columns, History.move, History.delete, History.overwrite],
    *[History.drop_partition, History.compact, History.compact_logs, History.cluster, History.clean, History.roll_back],
    *[History.save, History.restore, History.add_or_rename, History.serve_indexes],
]


def same_rows(table: HudiTable, request: ReadRequest, filters: list[str]) -> None:
    """Read once without any index, and by each filter with all of them."""
    try:
        rows = read(table, replace(request, metadata=False, data_skipping=False)).to_arrow()
    except SkepError as error:
        with pytest.raises(type(error)):  # cleaned away: a filter makes it none the better
            read(table, request).to_arrow()
        return
    for where in filters:
        if "more" in where and "more" not in rows.schema.names:  # the columns of then
            continue
        expected = rows.filter(parse_predicate(where, rows.schema).mask(rows))
        found = read(table, replace(request, where=where)).to_arrow()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), (request, where)


def check(history: History, data: st.DataObject) -> None:
    table = history.now()
    everything = read(table, ReadRequest(metadata=False, data_skipping=False)).to_arrow()
    filters = data.draw(st.lists(conditions(literals(everything)), min_size=2, max_size=4))
    if "more" in everything.schema.names:
        filters.append("more IS NULL OR more = 7")
    for key in history.chance.sample(range(len(PARTS)), 1):
        filters.append(f"id = 'k{key * 100 + history.chance.choice(KEYS):03d}'")
    same_rows(table, ReadRequest(), filters)
    if table.config.is_mor:
        same_rows(table, ReadRequest(query="read_optimized"), filters[:2])  # type: ignore[arg-type]
    times = [each.requested_time for each in table.timeline.data().completed()]
    same_rows(table, ReadRequest(as_of=data.draw(st.sampled_from(times))), filters)
    since, *until = sorted(data.draw(st.lists(st.sampled_from(times), min_size=1, max_size=2, unique=True)))
    same_rows(table, ReadRequest(query="incremental", since=since, until=next(iter(until), None)), filters)  # type: ignore[arg-type]


@contextmanager
def new_history(version: int, kind: TableType, seed: int) -> Iterator[History]:
    with TemporaryDirectory() as folder:
        yield History(Path(folder) / "t", version, kind, random.Random(seed))


def run(version: int, kind: TableType, data: st.DataObject, most_steps: int) -> None:
    with new_history(version, kind, data.draw(st.integers(0, 10**6))) as history:
        for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=most_steps // 2, max_size=most_steps)):
            try:
                step(history)
            except SkepError as error:
                note(f"{step.__name__} is refused: {error}")
            check(history, data)


@pytest.mark.parametrize(("version", "kind"), KINDS)
@given(data=st.data())
@settings(max_examples=3, **UNSHRUNK)
def test_no_row_is_lost(version: int, kind: TableType, data: st.DataObject) -> None:
    run(version, kind, data, 6)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kind"), [each.values for each in KINDS])
@given(data=st.data())
@settings(max_examples=12, **UNSHRUNK)
def test_no_row_is_lost_in_long_histories(version: int, kind: TableType, data: st.DataObject) -> None:
    run(version, kind, data, 16)
