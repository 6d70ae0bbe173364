"""Reads that were asked for before others cleaned the table: never fewer rows, and never without a word."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import InputError, SkepError, StorageError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, ReadResult, plan, read
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
RETAIN_ONE = {"hoodie.clean.automatic": "false", "hoodie.cleaner.commits.retained": "1"}


class Fleeting:
    """100 rows in two partitions, of which others change and clean one."""

    def __init__(self, folder: Path, kind: TableType) -> None:
        spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
        self.folder = folder
        create_table(LocalStorage(str(folder)), spec)
        self.ts = 0
        self.writer().bulk_insert(self.rows(range(100)))

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.folder))

    def setting(self, **options: str) -> dict[str, Any]:
        return {"options": Options(RETAIN_ONE).with_values(options)}

    def writer(self) -> LocalWriter:
        return LocalWriter(self.table.with_context(**self.setting()))

    def rows(self, ids: Any) -> pa.Table:
        self.ts += 1
        found = [{"id": at, "part": "ab"[at % 2], "ts": self.ts, "v": self.ts} for at in ids]
        return pa.Table.from_pylist(found, SCHEMA)

    def change_and_clean(self, commits: int = 3) -> None:
        for _ in range(commits):
            self.writer().upsert(self.rows([0]))
            if self.table.config.is_mor:
                compact(self.table.with_context(**self.setting()))
        assert clean(self.table.with_context(**self.setting())) is not None

    def stop_clean(self) -> None:
        """The last clean has removed its files, and not yet recorded it."""
        last = self.table.timeline.of(Action.CLEAN).last()
        assert last is not None
        (self.folder / self.table.layout.path(last)).unlink()


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def fleeting(request: pytest.FixtureRequest, tmp_path: Path) -> Fleeting:
    return Fleeting(tmp_path / "t", request.param)


@pytest.fixture
def cow(tmp_path: Path) -> Fleeting:
    return Fleeting(tmp_path / "t", TableType.COPY_ON_WRITE)


FORMS: dict[str, Callable[[ReadResult], int]] = {
    "count": lambda rows: rows.count(),
    "to_arrow": lambda rows: rows.to_arrow().num_rows,
    "to_batches": lambda rows: sum(batch.num_rows for batch in rows.to_batches()),
    "to_reader": lambda rows: rows.to_reader().read_all().num_rows,
    "to_pandas": lambda rows: len(rows.to_pandas()),
    "to_polars": lambda rows: len(rows.to_polars()),
    "to_duckdb": lambda rows: len(rows.to_duckdb().fetchall()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_all_rows_after_a_clean(fleeting: Fleeting, form: str) -> None:
    rows = read(fleeting.table)
    fleeting.change_and_clean()
    assert FORMS[form](rows) == 100


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        (ReadRequest(where="part = 'a'"), 50),
        (ReadRequest(where="id = 0"), 1),
        (ReadRequest(limit=60), 60),
        (ReadRequest(query="read_optimized"), 100),  # type: ignore[arg-type]
        (ReadRequest(columns=("part",)), 100),
    ],
    ids=["partition", "key", "limit", "read_optimized", "columns"],
)
def test_every_request_has_its_rows_after_a_clean(fleeting: Fleeting, request_: ReadRequest, count: int) -> None:
    rows = read(fleeting.table, request_)
    fleeting.change_and_clean()
    assert rows.to_arrow().num_rows == count
    assert rows.count() == count


def test_a_clean_that_is_still_under_way_counts(fleeting: Fleeting) -> None:
    rows = read(fleeting.table)
    fleeting.change_and_clean()
    fleeting.stop_clean()
    assert rows.count() == 100


def test_a_plan_names_files_that_are_there(fleeting: Fleeting) -> None:
    table = fleeting.table
    fleeting.change_and_clean()
    assert sum(task.slice.base_file is not None for task in plan(table, ReadRequest())) == 2


def test_what_no_clean_has_touched_is_shown_as_it_was(cow: Fleeting) -> None:
    rows = read(cow.table)
    cow.writer().upsert(cow.rows([0]))
    clean(cow.table.with_context(**cow.setting(**{"hoodie.cleaner.commits.retained": "10"})))
    assert {row["v"] for row in rows.to_arrow().to_pylist()} == {1}


def test_a_clean_that_keeps_what_a_read_needs_does_not_change_it(cow: Fleeting) -> None:
    cow.change_and_clean(3)
    rows = read(cow.table)
    before = rows.to_arrow().sort_by("id").to_pylist()
    cow.writer().upsert(cow.rows([0]))
    two = cow.setting(**{"hoodie.cleaner.commits.retained": "2"})
    assert clean(cow.table.with_context(**two)) is not None  # removes older versions
    assert rows.to_arrow().sort_by("id").to_pylist() == before


def test_a_dropped_partition_is_dropped_with_its_files(cow: Fleeting) -> None:
    rows = read(cow.table)
    cow.writer().delete_partitions(["a"])
    for _ in range(2):
        cow.writer().upsert(cow.rows([1]))
    assert clean(cow.table.with_context(**cow.setting())) is not None
    assert {row["part"] for row in rows.to_arrow().to_pylist()} == {"b"}
    assert {row["v"] for row in rows.to_arrow().to_pylist()} == {1, cow.ts}  # the table as it is now


def test_a_commit_that_was_rolled_back_is_not_looked_for(cow: Fleeting) -> None:
    last = cow.writer().upsert(cow.rows([0]))
    rows = read(cow.table)
    roll_back_instant(cow.table.with_context(**cow.setting()), last.instant.requested_time)
    assert rows.count() == 100
    assert {row["v"] for row in rows.to_arrow().to_pylist()} == {1}


def test_time_travel_reports_that_the_files_were_deleted(fleeting: Fleeting) -> None:
    first = fleeting.table.timeline.instants[0].requested_time
    rows = read(fleeting.table, ReadRequest(as_of=first))
    fleeting.change_and_clean()
    for form in FORMS.values():
        with pytest.raises(InputError, match="cleaner"):
            form(rows)
    with pytest.raises(InputError, match="cleaner"):
        read(fleeting.table, ReadRequest(as_of=first))


def test_time_travel_minds_a_clean_that_is_still_under_way(fleeting: Fleeting) -> None:
    first = fleeting.table.timeline.instants[0].requested_time
    fleeting.change_and_clean()
    fleeting.stop_clean()
    with pytest.raises(InputError, match="cleaner"):
        read(fleeting.table, ReadRequest(as_of=first)).to_arrow()


def test_a_stream_that_was_started_fails_when_its_files_go(fleeting: Fleeting) -> None:
    batches = read(fleeting.table, ReadRequest(limit=1000)).to_batches()  # a limit: nothing is read ahead
    next(batches)
    fleeting.change_and_clean()
    for file in fleeting.folder.glob("b/*"):
        file.unlink()
    with pytest.raises(StorageError, match="clean"):
        list(batches)


def test_columns_that_changed_since_are_an_error(cow: Fleeting) -> None:
    rows = read(cow.table)
    wider = {"hoodie.write.set.null.for.missing.columns": "true"}
    for _ in range(3):
        more = cow.rows([0]).append_column("w", pa.array([1], pa.int64()))
        LocalWriter(cow.table.with_context(**cow.setting(**wider))).upsert(more)
    assert clean(cow.table.with_context(**cow.setting())) is not None
    with pytest.raises(StorageError, match="read again"):
        rows.to_arrow()
    assert read(cow.table).count() == 100


@pytest.mark.parametrize("request_", [ReadRequest(), ReadRequest(columns=("v",)), ReadRequest(where="id = 0")])
@pytest.mark.parametrize(
    ("fleeting", "pattern"),
    [
        (TableType.COPY_ON_WRITE, "*.parquet"),
        (TableType.MERGE_ON_READ, "*.parquet"),
        (TableType.MERGE_ON_READ, ".*.log.*"),
    ],
    indirect=["fleeting"],
)
def test_a_file_that_goes_after_the_plan_is_an_error(
    fleeting: Fleeting, request_: ReadRequest, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleeting.writer().upsert(fleeting.rows([0]))
    tasks = plan(fleeting.table, request_)
    for file in fleeting.folder.glob(f"a/{pattern}"):
        file.unlink()
    # They went between the listing and the reading.
    monkeypatch.setattr(import_module("skep_table.query.read"), "plan", lambda *_: tasks)
    for form in ("count", "to_arrow"):
        with pytest.raises(StorageError, match="was deleted"):
            FORMS[form](read(fleeting.table, request_))


def test_changes_of_a_replaced_group_whose_files_were_deleted_are_an_error(cow: Fleeting) -> None:
    time_of = cow.table.format.reads.time_in_range
    start = time_of(cow.table.timeline.instants[-1])
    replaced = cow.writer().insert_overwrite(cow.rows([0, 2]))
    request = ReadRequest(query="cdc", since=start, until=time_of(replaced.instant))  # type: ignore[arg-type]
    ops = [row["op"] for row in read(cow.table, request).to_arrow().to_pylist()]
    assert (ops.count("d"), ops.count("i")) == (50, 2)
    cow.change_and_clean()
    with pytest.raises(SkepError, match="clean"):
        read(cow.table, request).to_arrow()
