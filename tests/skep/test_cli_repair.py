"""`skep repair`, `compaction`, `commits`, `stats` and `alter` of settings and type, on tables that Hudi wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.by_path import open_table
from skep.handles.table import Table
from skep.lake import Lake
from skep_format.errors import InputError
from skep_format.timeline.instant import Action

Copy = Callable[..., Path]


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Copy:
    def copied(case: str, release: str = "0.15.0") -> Path:
        return Path(shutil.copytree(golden / release / case / "table", tmp_path / case))

    return copied


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*map(str, arguments), "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code in (0, 1) and result.stdout else []


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return open_table(str(folder)).read().to_arrow().drop_columns(["_hoodie_file_name"]).to_pylist()


def test_what_commits_wrote(copy: Copy, tmp_path: Path) -> None:
    folder = copy("mor_upsert")
    hudi = open_table(str(folder)).hudi
    commits = {i.requested_time: hudi.commit_metadata(i) for i in hudi.timeline.data().completed()}
    newest = max(commits)
    every = run("commits", "files", folder)
    assert [row["requested_time"] for row in every] == sorted((row["requested_time"] for row in every), reverse=True)
    assert len(every) == sum(len(commit.stats) for commit in commits.values())
    (first, *_) = every
    group = run("commits", "files", folder, "--file-id", first["file_id"])
    assert {row["file_id"] for row in group} == {first["file_id"]}
    assert len(group) > 1
    partition = run("commits", "files", folder, "--partition", first["partition"], "--limit", 3)
    assert (len(partition), {row["partition"] for row in partition}) == (3, {first["partition"]})
    assert {row["requested_time"] for row in run("commits", "files", folder, "--since", newest)} == {newest}
    assert newest not in {row["requested_time"] for row in run("commits", "files", folder, "--until", min(commits))}
    of_newest = run("commits", "files", folder, "--instant", newest)
    assert sum(row["updates"] for row in of_newest) == sum(stat.num_update_writes for stat in commits[newest].stats)
    by_partition = run("commits", "partitions", folder, newest)
    assert sum(row["updates"] for row in by_partition) == sum(row["updates"] for row in of_newest)
    run("commits", "partitions", folder, "20200101000000000", code=2)
    compared = run("commits", "compare", folder, folder)
    assert compared == []
    exported = run("commits", "export", folder, tmp_path, "--actions", "deltacommit", "--limit", 2, "--newest-first")
    assert [row["requested_time"] for row in exported] == sorted(commits, reverse=True)[:2]
    assert json.loads(Path(exported[0]["file"]).read_text())["operationType"] == "UPSERT"
    run("commits", "export", folder, tmp_path / "none", code=2)


def test_archived_commits_are_found(copy: Copy) -> None:
    folder = copy("cow_archive")
    active, every = run("commits", "files", folder), run("commits", "files", folder, "--archived")
    assert every[: len(active)] == active
    oldest = every[-1]["requested_time"]
    assert oldest < active[-1]["requested_time"]
    run("commits", "files", folder, "--instant", oldest, code=2)
    assert run("commits", "files", folder, "--instant", oldest, "--archived")


@pytest.mark.parametrize("release", ["0.15.0", "1.1.1"])
def test_instants_are_exported_as_json(copy: Copy, tmp_path: Path, release: str) -> None:
    folder = copy("cow_archive", release)
    hudi = open_table(str(folder)).hudi
    every = run("commits", "export", folder, tmp_path, "--archived")
    assert [row["requested_time"] for row in every] == sorted(row["requested_time"] for row in every)
    assert len(every) == len(hudi.timeline.archived()) + len(hudi.timeline.completed())
    for row in every:
        content = json.loads(Path(row["file"]).read_text())
        assert ("partitionToWriteStats" in content) is (row["action"] == "commit"), row


def test_figures(copy: Copy) -> None:
    folder = copy("mor_upsert")
    sizes = run("stats", "sizes", folder)
    files = [row["base_bytes"] for row in run("files", folder, "--all") if row["base_file"]]
    assert (sizes[-1]["commit"], sizes[-1]["files"], sizes[-1]["greatest"]) == ("ALL", len(files), max(files))
    (one, whole) = run("stats", "sizes", folder, "--limit", 1, "--partition", "a*")
    assert one["commit"] == sizes[0]["commit"]
    assert whole["files"] < sizes[-1]["files"]
    writes = run("stats", "writes", folder)
    assert writes[-1]["commit"] == "Total"
    assert writes[-1]["written"] == sum(row["written"] for row in writes[:-1])


def test_file_slices(copy: Copy) -> None:
    folder = copy("mor_compaction")
    latest, every = run("files", folder), run("files", folder, "--all", "--details")
    assert len(every) > len(latest)
    assert all(row["logs"].count(".log.") == row["log_files"] for row in every)
    assert not {row["base_file"] for row in latest} - {row["base_file"] for row in every}


@pytest.mark.parametrize("release", ["0.15.0", "1.1.1"])
def test_partition_metafiles(copy: Copy, release: str) -> None:
    folder = copy("cow_upsert", release)
    rows = rows_of(folder)
    lost = next(folder.glob("*/.hoodie_partition_metadata"))
    lost.unlink()
    assert [row["action"] for row in run("repair", "add-partition-meta", folder, "--plan")].count("write") == 1
    assert not lost.exists()
    assert [row["action"] for row in run("repair", "add-partition-meta", folder)].count("written") == 1
    assert b"partitionDepth=1" in lost.read_bytes()
    assert {row["action"] for row in run("repair", "migrate-partition-meta", folder, "--plan")} == {"migrate"}
    assert {row["action"] for row in run("repair", "migrate-partition-meta", folder)} == {"migrated"}
    assert {row["action"] for row in run("repair", "migrate-partition-meta", folder)} == {"none"}
    assert not list(folder.rglob(".hoodie_partition_metadata"))
    assert rows_of(folder) == rows
    assert run("fsck", folder) == []


def test_settings(copy: Copy, tmp_path: Path) -> None:
    folder = copy("cow_upsert")
    file = tmp_path / "more.properties"
    file.write_text("hoodie.keep.min.commits=20\n")
    changed = run("alter", "settings", folder, "--file", file, "--set", "a.b=c", "--plan")
    assert [(row["property"], row["before"], row["after"]) for row in changed] == [
        ("a.b", None, "c"),
        ("hoodie.keep.min.commits", None, "20"),
    ]
    assert run("alter", "settings", folder, "--file", file, "--set", "a.b=c") == changed
    assert run("alter", "settings", folder, "--file", file, "--set", "a.b=c") == []
    (removed,) = run("alter", "settings", folder, "--unset", "a.b")
    assert (removed["before"], removed["after"]) == ("c", None)
    run("alter", "settings", folder, "--set", "hoodie.table.version=8", code=2)
    run("alter", "settings", folder, code=2)
    run("alter", "settings", folder, "--file", tmp_path / "none", code=2)


def test_settings_that_are_damaged(copy: Copy, tmp_path: Path) -> None:
    folder = copy("cow_upsert")
    properties, rows = folder / ".hoodie" / "hoodie.properties", rows_of(folder)
    whole = properties.read_bytes()
    good = tmp_path / "good.properties"
    good.write_bytes(whole)
    properties.write_bytes(whole[:40])
    run("repair", "recover-configs", folder, code=2)
    planned = run("repair", "overwrite-hoodie-props", folder, good, "--plan")
    assert {row["before"] for row in planned} == {None}
    assert properties.read_bytes() == whole[:40]
    assert run("repair", "overwrite-hoodie-props", folder, good) == planned
    assert rows_of(folder) == rows
    properties.rename(properties.with_name("hoodie.properties.backup"))
    assert run("repair", "recover-configs", folder) == planned
    assert rows_of(folder) == rows
    good.write_text("hoodie.table.name=other\nhoodie.table.version=6\n")
    run("repair", "overwrite-hoodie-props", folder, good, code=2)


def test_the_table_type(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy("mor_upsert")
    rows = rows_of(folder)
    (planned,) = run("alter", "table-type", folder, "cow", "--plan")
    assert (planned["before"], planned["after"]) == ("MERGE_ON_READ", "COPY_ON_WRITE")
    run("alter", "table-type", folder, "COW", "--no-compact", code=2)
    run("alter", "table-type", folder, "both", code=2)
    assert run("alter", "table-type", folder, "COW") == [planned]
    assert run("alter", "table-type", folder, "copy_on_write") == []
    assert rows_of(folder) == rows
    assert run("fsck", folder, "--deep") == []


def test_planned_compactions(copy: Copy) -> None:
    folder = copy("mor_upsert")
    rows = rows_of(folder)
    (done,) = run("compact", folder, "--schedule")
    time = done["instant"]
    assert [row["requested_time"] for row in run("timeline", folder, "--pending")] == [time]
    slices = run("compaction", "show", folder, time)
    assert [row["error"] for row in run("compaction", "validate", folder, time)] == [None] * len(slices)
    first = slices[0]
    one = ("--file-id", first["file_id"], "--partition", first["partition"])
    assert run("compaction", "unschedule", folder, time, *one, "--plan") == [first]
    assert run("compaction", "unschedule", folder, time, *one) == [first]
    assert run("compaction", "show", folder, time) == slices[1:]
    run("compaction", "unschedule", folder, time, "--partition", "x", code=2)
    lost = next((folder / slices[1]["partition"]).glob(f".{slices[1]['file_id']}_*.log.*"))
    lost.rename(lost.with_name("lost"))
    found = run("compaction", "validate", folder, time, code=1)
    assert [row["error"] for row in found if row["error"]] == [f"{lost.name} is missing"]
    lost.with_name("lost").rename(lost)
    assert run("compaction", "unschedule", folder, time) == slices[1:]
    assert run("timeline", folder, "--pending") == []
    run("compaction", "validate", folder, time, code=2)
    assert rows_of(folder) == rows


def test_cleans_that_cannot_be_read(copy: Copy) -> None:
    folder = copy("cow_upsert")
    (folder / ".hoodie" / "20300101000000000.clean.requested").write_bytes(b"no Avro")
    (planned,) = run("repair", "corrupted-clean-files", folder, "--plan")
    assert (planned["requested_time"], planned["state"], planned["action"]) == (
        "20300101000000000",
        "requested",
        "delete",
    )
    assert [row["action"] for row in run("repair", "corrupted-clean-files", folder)] == ["deleted"]
    assert run("repair", "corrupted-clean-files", folder) == []


def with_duplicates(folder: Path) -> Table:
    """Its rows of one partition once more."""
    table = open_table(str(folder))
    rows = table.read().to_arrow()
    again = rows.filter(
        [each == rows["_hoodie_partition_path"][0].as_py() for each in rows["_hoodie_partition_path"].to_pylist()]
    )
    table.bulk_insert(again.select([name for name in rows.schema.names if not name.startswith("_hoodie_")]))
    return open_table(str(folder))


@pytest.mark.parametrize("case", ["cow_upsert", "mor_upsert"])
def test_duplicates(copy: Copy, tmp_path: Path, case: str) -> None:
    folder = copy(case)
    before = sorted(row["_hoodie_record_key"] for row in rows_of(folder))
    table = with_duplicates(folder)
    partition = table.read().to_arrow()["_hoodie_partition_path"][0].as_py()
    assert len(table) > len(before)
    planned = run("repair", "deduplicate", folder, partition, "--plan", "--copy-to", tmp_path / "fixed")
    assert {row["action"] for row in planned} == {"stays", "delete"}
    assert len(table) > len(before)
    import pyarrow.parquet as pq

    fixed = pq.read_table(tmp_path / "fixed" / "deduplicated.parquet")
    assert len(set(fixed["_hoodie_record_key"].to_pylist())) == len(fixed)
    assert set(fixed["_hoodie_partition_path"].to_pylist()) == {partition}
    done = run("repair", "deduplicate", folder, partition)
    assert [row["action"] == "stays" for row in done] == [row["action"] == "stays" for row in planned]
    assert sorted(row["_hoodie_record_key"] for row in rows_of(folder)) == before
    assert run("repair", "deduplicate", folder, partition) == []
    run("repair", "deduplicate", folder, partition, "--keep", "newest", code=2)
    run("repair", "deduplicate", folder, "nowhere", code=2)
    assert run("fsck", folder) == []


def test_methods_name_what_they_do_not_know(copy: Copy) -> None:
    table = open_table(str(copy("cow_upsert")))
    with pytest.raises(InputError, match="table type 'x'"):
        table.change_table_type("x")
    with pytest.raises(InputError, match="dedupe type 'x'"):
        table.deduplicate("p", keep="x")


def test_a_partition_gets_another_path(copy: Copy) -> None:
    folder = copy("cow_upsert")
    rows = rows_of(folder)
    before = rows[0]["_hoodie_partition_path"]
    count = sum(row["_hoodie_partition_path"] == before for row in rows)
    (planned,) = run("repair", "rename-partition", folder, before, "another", "--plan")
    assert planned == {"partition": before, "to": "another", "rows": count, "action": "move"}
    assert rows_of(folder) == rows
    (done,) = run("repair", "rename-partition", folder, before, "another")
    assert done == {**planned, "action": "moved"}
    paths = [row["_hoodie_partition_path"] for row in rows_of(folder)]
    assert (paths.count("another"), paths.count(before), len(paths)) == (count, 0, len(rows))
    run("repair", "rename-partition", folder, before, "third", code=2)
    assert run("repair", "deprecated-partition", folder, "--plan") == []


def test_restores_are_shown_with_what_they_rolled_back(copy: Copy) -> None:
    folder = copy("cow_upsert")
    table = open_table(str(folder))
    assert run("commits", "restores", folder) == []
    first, *later = [each.requested_time for each in table.hudi.timeline.data().completed()]
    table.savepoint(first)
    table.restore(first)
    (restore,) = open_table(str(folder)).hudi.timeline.of(Action.RESTORE)
    shown = run("commits", "restores", folder)
    assert [(row["instant"], row["rolled_back"], row["state"]) for row in shown] == [
        (restore.requested_time, time, "completed") for time in reversed(later)
    ]
    assert all(row["milliseconds"] >= 0 for row in shown)
    assert len(run("commits", "restores", folder, "--limit", 1)) == 1
    run("commits", "restores", folder, "--instant", first, code=2)
    layout = open_table(str(folder)).hudi.layout
    (folder / layout.path(restore)).unlink()
    assert run("commits", "restores", folder) == []
    pending = [{**row, "state": "inflight", "milliseconds": None} for row in shown]
    assert run("commits", "restores", folder, "--inflight") == pending
    assert run("commits", "restores", folder, "--instant", restore.requested_time) == pending


@pytest.mark.metastore
def test_a_partition_under_another_path_is_so_in_the_metastore(
    lake: Lake, database: str, orders: Callable[..., pa.Table]
) -> None:
    table = lake.create_table("t", orders(1), key="id", partition_by="day")
    table.upsert(pa.concat_tables([orders(1), orders(2, day="2026-01-02")]))
    table.rename_partition("2026-01-01", "2026-02-03")
    assert sorted(lake.metastore.partition_names(database, "t")) == ["day=2026-01-02", "day=2026-02-03"]
    assert lake.table("t").read(where="day = '2026-02-03'").to_arrow()["id"].to_pylist() == [1]
