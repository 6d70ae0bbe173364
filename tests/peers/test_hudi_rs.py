"""hudi-rs reads each kind of table that skep leaves, in each version: newest rows, those of then, those of a range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from copied_groups import copied_groups

from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.versions import known_versions
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, compact_logs, schedule_compaction
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.peer("rs")

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
SMALL = {
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.cleaner.commits.retained": "2",
    "hoodie.clustering.plan.strategy.sort.columns": "id",
}
Rows = list[dict[str, Any]]


class Life:
    """What happened to a table: two dozen rows, updates, one that is too late for its ordering value, and a delete."""

    def __init__(self, table: HudiTable, **options: str) -> None:
        given = {key.replace("__", "."): value for key, value in options.items()}
        self._table = table.with_context(options=Options({**SMALL, **given}))
        LocalWriter(self.table).bulk_insert(rows(*((at, 1, f"v{at}") for at in range(24))))
        self.upsert((1, 2, "updated"), (2, 0, "late"), (30, 1, "new"))
        LocalWriter(self.table).delete(rows((3, 1, "")).select(["id", "part"]))

    @property
    def table(self) -> HudiTable:
        return self._table.reload()

    def upsert(self, *given: tuple[int, int, str]) -> str:
        return LocalWriter(self.table).upsert(rows(*given)).instant.requested_time

    def compact_if_it_has_logs(self) -> None:
        if self.table.config.is_mor:
            compact(self.table)


def rows(*given: tuple[int, int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id, "part": "ab"[id % 2], "ts": ts, "v": v} for id, ts, v in given], SCHEMA)


def buckets(table: HudiTable) -> None:
    Life(table, hoodie__index__type="BUCKET", hoodie__bucket__index__num__buckets="2")


def blocks_of_parquet(table: HudiTable) -> None:
    Life(table, hoodie__logfile__data__block__format="parquet")


def compacted(table: HudiTable) -> None:
    life = Life(table)
    life.compact_if_it_has_logs()
    life.upsert((4, 5, "after"))


def row_groups_copied(table: HudiTable) -> None:
    with copied_groups() as copied:
        life = Life(table, hoodie__parquet__block__size="500")
        life.compact_if_it_has_logs()
    assert len(copied) > 3
    life.upsert((4, 5, "after"))


def compaction_planned(table: HudiTable) -> None:
    life = Life(table)
    if table.config.is_mor:
        assert schedule_compaction(life.table) is not None
    life.upsert((4, 5, "after"))


def logs_compacted(table: HudiTable) -> None:
    life = Life(table)
    life.upsert((5, 3, "more"))
    if table.config.is_mor:
        assert compact_logs(life.table)
    life.upsert((4, 5, "after"))


def clustered(table: HudiTable) -> None:
    life = Life(table)
    life.compact_if_it_has_logs()
    LocalWriter(life.table).insert(rows((40, 1, "inserted")))
    assert cluster(life.table)
    life.upsert((4, 5, "after"))


def overwritten(table: HudiTable) -> None:
    life = Life(table)
    LocalWriter(life.table).insert_overwrite(rows((50, 1, "instead")))
    LocalWriter(life.table).delete_partitions(["b"])


def rolled_back(table: HudiTable) -> None:
    life = Life(table)
    roll_back_instant(life.table, life.upsert((4, 5, "undone")))  # type: ignore[arg-type]
    life.upsert((6, 5, "after"))


def archived(table: HudiTable) -> None:
    life = Life(table)
    for at in range(12):
        life.upsert((at, 10 + at, f"w{at}"))
    life.compact_if_it_has_logs()
    for at in range(3):
        life.upsert((at, 30 + at, f"x{at}"))
    clean(life.table)
    archive(life.table)
    assert life.table.timeline.archived()


def partly_updated(table: HudiTable) -> None:
    life = Life(table)
    LocalWriter(life.table).upsert(rows((4, 5, "")).select(["id", "part", "ts"]), partial=True)
    life.upsert((6, 5, "after"))


KINDS: tuple[Callable[[HudiTable], object], ...] = (
    Life,
    buckets,
    blocks_of_parquet,
    compacted,
    row_groups_copied,
    compaction_planned,
    logs_compacted,
    clustered,
    overwritten,
    rolled_back,
    archived,
)


@pytest.fixture(params=list(TableType), ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, table_version: int, tmp_path: Path) -> HudiTable:
    spec = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", "type": request.param}
    return create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=SCHEMA, **spec))


def ours(table: HudiTable, **request: Any) -> Rows:
    found = read(table.reload(), ReadRequest(columns=tuple(SCHEMA.names), **request)).to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def theirs(table: HudiTable, options: Any = None) -> Rows:
    hudi = pytest.importorskip("hudi")
    batches = (
        pa.record_batch(batch).select(SCHEMA.names) for batch in hudi.HudiTable(table.storage.root).read(options)
    )
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


versions = pytest.mark.parametrize(
    "table_version",
    [pytest.param(each, marks=[] if each == known_versions()[-1] else pytest.mark.slow) for each in known_versions()],
    indirect=True,
)


@versions
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.lower())
def test_the_newest_rows_those_of_then_and_those_of_a_range(
    kind: Callable[[HudiTable], object], table: HudiTable
) -> None:
    hudi = pytest.importorskip("hudi")
    kind(table)
    assert theirs(table) == ours(table) != []
    then = table.reload().timeline.data().completed().instants[-2]
    at = hudi.HudiReadOptions().with_as_of_timestamp(then.requested_time)
    assert theirs(table, at) == ours(table, as_of=then.requested_time) != []
    since = table.format.reads.time_in_range(then)
    changed = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental).with_start_timestamp(since)
    assert theirs(table, changed) == ours(table, query="incremental", since=since)


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
def test_partial_updates(table: HudiTable) -> None:
    """Not of a range: there hudi-rs leaves the other columns null."""
    partly_updated(table)
    assert theirs(table) == ours(table)
    then = table.reload().timeline.data().completed().instants[-2].requested_time
    at = pytest.importorskip("hudi").HudiReadOptions().with_as_of_timestamp(then)
    assert theirs(table, at) == ours(table, as_of=then)
