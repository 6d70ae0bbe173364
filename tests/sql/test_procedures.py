"""CALL: every procedure of Hudi's is carried out with its result columns, or refused by name with a reason.

`hudi_procedures.txt` has a line for each: release where the two differ, name, arguments (`*` required, `=` default),
result columns.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skep.lake import Lake
from skep_format.errors import InputError, SkepError, UnsupportedError
from skep_sql.procedures import PROCEDURES, REFUSED
from skep_sql.procedures.contract import REQUIRED

LINE = re.compile(r"^(?:(?P<release>[\d.]+) )?(?P<name>\w+)\((?P<arguments>.*)\) -> (?P<columns>.*)$")
KNOWN = [
    found.groupdict() for line in Path(__file__).with_name("hudi_procedures.txt").read_text().splitlines()
    if (found := LINE.match(line))
]  # fmt: skip


def arguments_of(text: str) -> dict[str, tuple[bool, str]]:
    """Name → whether it is required, and its type."""
    found = {}
    for part in re.split(r", (?=\w+[*:=,]|\w+$)", text):
        match = re.match(r"(\w+)(?::(\w+))?(\*)?", part)
        if match and match.group(1):
            found[match.group(1)] = bool(match.group(3)), match.group(2) or "string"
    return found


def test_all_of_hudis_are_known() -> None:
    names = {each["name"] for each in KNOWN}
    assert len(names) > 60
    assert names == PROCEDURES.keys() | REFUSED.keys() | {"help"}
    assert not PROCEDURES.keys() & REFUSED.keys()


@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_columns_and_arguments_are_hudis(name: str) -> None:
    found = PROCEDURES[name]
    releases = [each for each in KNOWN if each["name"] == name]
    assert [column for column, _ in found.columns] in [each["columns"].split(", ") for each in releases]
    ours = {argument.name: argument for argument in found.arguments}
    theirs: dict[str, tuple[bool, str]] = {}
    for each in releases:
        theirs |= arguments_of(each["arguments"])
    assert ours.keys() <= theirs.keys()
    missing = theirs.keys() - ours.keys()
    assert not missing, missing
    kinds = {"string": str, "int": int, "bigint": int, "boolean": bool}
    assert {key: argument.kind for key, argument in ours.items()} == {key: kinds[theirs[key][1]] for key in ours}


@pytest.fixture
def table(lake: Lake, database: str) -> str:
    """Merge on read, two partitions; one row was updated into a log."""
    name = f"{database}.t"
    lake.sql(
        f"CREATE TABLE {name} (id INT, v STRING, ts BIGINT, p STRING) USING hudi"
        " TBLPROPERTIES (primaryKey='id', preCombineField='ts', type='mor') PARTITIONED BY (p)"
    )
    lake.sql(f"INSERT INTO {name} VALUES (1, 'a', 1, 'x'), (2, 'b', 1, 'y')")
    lake.sql(f"UPDATE {name} SET v = 'aa', ts = 2 WHERE id = 1")
    return name


def rows(lake: Lake, text: str) -> list[dict[str, Any]]:
    return list(lake.sql(f"CALL {text}").to_arrow().to_pylist())


def test_procedures_answer(lake: Lake, table: str, database: str, tmp_path: Path) -> None:
    commits = rows(lake, f"show_commits('{table}')")
    assert [each["action"] for each in commits] == ["deltacommit", "deltacommit"]
    newest = commits[0]["commit_time"]
    (all_of_x, _) = sorted(rows(lake, f"show_fsview_all(table => '{table}')"), key=lambda row: row["partition"])
    assert (all_of_x["partition"], all_of_x["num_delta_files"]) == ("p=x", 1)
    assert all_of_x["total_delta_file_size"] > 0
    assert rows(lake, f"show_fsview_all(table => '{table}', path_regex => 'p=y')")[0]["num_delta_files"] == 0
    (latest,) = rows(lake, f"show_fsview_latest(table => '{table}', partition_path => 'p=x')")
    assert latest["delta_size_compaction_scheduled"] == latest["total_delta_file_size"] > 0
    assert latest["delta_size_compaction_unscheduled"] == 0
    sizes = rows(lake, f"stats_file_sizes(table => '{table}')")
    assert [(row["commit_time"], row["num_files"]) for row in sizes] == [(commits[1]["commit_time"], 2), ("ALL", 2)]
    assert rows(lake, f"stats_wa(table => '{table}')")[-1]["commit_time"] == "Total"
    (block,) = rows(lake, f"show_logfile_metadata(table => '{table}', log_file_path_pattern => '*.log.*')")
    assert (block["instant_time"], block["record_count"], block["block_type"]) == (newest, 1, "AVRO_DATA_BLOCK")
    assert json.loads(block["header_metadata"])["INSTANT_TIME"] == newest
    (record,) = rows(lake, f"show_logfile_records(table => '{table}', log_file_path_pattern => '*.log.*')")
    assert json.loads(record["records"])["v"] == "aa"
    with pytest.raises(InputError, match=r"no log file"):
        rows(lake, f"show_logfile_metadata(table => '{table}', log_file_path_pattern => 'none')")
    properties = {
        row["key"]: row["value"] for row in rows(lake, f"show_table_properties(table => '{table}', limit => 99)")
    }
    assert properties["hoodie.table.recordkey.fields"] == "id"
    location = lake.table(table).path.removeprefix("file:")
    assert rows(lake, f"show_invalid_parquet(path => '{location}')") == []
    (Path(location) / "p=x" / "broken.parquet").write_bytes(b"PAR1 no file PAR1")
    assert [row["path"].rpartition("/")[2] for row in rows(lake, f"show_invalid_parquet('{location}')")] == [
        "broken.parquet"
    ]
    (Path(location) / "p=x" / "broken.parquet").unlink()
    (folder,) = rows(lake, f"show_fs_path_detail(path => '{location}/p=x')")
    assert folder["file_num"] == 3
    (compared,) = rows(lake, f"commits_compare(table => '{table}', path => '{location}')")
    assert "0 commits" in compared["compare_detail"]
    exported = tmp_path / "exported"
    exported.mkdir()
    rows(lake, f"export_instants(table => '{table}', local_folder => '{exported}')")
    assert sorted(path.name for path in exported.iterdir()) == [
        f"{row['commit_time']}.deltacommit" for row in commits[::-1]
    ]
    with pytest.raises(InputError, match="metadata table"):
        rows(lake, f"validate_metadata_table_files(table => '{table}')")
    assert rows(lake, f"show_bootstrap_mapping(table => '{table}')") == []


def test_services_are_run(lake: Lake, table: str) -> None:
    (compacted,) = rows(
        lake,
        f"run_compaction(op => 'scheduleAndExecute', table => '{table}',"
        " options => 'hoodie.compact.inline.max.delta.commits=1')",
    )
    assert compacted["state"] == "COMPLETED"
    assert rows(lake, f"show_compaction('{table}')") == [compacted]
    # Hudi's statements are the same procedures.
    assert lake.sql(f"SHOW COMPACTION ON {table} LIMIT 5").to_arrow().to_pylist() == [compacted]
    lake.sql(f"update {table} set v = v where id = 1")
    lake.sql("SET hoodie.compact.inline.max.delta.commits = 1")
    (scheduled,) = lake.sql(f"SCHEDULE COMPACTION ON {table}").to_arrow().to_pylist()
    assert scheduled["state"] == "REQUESTED"
    with pytest.raises(InputError, match="there is no plan 20200101000000000"):
        lake.sql(f"RUN COMPACTION ON {table} AT 20200101000000000")
    (run,) = lake.sql(f"RUN COMPACTION ON {table} AT {scheduled['timestamp']}").to_arrow().to_pylist()
    assert run == {**scheduled, "state": "COMPLETED"}
    lake.sql("RESET hoodie.compact.inline.max.delta.commits")
    with pytest.raises(UnsupportedError, match="RUN COMPACTION ON a path"):
        lake.sql("RUN COMPACTION ON '/lake/t'")
    (planned,) = rows(
        lake, f"run_clustering(table => '{table}', op => 'schedule', order => 'v', predicate => \"p = 'x'\")"
    )
    assert (planned["input_group_size"], planned["state"], planned["involved_partitions"]) == (1, "REQUESTED", "*")
    (done,) = rows(lake, f"run_clustering(table => '{table}', op => 'execute', show_involved_partition => true)")
    assert (done["timestamp"], done["state"], done["involved_partitions"]) == (planned["timestamp"], "COMPLETED", "p=x")
    assert rows(lake, f"show_clustering(table => '{table}', show_involved_partition => true)") == [done]
    for wrong in ("op => 'rubbish'", "predicate => 'id = 1'", "partition_regex_pattern => 'x'"):
        with pytest.raises(SkepError):
            rows(lake, f"run_clustering(table => '{table}', {wrong})")
    # What a clustering replaced is deleted once no retained commit is as old.
    lake.sql(f"delete from {table} where id = 1")
    (cleaned,) = rows(lake, f"run_clean(table => '{table}', retain_commits => 1)")
    assert cleaned["total_files_deleted"] > 0
    (shown,) = rows(lake, f"show_cleans(table => '{table}')")
    assert (shown["start_clean_time"], shown["total_files_deleted"]) == (
        cleaned["start_clean_time"],
        cleaned["total_files_deleted"],
    )
    (plan,) = rows(lake, f"show_clean_plans(table => '{table}')")
    assert (plan["plan_time"], plan["policy"], plan["state"]) == (
        shown["clean_time"],
        "KEEP_LATEST_COMMITS",
        "COMPLETED",
    )
    files = [row for row in rows(lake, f"show_cleans_metadata(table => '{table}')") if row["success_delete_files"]]
    assert sum(row["success_delete_files"] for row in files) == cleaned["total_files_deleted"]
    deleted = next(
        iter(
            lake.table(table)
            .hudi.plan(lake.table(table).hudi.timeline.completed().instants[-1])
            .partition_metadata.values()
        )
    )  # type: ignore[union-attr]
    name = deleted.success_delete_files[0].rpartition("/")[2]
    (status,) = rows(
        lake, f"show_file_status(table => '{table}', partition => '{deleted.partition_path}', file => '{name}')"
    )
    assert (status["status"], status["action"], status["instant"]) == ("DELETED", "clean", shown["clean_time"])
    assert rows(
        lake, f"archive_commits(table => '{table}', min_commits => 2, max_commits => 3, retain_commits => 1)"
    ) == [{"result": 0}]
    archived = rows(lake, f"show_archived_commits(table => '{table}')")
    active = rows(lake, f"show_commits(table => '{table}')")
    assert archived
    assert not {row["commit_time"] for row in archived} & {row["commit_time"] for row in active}
    assert len(rows(lake, f"show_archived_commits_metadata(table => '{table}')")) >= len(archived)
    assert rows(lake, f"run_ttl(table => '{table}', retain_days => 1)") == []


def test_rollbacks_are_shown(lake: Lake, table: str) -> None:
    newest = rows(lake, f"show_commits('{table}')")[0]["commit_time"]
    assert rows(lake, f"delete_marker(table => '{table}', instant_time => '{newest}')") == [
        {"delete_marker_result": True}
    ]
    rows(lake, f"rollback_to_instant(table => '{table}', instant_time => '{newest}')")
    (found,) = rows(lake, f"show_rollbacks(table => '{table}')")
    assert found["rollback_instant"] == newest
    details = rows(lake, f"show_rollback_detail(table => '{table}', instant_time => '{found['instant']}')")
    assert len(details) == found["total_files_deleted"]
    assert all(row["rollback_instant"] == newest and row["succeeded"] for row in details)
    with pytest.raises(InputError, match="no rollback"):
        rows(lake, f"show_rollback_detail(table => '{table}', instant_time => '1')")


def test_copies(lake: Lake, table: str, database: str) -> None:
    first = rows(lake, f"show_commits('{table}')")[1]["commit_time"]
    assert rows(lake, f"copy_to_table(table => '{table}', new_table => '{database}.copy')") == [{"status": 0}]
    assert sorted(row["v"] for row in lake.table(f"{database}.copy").read(columns=["v"]).to_arrow().to_pylist()) == [
        "aa",
        "b",
    ]
    rows(lake, f"copy_to_table(table => '{table}', new_table => '{database}.copy', as_of_instant => '{first}')")
    assert sorted(lake.table(f"{database}.copy").read().to_arrow()["v"].to_pylist()) == ["a", "b"]
    rows(lake, f"copy_to_table(table => '{table}', new_table => '{database}.copy', save_mode => 'append')")
    assert lake.table(f"{database}.copy").read().count() == 4
    with pytest.raises(SkepError, match="already exists"):
        rows(lake, f"copy_to_table(table => '{table}', new_table => '{database}.copy', save_mode => 'error')")
    assert rows(lake, f"copy_to_temp_view(table => '{table}', view_name => 'shown')") == [{"status": 0}]
    with pytest.raises(SkepError, match="already exists"):
        rows(lake, f"copy_to_temp_view(table => '{table}', view_name => 'shown')")


def test_others_are_refused_with_a_reason(lake: Lake, table: str) -> None:
    for name, reason in REFUSED.items():
        with pytest.raises(UnsupportedError, match=name) as caught:
            lake.sql(f"CALL {name}(table => '{table}')")
        assert caught.value.hint == reason
    with pytest.raises(UnsupportedError, match="path"):
        lake.sql(f"CALL show_clustering(table => '{table}', path => '/somewhere')")


def test_a_table_is_one_of_the_catalog(lake: Lake, table: str) -> None:
    """Hudi asks the catalog for its metadata, which has no temporary views."""
    name = table.rpartition(".")[2]
    before = lake.sql(f"CALL show_commits(table => '{name}')").to_arrow()
    lake.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT 5 AS id")
    assert lake.sql(f"SELECT * FROM {name}").to_arrow().num_columns == 1
    assert lake.sql(f"CALL show_commits(table => '{name}')").to_arrow() == before


def test_help(lake: Lake) -> None:
    (known,) = lake.sql("CALL help()").to_arrow()["result"].to_pylist()
    assert "run_clean" in known.split("\n")
    (one,) = lake.sql("CALL help(cmd => 'show_commits')").to_arrow()["result"].to_pylist()
    assert one.startswith("show_commits(table: string, limit: int = 10) -> commit_time, ")
    assert isinstance(lake.sql("CALL help('run_bootstrap')").to_arrow(), pa.Table)


def test_required_arguments_have_no_default() -> None:
    for name, procedure in PROCEDURES.items():
        required = [argument.name for argument in procedure.arguments if argument.default is REQUIRED]
        theirs = [arguments_of(each["arguments"]) for each in KNOWN if each["name"] == name]
        more = {"table"} if any("path" in each for each in theirs) else set()
        assert any({key for key, (needed, _) in each.items() if needed} | more >= set(required) for each in theirs), (
            name
        )


@pytest.fixture(params=["0.15.0", "1.1.1"])
def indexed(request: pytest.FixtureRequest, lake: Lake, database: str, golden: Path, tmp_path: Path) -> str:
    """A table of Hudi's, whose metadata table has column statistics."""
    shutil.copytree(golden / request.param / "cow_column_stats" / "table", tmp_path / "indexed")
    lake.sql(f"CREATE TABLE {database}.indexed USING hudi LOCATION '{tmp_path / 'indexed'}'")
    return f"{database}.indexed"


