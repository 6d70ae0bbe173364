"""Keywords that no call takes are refused before it acts, and `dry_run` changes no file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
import skep.handles.by_path
from skep.handles.frame_writer import FrameWriter
from skep.handles.table import Table
from skep_format.errors import InputError, KeywordError, OptionError
from skep_format.options import UnknownOptionWarning

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("day", pa.string())])


def rows(*ids: int, at: int = 1, day: str = "a") -> pa.Table:
    return pa.table([list(ids), [at] * len(ids), [day] * len(ids)], schema=SCHEMA)


def make(path: Path, type: str = "mor", version: int = 6, **options: str) -> Table:
    named = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if type == "mor" else "COPY_ON_WRITE",
        "hoodie.write.table.version": version,
    }
    skep.write(pa.concat_tables([rows(1, 2), rows(3, day="b")])).options(**named, **options).save(path)
    table = skep.open_table(path)
    table.upsert(rows(1, 4, at=2))
    table.delete(rows(4))
    return table


def files(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file.relative_to(path)): (file.stat().st_mtime_ns, file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


MISSPELT: list[tuple[str, str, Callable[[Table], Any]]] = [
    ("dryrun", "dry_run", lambda table: table.delete(where="id = 1", dryrun=True)),
    ("dryrun", "dry_run", lambda table: table.delete_partitions("*", dryrun=True)),
    ("dryrun", "dry_run", lambda table: table.rollback(table.history()[-1].instant, dryrun=True)),
    ("dry_rnu", "dry_run", lambda table: table.compact(dry_rnu=True)),
    ("batchid", "batch_id", lambda table: table.upsert(rows(9), batchid="x")),
    ("batchId", "batch_id", lambda table: table.insert(rows(9), batchId="x")),
    ("filter", "", lambda table: table.update(set={"at": 5}, filter="id = 1")),
    ("source_alia", "source_alias", lambda table: table.merge(rows(9), "id", source_alia="s")),
    ("partitons", "partitions", lambda table: table.cluster(partitons="a")),
    ("colums", "columns", lambda table: table.build_index("column_stats", colums="id")),
    ("max_commit", "max_commits", lambda table: table.read_stream(max_commit=1)),
    ("day", "days", lambda table: table.expire(day=1)),
    ("wher", "", lambda table: skep.load(table.path, wher="id = 1")),
]


@pytest.mark.parametrize(
    ("name", "meant", "call"), MISSPELT, ids=[f"{name}{at}" for at, (name, *_) in enumerate(MISSPELT)]
)
def test_a_keyword_that_a_call_does_not_take_is_a_type_error(
    tmp_path: Path, name: str, meant: str, call: Callable[[Table], Any]
) -> None:
    table = make(tmp_path / "t")
    before = files(tmp_path)
    with pytest.raises(TypeError, match=f"no keyword {name}" + (f"; did you mean {meant}" if meant else "")) as found:
        call(table)
    assert isinstance(found.value, KeywordError)
    assert files(tmp_path) == before


def test_options_are_known_by_their_dot(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    with pytest.warns(UnknownOptionWarning, match=r"hoodie\.clean\.atomatic; did you mean hoodie\.clean\.automatic"):
        table.archive(**{"hoodie.clean.atomatic": True})


def test_values_that_options_do_not_take_are_refused_before_anything_happens(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    before = files(tmp_path)
    for key in ("hoodie.clean.automatic", "hoodie.archive.automatic", "hoodie.keep.max.commits"):
        wrong = {key: "maybe"}
        calls = [
            lambda: table.upsert(rows(9), **wrong),  # noqa: B023 - called in this round
            lambda: table.delete(where="id = 1", **wrong),  # noqa: B023
            lambda: table.compact(**wrong),  # noqa: B023
            lambda: skep.open_table(tmp_path / "t", **wrong),  # noqa: B023
            lambda: skep.write(rows(9)).options(**wrong).mode("append").save(tmp_path / "t"),  # noqa: B023
            lambda: skep.connect(warehouse=str(tmp_path / "lake"), options=wrong),  # noqa: B023
        ]
        for call in calls:
            with pytest.raises(OptionError, match=f"option {key}: 'maybe' is not"):
                call()
    assert files(tmp_path) == before


def test_every_call_with_options_checks_its_keywords() -> None:
    calls = [
        call
        for holder in (Table, FrameWriter, skep.handles.by_path)
        for name, call in inspect.getmembers(holder, inspect.isfunction)
        if not name.startswith("_")
        for each in inspect.signature(call).parameters.values()
        if each.name == "options" and each.kind is each.VAR_KEYWORD
    ]
    assert len(calls) > 20
    assert [call.__qualname__ for call in calls if not hasattr(call, "checks_options")] == []


PLANS: list[tuple[str, Callable[[Table], Any]]] = [
    ("compact", lambda table: table.compact(dry_run=True)),
    ("compact logs", lambda table: table.compact(logs=True, dry_run=True)),
    ("cluster", lambda table: table.cluster(sort_by="at", dry_run=True)),
    ("clean", lambda table: table.clean(dry_run=True, **{"hoodie.cleaner.fileversions.retained": 1})),
    ("archive", lambda table: table.archive(dry_run=True)),
    ("expire", lambda table: table.expire(1, dry_run=True)),
    ("maintain", lambda table: table.maintain(dry_run=True)),
    ("upgrade", lambda table: table.upgrade(9, dry_run=True)),
    ("rollback", lambda table: table.rollback(table.history()[-1].instant, dry_run=True)),
    ("restore", lambda table: table.restore(next(iter(table.savepoints())), dry_run=True)),
    ("delete", lambda table: table.delete(rows(1), dry_run=True)),
    ("delete where", lambda table: table.delete(where="id < 3", dry_run=True)),
    ("delete partitions", lambda table: table.delete_partitions("*", dry_run=True)),
]


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(("name", "call"), PLANS, ids=[name for name, _ in PLANS])
def test_a_dry_run_changes_no_file(tmp_path: Path, name: str, call: Callable[[Table], Any], version: int) -> None:
    table = make(tmp_path / "t", version=version)
    if name == "restore":
        table.savepoint()
        table.upsert(rows(7))
    before = files(tmp_path)
    assert call(table) is not None
    assert files(tmp_path) == before


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("type", ["cow", "mor"])
def test_a_dry_run_counts_what_the_delete_then_takes(tmp_path: Path, type: str, version: int) -> None:
    table = make(tmp_path / "t", type, version)
    assert table.delete(where="id >= 2", dry_run=True).partitions == {"a": 1, "b": 1}
    # 4 is deleted already, 5 never was, and 3 lies in another partition
    keys = rows(1, 2, 3, 4, 5, 1)
    assert table.delete(keys, dry_run=True).partitions == {"a": 2}
    assert table.delete(keys, dry_run=True, **{"hoodie.index.type": "GLOBAL_SIMPLE"}).partitions == {"a": 2, "b": 1}
    assert table.delete(rows(), dry_run=True).rows == 0
    table.delete(keys)
    assert table.read(columns="id").to_arrow()["id"].to_pylist() == [3]
    found = table.delete_partitions("*", dry_run=True).partitions
    assert {path: bool(groups) for path, groups in found.items()} == {"a": True, "b": True}
    assert table.delete_partitions("c*", dry_run=True).partitions == {}


def test_a_dry_run_without_meta_columns(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow", **{"hoodie.populate.meta.fields": "false"})
    assert table.delete(rows(1, 9), dry_run=True).partitions == {"a": 1}
    assert table.delete(where="day = 'b'", dry_run=True).partitions == {"b": 1}


def test_a_dry_run_is_refused_as_the_call_is(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.history()[0].instant
    with pytest.raises(InputError, match="is not the newest write"):
        table.rollback(first, dry_run=True)
    with pytest.raises(InputError, match="no savepoint"):
        table.restore(first, dry_run=True)
    with pytest.raises(InputError, match="plan and schedule exclude each other"):
        table.compact(dry_run=True, schedule=True)


def test_what_rollback_and_restore_plan(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.savepoint()
    kept, last = table.history()[-1].instant, table.upsert(rows(7)).instant.requested_time
    plan = table.rollback(last, dry_run=True)
    assert plan.instant_to_rollback is not None
    assert plan.instant_to_rollback.commit_time == last
    steps = table.restore(kept, dry_run=True)
    assert [each.commit_time for each in steps.instants_to_rollback] == [last]
