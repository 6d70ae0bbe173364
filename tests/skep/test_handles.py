"""Handles in Python: times as callers have them, lengths, datasets, what is printed and shown."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import skep
from skep.handles.table import Table
from skep.lake import Lake
from skep_format.errors import InputError, NoSuchTableError, SkepError, StorageError, UnsupportedError

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("day", pa.string())])


def rows(*ids: int, note: str = "a", day: str = "x") -> pa.Table:
    return pa.table([list(ids), [note] * len(ids), [day] * len(ids)], schema=SCHEMA)


def make(path: Path, version: int = 6, type: str = "MERGE_ON_READ", **options: str) -> Table:
    given = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.table.type": type,
        "hoodie.write.table.version": version,
    }
    skep.write(rows(1, 2)).options(**given, **options).save(path)
    return skep.open_table(path)


def moment(instant: str) -> dt.datetime:
    """Tables of this suite have the default time zone, which is the machine's."""
    return dt.datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f").astimezone()


def forms(result: Any, completed: str) -> Iterator[object]:
    """A commit, as calls return it and as users write it. `completed`: the time by which ranges take it."""
    import pandas as pd

    yield result
    yield result.instant
    yield result.instant.requested_time
    yield str(result.instant.requested_time)
    yield moment(completed)
    yield moment(completed).astimezone(dt.timezone(dt.timedelta(hours=5)))
    yield pd.Timestamp(moment(completed))
    yield moment(completed).isoformat()


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_commit_is_named_in_many_ways(tmp_path: Path, version: int) -> None:
    table = make(tmp_path / "t", version)
    first = table.history()[0]
    second = table.upsert(rows(2, 3, note="b"))
    third = table.upsert(rows(4, note="c"))
    entries = {entry.instant: entry for entry in table.history()}
    at_second, at_third = entries[second.instant.requested_time], entries[third.instant.requested_time]
    assert [entry.completed is None for entry in entries.values()] == [version == 6] * 3
    of_range = at_second.completed or at_second.instant
    for given in (at_second, *forms(second, of_range)):
        assert sorted(table.changes(since=given).to_arrow()["id"].to_pylist()) == [4], given
        assert sorted(table.changes(until=given).to_arrow()["id"].to_pylist()) == [1, 2, 3], given
        assert table.changes(since=first, until=given, cdc=False).count() == 2, given
    for given in (at_second, *forms(second, at_second.instant)):
        assert table.read(as_of=given).count() == 3, given
    assert table.changes(since=table.history()[-1].instant).count() == 0  # the example of docs/read.md
    assert table.changes(since=at_third.completed or third).count() == 0
    assert table.changes(since=dt.date(2000, 1, 1)).count() == len(table) == 4
    assert table.read(as_of=dt.date(2000, 1, 1)).count() == 0
    for given in (at_second, *forms(second, at_second.instant)):
        assert table.savepoint(given).savepointed_by == ""
        assert list(table.savepoints()) == [second.instant.requested_time]
        assert table.restore(given, dry_run=True).instants_to_rollback[0].commit_time == third.instant.requested_time
        table.delete_savepoint(given)
    for given in (at_third, *forms(third, at_third.instant)):
        assert table.rollback(given, dry_run=True)
    table.savepoint(second)
    assert table.restore(second) is not None
    assert len(table) == 3
    fourth = table.upsert(rows(5))
    table.rollback(fourth)
    assert len(table) == 3