def test_a_metadata_table_is_shown(lake: Lake, indexed: str) -> None:
    hudi = lake.table(indexed).hudi
    slices = {path: hudi.view(metadata=False).slices(path) for path in hudi.view(metadata=False).partitions()}
    stats = {row["stat_key"]: row["stat_value"] for row in rows(lake, f"show_metadata_table_stats('{indexed}')")}
    assert stats["files.baseFileCount"] == "1"
    assert int(stats["column_stats.totalLogFileSizeInBytes"]) > 0
    assert stats["partitionCount"] == str(len(slices))
    assert stats["lastCompactionTimestamp"] == "none"
    found = rows(lake, f"show_metadata_table_column_stats(table => '{indexed}', targetColumns => 'ts,qty')")
    assert {row["column_name"] for row in found} == {"ts", "qty"}
    bases = [each.base_file for found in slices.values() for each in found if each.base_file]
    files = {str(base.name): base.path for base in bases}
    rows_of = {name: pq.read_table(f"{hudi.storage.root}/{path}", partitioning=None) for name, path in files.items()}
    expected = {name: pc.min_max(held["ts"]) for name, held in rows_of.items()}
    bounds = {row["file_name"]: (row["min_value"], row["max_value"]) for row in found if row["column_name"] == "ts"}
    for name, known in expected.items():
        assert bounds[name] == (str(known["min"]), str(known["max"]))
    first = next(iter(slices))
    one = rows(lake, f"show_metadata_table_column_stats(table => '{indexed}', partition => '{first}')")
    latest = {name for name, path in files.items() if path.startswith(f"{first}/")}
    assert latest == {row["file_name"] for row in one} & files.keys()
    overlaps = rows(lake, f"show_metadata_column_stats_overlap(table => '{indexed}', targetColumns => 'ts')")
    assert {row["Partition path"] for row in overlaps} == slices.keys()
    for row in overlaps:
        count = len(slices[row["Partition path"]])
        assert row["Total file number"] == count
        assert 1 <= row["50% overlap"] <= row["99% overlap"] <= row["Maximum file overlap"] <= count
        assert row["Total value number"] >= 1


def test_a_metadata_table_is_validated(lake: Lake, indexed: str) -> None:
    assert rows(lake, f"validate_metadata_table_files(table => '{indexed}')") == []
    every = rows(lake, f"validate_metadata_table_files(table => '{indexed}', verbose => true)")
    assert every
    assert not any("hoodie_partition_metadata" in row["file_name"] for row in every)
    assert all(row["is_present_in_fs"] and row["fs_size"] == row["metadata_size"] for row in every)
    lost = every[0]
    Path(lake.table(indexed).path.removeprefix("file:"), lost["partition"], lost["file_name"]).unlink()
    (found,) = rows(lake, f"validate_metadata_table_files('{indexed}')")
    assert found == {**lost, "is_present_in_fs": False, "fs_size": 0}


def test_a_metadata_table_is_made_and_dropped(lake: Lake, indexed: str) -> None:
    with pytest.raises(InputError, match="has a metadata table"):
        rows(lake, f"create_metadata_table('{indexed}')")
    (opened,) = rows(lake, f"init_metadata_table(table => '{indexed}', read_only => true)")
    assert opened["result"].startswith("Opened Metadata Table in ")
    (dropped,) = rows(lake, f"delete_metadata_table('{indexed}')")
    assert dropped["result"].startswith("Deleted Metadata Table at ")
    assert lake.table(indexed).hudi.config.metadata_partitions == ()
    with pytest.raises(InputError, match="no metadata table"):
        rows(lake, f"init_metadata_table('{indexed}')")
    (made,) = rows(lake, f"create_metadata_table(table => '{indexed}')")
    assert re.fullmatch(r"Created Metadata Table in \S+/\.hoodie/metadata \(duration=[\d.]+secs\)", made["result"])
    assert rows(lake, f"validate_metadata_table_files('{indexed}')") == []
    shutil.rmtree(Path(lake.table(indexed).path.removeprefix("file:"), ".hoodie", "metadata"))
    (again,) = rows(lake, f"init_metadata_table('{indexed}')")
    assert again["result"].startswith("Initialized Metadata Table in ")
    assert rows(lake, f"validate_metadata_table_files('{indexed}')") == []