@pytest.mark.parametrize("version", [8, 9])
def test_archived_commits_are_named_too(tmp_path: Path, version: int) -> None:
    """Ranges are of completion times, which Hudi's own option means: a commit that is named stands for its own."""
    table = make(tmp_path / "t", version, type="COPY_ON_WRITE")
    wrote = [table.upsert(rows(at)) for at in range(10, 20)]
    table.archive(**{"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 2})
    assert len(table.history()) < 6
    first = wrote[0].instant.requested_time
    assert table.changes(since=str(first)).count() == 9
    options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": first}
    assert skep.load(tmp_path / "t", **options).count() == 10


def test_what_is_no_time_is_refused(tmp_path: Path) -> None:
    import pandas as pd

    table = make(tmp_path / "t")
    calls: list[Any] = [
        lambda given: table.read(as_of=given).to_arrow(),
        lambda given: table.changes(since=given).to_arrow(),
        lambda given: table.changes(until=given).to_arrow(),
        table.savepoint,
        table.rollback,
        table.restore,
        table.delete_savepoint,
        lambda given: table.compact(execute=given),
        lambda given: table.send_changes("-", since=given),
    ]
    for call in calls:
        for given in (20260101120000000, 1.5, [1], pd.NaT, "yesterday", "2026-13-01"):
            with pytest.raises(InputError, match=r"is a time or an instant, not|is no time"):
                call(given)


def test_a_plan_is_executed_by_what_scheduled_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(1, note="b"))
    (planned,) = table.compact(schedule=True, **{"hoodie.compact.inline.max.delta.commits": 1})
    (done,) = table.compact(execute=planned)
    assert done.instant == planned.instant


def test_lengths(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    assert (len(table), len(table.read(where="id = 1"))) == (2, 1)
    table.delete(where="id > 0")
    assert len(table) == 0
    assert table  # a handle, whatever the table holds
    assert table.read()


def test_the_first_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = make(tmp_path / "t")
    assert table.head(1).schema.names == SCHEMA.names
    assert (table.head(1).num_rows, table.head().num_rows) == (1, 2)
    table.read(columns=["id", "note"]).show(1)
    shown = capsys.readouterr().out
    assert "id" in shown
    assert shown.count("│ a ") == 1


@pytest.mark.parametrize("type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_dataset_of_pyarrow(tmp_path: Path, type: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    table = make(tmp_path / "t", type=type)
    table.upsert(rows(2, 3, note='q"\\'))
    table.upsert(rows(5, day="y"))
    found = table.to_pyarrow_dataset()
    assert isinstance(found, ds.Dataset)
    assert found.schema == table.read().schema
    assert found.to_table() == table.read().to_arrow()
    assert (found.count_rows(), found.count_rows(filter=pc.field("id") > 2), found.head(1).num_rows) == (4, 2, 1)
    assert found.to_table(columns=["id"], filter=pc.field("note") == 'q"\\')["id"].to_pylist() == [2, 3]
    twice = found.to_table(
        columns={"twice": pc.field("id") * 2}, filter=(pc.field("id") < 3) & (pc.field("day") == "x")
    )
    assert sorted(twice["twice"].to_pylist()) == [2, 4]
    some = found.filter(pc.field("id") > 1).filter(~(pc.field("note") == "a"))
    assert sorted(some.to_table(columns=["id"])["id"].to_pylist()) == [2, 3]
    ds.write_dataset(found, tmp_path / "out", format="parquet")
    assert ds.dataset(tmp_path / "out").to_table().sort_by("id")["id"].to_pylist() == [1, 2, 3, 5]
    assert duckdb.sql("SELECT sum(id) FROM found WHERE day = 'x'").fetchall() == [(6,)]
    lazy = (
        table.scan_polars().filter(polars.col("id") > 1).select(polars.col("id"), polars.col("day").str.to_uppercase())
    )
    assert isinstance(lazy, polars.LazyFrame)
    assert lazy.sort("id").collect().rows() == [(2, "X"), (3, "X"), (5, "Y")]
    part = table.read(columns=["id"], where="id = 3")
    assert part.to_pyarrow_dataset().to_table().to_pylist() == part.scan_polars().collect().to_dicts() == [{"id": 3}]
    with pytest.raises(InputError, match="no column nothing"):
        found.to_table(columns=["nothing"])
    # what would take the rows from elsewhere than a scan gets none, and no others
    for use in (lambda: next(iter(found.get_fragments())).to_table(), lambda: found.join(found, "id"),
                lambda: ds.dataset([found]).to_table()):  # fmt: skip
        with pytest.raises(UnsupportedError, match="to_table"):
            use()
    shutil.rmtree(tmp_path / "t" / "y")
    where = polars.col("day").eq("x") & (polars.col("id") > 1)
    # files of other partitions are not opened
    assert found.to_table(columns=["id"], filter=(pc.field("day") == "x") & (pc.field("id") > 1)).num_rows == 2
    assert table.scan_polars().filter(where).collect().height == 2
    assert len(duckdb.sql("SELECT * FROM found WHERE day = 'x' AND id > 1").fetchall()) == 2
    with pytest.raises((SkepError, polars.exceptions.ComputeError)):
        found.to_table()


def test_what_is_printed_is_short(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    wrote = table.upsert(rows(1, note="b"))
    (done,) = table.compact(**{"hoodie.compact.inline.max.delta.commits": 1})
    assert str(table) == f"Table('t' at {tmp_path / 't'})"
    assert str([done]) == f"[<compact {done.instant}: 1 file slice compacted>]"
    assert str(table.compact(plan=True)) == "[]"
    assert str(table.schema) == "Schema(id bigint, note string, day string)"
    assert str(table.read(columns="id")) == "Rows(id)"
    assert str(wrote) == f"<upsert {wrote.instant.requested_time}: 1 updated, 1 files>"


def test_notebooks_show_tables_and_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.insert(pa.concat_tables([rows(at, note=f"<b>{at}</b>") for at in range(100, 130)]))
    shown = table._repr_html_()
    assert "<td>note</td><td>string</td>" in shown
    assert str(tmp_path) in shown
    some = table.read(columns=["id", "note"])._repr_html_()
    assert some.count("<tr>") == 21
    assert "&lt;b&gt;100&lt;/b&gt;" in some
    assert "the first 20 rows" in some


def test_a_lake_finds_tables_by_names(lake: Lake, database: str) -> None:
    lake.create_table("t", SCHEMA, key="id").insert(rows(1))
    assert lake[f"{database}.t"].name == f"{database}.t"
    assert len(lake["t"]) == 1
    assert ("t" in lake, f"{database}.T" in lake, "other" in lake, "no name" in lake, 5 in lake) == (
        True,
        True,
        *[False] * 3,
    )
    assert f"{database}.t" in list(lake)
    with pytest.raises(NoSuchTableError):
        lake["other"]
    assert "<td>1</td>" in lake.sql("SELECT id FROM t")._repr_html_()  # type: ignore[operator]
    assert "<td>t</td>" in lake.sql("SHOW TABLES")._repr_html_()  # type: ignore[operator]


WRONG: list[object] = [5, 1.5, b"x", object(), {5: 5}, [5], "\ud800", float("nan")]


def test_arguments_of_other_types_are_refused_before_anything_happens(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    frame = rows(9)
    calls: dict[str, Any] = {
        "columns": lambda given: table.read(columns=given),
        "where": lambda given: table.read(where=given),
        "limit": lambda given: None if given == 5 else table.read(limit=given),
        "max_commits": lambda given: None if given == 5 else table.changes(max_commits=given),
        "where of delete": lambda given: table.delete(where=given),
        "partitions": lambda given: table.delete_partitions(given),
        "batch_id": lambda given: table.upsert(frame, batch_id=given),
        "partition": lambda given: table.insert_overwrite(frame, partition=given),
        "set": lambda given: table.update(set=given),
        "on": lambda given: table.merge(frame, given),
        "condition": lambda given: table.merge(frame, "id").when_matched_delete(given),
        "name": lambda given: table.rename_column("note", given),
        "column": lambda given: table.drop_columns(given),
        "type": lambda given: table.add_column("more", given),
        "after": lambda given: table.move_column("note", given),
        "sort_by": lambda given: table.cluster(sort_by=given),
        "user": lambda given: table.savepoint(user=given),
        "version": lambda given: table.upgrade(given),
        "to": lambda given: table.send_changes(given),
        "index": lambda given: table.build_index(given),
        "path": lambda given: skep.open_table(given),
        "path of load": lambda given: skep.load(given),
        "path of save": lambda given: skep.write(frame).save(given),
        "mode": lambda given: skep.write(frame).mode(given),
        "warehouse": lambda given: skep.connect(warehouse=given),
    }
    for name, call in calls.items():
        for given in WRONG:
            if (name, given) in (("limit", 5), ("max_commits", 5), ("version", 5)):
                continue
            with pytest.raises(InputError):
                call(given)
    for given in ("\0", tmp_path / "a\0b"):
        with pytest.raises(InputError, match="null character"):
            skep.open_table(given)
    assert len(table.history()) == 1
    assert table.savepoints() == {}
    assert table.schema.names() == tuple(SCHEMA.names)


def test_a_partition_whose_folder_no_file_system_takes(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    with pytest.raises(StorageError, match=r"255 bytes in the name of a folder, as values of partition columns"):
        table.upsert(rows(5, day="x" * 256))
    table.upsert(rows(6, day="x" * 255))
    assert (len(table), len(table.history())) == (3, 2)