@pytest.mark.parametrize(
    ("bounds", "files"),
    [
        ([(1, 5), (3, 7), (7, 8)], {1: 1, 3: 2, 5: 2, 7: 2, 8: 1}),
        ([(1, 1)], {1: 1}),
        ([(1, 9), (1, 9), (1, 9)], {1: 3, 9: 3}),
    ],
)
def test_ranges_that_overlap_are_counted_as_hudi_does(bounds: list[tuple[int, int]], files: dict[int, int]) -> None:
    from skep_sql.procedures.metadata import _files_by_value

    assert _files_by_value(bounds) == files


def test_table_functions_show_timeline_and_files(lake: Lake, table: str) -> None:
    functions = lake._statements().session.scope.functions
    catalog = lake._statements().session.catalog
    timeline = functions["hudi_query_timeline"](catalog, (table, "true")).to_pylist()
    assert [(row["Action"], row["State"], row["Total_Records_Written"]) for row in timeline] == [
        ("deltacommit", "COMPLETED", 2),
        ("deltacommit", "COMPLETED", 1),
    ]
    files = functions["hudi_filesystem_view"](catalog, (table,)).to_pylist()
    found = {row["Partition_Path"]: (row["Log_File_Count"], row["Log_File_Unscheduled"]) for row in files}
    assert found == {"p=x": (1, 0), "p=y": (0, 0)}
    assert all(row["Base_File_Size"] > 0 and row["Base_File_Path"].endswith(".parquet") for row in files)
    with pytest.raises(InputError, match="maybe"):
        functions["hudi_query_timeline"](catalog, (table, "maybe"))


def test_a_table_gets_another_version(lake: Lake, table: str) -> None:
    before = lake.table(table).read().to_arrow().num_rows
    assert rows(lake, f"upgrade_table(table => '{table}', to_version => 'NINE')") == [{"result": True}]
    assert lake.table(table).hudi.config.version == 9
    assert rows(lake, f"downgrade_table(table => '{table}', to_version => '8')") == [{"result": True}]
    assert lake.table(table).hudi.config.version == 8
    assert lake.table(table).read().to_arrow().num_rows == before
    with pytest.raises(InputError, match="to_version is 'TEN'"):
        lake.sql(f"CALL upgrade_table(table => '{table}', to_version => 'TEN')")
    with pytest.raises(InputError, match="downgrade brings it there"):
        lake.sql(f"CALL upgrade_table(table => '{table}', to_version => 'SIX')")


def test_repairs(lake: Lake, table: str, tmp_path: Path) -> None:
    folder = Path(lake.table(table).path.removeprefix("file:"))
    before = lake.sql(f"SELECT * FROM {table} ORDER BY id").to_arrow().to_pylist()
    (folder / "p=x" / ".hoodie_partition_metadata").unlink()
    states = [("p=x", "No", "None"), ("p=y", "Yes", "None")]
    names = ("partition_path", "metadata_is_present", "action")
    assert [tuple(map(row.get, names)) for row in rows(lake, f"repair_add_partition_meta('{table}')")] == states
    done = rows(lake, f"repair_add_partition_meta(table => '{table}', dry_run => false)")
    assert [row["action"] for row in done] == ["Repaired", "None"]
    names = ("text_metafile_present", "base_metafile_present", "action")
    planned = rows(lake, f"repair_migrate_partition_meta('{table}')")
    assert {tuple(map(row.get, names)) for row in planned} == {("true", "false", "MIGRATE")}
    moved = rows(lake, f"repair_migrate_partition_meta('{table}', false)")
    assert {tuple(map(row.get, names)) for row in moved} == {("true", "false", "MIGRATED")}
    again = rows(lake, f"repair_migrate_partition_meta('{table}')")
    assert {tuple(map(row.get, names)) for row in again} == {("false", "true", "NONE")}

    clean = folder / lake.table(table).hudi.layout.folder / "20300101000000000.clean.requested"
    clean.write_bytes(b"no Avro")
    assert rows(lake, f"repair_corrupted_clean_files('{table}')") == [{"result": True}]
    assert not clean.exists()

    file = tmp_path / "new.properties"
    file.write_text((folder / ".hoodie" / "hoodie.properties").read_text() + "hoodie.keep.min.commits=9\n")
    changed = rows(lake, f"repair_overwrite_hoodie_props('{table}', '{file}')")
    assert [row for row in changed if row["old_value"] != row["new_value"]] == [
        {"property": "hoodie.keep.min.commits", "old_value": "null", "new_value": "9"}
    ]
    assert {row["property"] for row in changed} > {"hoodie.table.name", "hoodie.table.type"}
    with pytest.raises(InputError, match="no file of properties"):
        rows(lake, f"repair_overwrite_hoodie_props('{table}', '{tmp_path}/none')")

    lake.table(table).bulk_insert(pa.table({"id": pa.array([2], pa.int32()), "v": ["z"], "ts": [9], "p": ["y"]}))
    call = (
        f"repair_deduplicate(table => '{table}', duplicated_partition_path => 'p=y',"
        f" repaired_output_path => '{tmp_path}'"
    )
    assert rows(lake, call + ")") == [{"result": f"Deduplicated files placed in: {tmp_path}."}]
    assert pq.read_table(tmp_path / "deduplicated.parquet")["v"].to_pylist() == ["z"]
    assert len(lake.table(table)) == 3
    assert rows(lake, call + ", dry_run => false)") == [{"result": "Deduplicated files placed in: p=y."}]
    after = lake.sql(f"SELECT * FROM {table} ORDER BY id").to_arrow().to_pylist()
    assert [row["v"] for row in after] == ["aa", "z"]
    assert [row["v"] for row in before] == ["aa", "b"]
    with pytest.raises(InputError, match="dedupe type 'other'"):
        rows(lake, call + ", dedupe_type => 'other')")
