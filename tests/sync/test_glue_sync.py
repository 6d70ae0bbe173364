"""Syncs to AWS Glue, on moto's server: entries as Hudi's tool writes them, faults that the next sync mends, targets."""

from __future__ import annotations

import json
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from skep_catalog.addresses import catalog_at
from skep_catalog.entries import MARKER
from skep_catalog.glue.client import GlueCatalog
from skep_format.errors import OptionError, SyncError
from skep_format.options import Options
from skep_sync.check import check_table
from skep_sync.following.pending import KnownTables
from skep_sync.following.status import sync_status
from skep_sync.options import SyncOptions, main_address
from skep_sync.restore import restore_entries
from skep_sync.sync import plan_sync, sync_table
from skep_sync.targets import Clients, Target, each_target, sync_target, targets_of
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ADDRESS = "glue://us-east-1"
HIVE = "hoodie.datasource.hive_sync."
SYNC = "hoodie.datasource.meta.sync.glue."
TOOL = "hoodie.meta.sync.client.tool.class"
GLUE_TOOL = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
Golden = Callable[..., HudiTable]
Write = Callable[..., HudiTable]


@pytest.fixture
def database(glue_database: str) -> str:
    """A name for a database that a sync makes."""
    return glue_database


def entry(glue: GlueCatalog, database: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = glue._connected().get_table(DatabaseName=database, Name=name)["Table"]
    return found


class TestEntries:
    def test_views_of_a_merge_on_read_table(self, golden_copy: Golden, glue: GlueCatalog, database: str) -> None:
        table = golden_copy("0.15.0", "mor_upsert")
        report = sync_table(table, glue, database)
        assert report.counts["databases created"] == 1
        assert glue.tables(database) == ["mor_upsert", "mor_upsert_ro", "mor_upsert_rt"]
        optimized, snapshot = (entry(glue, database, f"mor_upsert{view}") for view in ("_ro", "_rt"))
        assert optimized["TableType"] == "EXTERNAL_TABLE"
        assert optimized["StorageDescriptor"]["InputFormat"] == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
        assert snapshot["StorageDescriptor"]["InputFormat"].endswith("realtime.HoodieParquetRealtimeInputFormat")
        assert optimized["StorageDescriptor"]["SerdeInfo"]["Parameters"]["hoodie.query.as.ro.table"] == "true"
        assert optimized["Parameters"]["hudi.metadata-listing-enabled"] == "FALSE"
        assert "Owner" not in optimized
        assert optimized["Parameters"][MARKER] == table.timeline.data().completed().last().requested_time  # type: ignore[union-attr]
        assert not sync_table(table, glue, database).changed
        assert not check_table(table, glue, database)

    def test_what_a_commit_changed_and_no_more(self, write: Write, glue: GlueCatalog, database: str) -> None:
        sync_table(write("t", 1), glue, database)
        table = write("t", 2, day="2026-01-02", note="n")
        report = sync_table(table, glue, database)
        assert glue.partition_names(database, "t") == ["day=2026-01-01", "day=2026-01-02"]
        assert [column.name for column in glue.table(database, "t").storage.columns][-1] == "note"
        found = {p.values[0]: p for p in glue.partitions(database, "t")}
        assert {p.storage.columns[-1].name for p in found.values()} == {"note"}, "columns go to all partitions"
        assert found["2026-01-02"].parameters.keys() >= {"numFiles", "totalSize"}
        assert report.counts["tables altered"] == 1
        LocalWriter(table).delete_partitions(["2026-01-01"])
        sync_table(table.reload(), glue, database)
        assert glue.partition_names(database, "t") == ["day=2026-01-02"]
        (state,) = sync_status(table.reload(), glue, database)
        assert (state.registered, state.commits) == (True, 0)
        assert [one.entry for one in KnownTables(glue, database)()] == [f"{database}.t"]

    def test_drift_is_found_and_repaired(self, write: Write, glue: GlueCatalog, database: str) -> None:
        table = write("t", 1)
        sync_table(table, glue, database)
        client = glue._connected()
        raw = entry(glue, database, "t")
        columns = list(reversed(raw["StorageDescriptor"]["Columns"]))
        storage = {**raw["StorageDescriptor"], "Columns": columns}
        keys = ("PartitionKeys", "Parameters", "TableType")
        changed = {"Name": "t", "StorageDescriptor": storage, **{key: raw[key] for key in keys}}
        client.update_table(DatabaseName=database, TableInput=changed)
        glue.drop_partitions(database, "t", ["day=2026-01-01"])
        found = check_table(table, glue, database)
        assert {finding.aspect for finding in found.findings} == {"columns", "partitions"}
        report = sync_table(table, glue, database, full=True)
        assert report.plan.warnings == (), "Glue takes columns in any order"
        assert not check_table(table, glue, database)

    def test_a_restored_entry(self, write: Write, glue: GlueCatalog, database: str) -> None:
        sync_table(write("t", 1), glue, database)
        before = glue.table(database, "t")
        table = write("t", 2, note="n")
        sync_table(table, glue, database)
        (restored,) = restore_entries(table, glue, database)
        assert restored.changes
        assert glue.table(database, "t").storage.columns == before.storage.columns

    def test_views_of_an_earlier_strategy_are_dropped(
        self, golden_copy: Golden, glue: GlueCatalog, database: str
    ) -> None:
        table = golden_copy("0.15.0", "mor_upsert")
        sync_table(table, glue, database)
        sync_table(table, glue, database, options={HIVE + "table.strategy": "RT"}, full=True)
        assert glue.tables(database) == ["mor_upsert"]

    def test_locations_are_of_the_plain_scheme(self, glue: GlueCatalog) -> None:
        assert glue.location("s3a://b/t") == glue.location("s3n://b/t") == glue.location("s3://b/t") == "s3://b/t"
        assert glue.location("s3a.b/t") == "s3a.b/t"

    def test_athena_may_list_by_the_metadata_table(
        self, write: Write, glue: GlueCatalog, glue_options: dict[str, str], database: str
    ) -> None:
        table = write("t", 1)
        sync_table(table, glue, database)
        with GlueCatalog.connect(ADDRESS, {**glue_options, SYNC + "metadata_file_listing": "true"}) as listing:
            sync_table(table, listing, database)
        assert glue.table(database, "t").parameters["hudi.metadata-listing-enabled"] == "TRUE"

    def test_managed_tables_are_refused_before_anything_is_done(
        self, write: Write, glue: GlueCatalog, database: str
    ) -> None:
        with pytest.raises(SyncError, match="no managed tables"):
            sync_table(write("t", 1), glue, database, options={HIVE + "create_managed_table": "true"})
        assert database not in glue.databases()

    def test_a_list_of_files(self, write: Write, glue: GlueCatalog, database: str) -> None:
        table = write("t", 1)
        options = {"skep.sync.kind": "manifest"}
        sync_table(table, glue, database, options=options)
        assert glue.table(database, "t").storage.input_format == "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
        assert not check_table(table, glue, database, options=options)


def test_a_table_over_files_of_another_format_is_registered(glue: GlueCatalog, database: str, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parents[1] / "golden" / "external.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    table = HudiTable.open(str(tmp_path / "external"))
    sync_table(table, glue, database)
    assert glue.partition_names(database, "external") == ["day=2026-01-01", "day=2026-01-02"]
    assert [column.name for column in glue.table(database, "external").storage.columns][-2:] == ["id", "name"]
    assert not check_table(table, glue, database)


class Killed(BaseException):
    """The end of a process, at a call."""


class TestFaults:
    def test_a_sync_that_is_killed_at_any_call_is_mended_by_the_next(
        self, write: Write, glue: GlueCatalog, database: str
    ) -> None:
        write("t", 1)
        table = write("t", 2, day="2026-01-02")
        calls = 0
        at = 1

        def kill(**_: object) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise Killed

        events = glue._connected().meta.events
        while True:
            calls = 0
            events.register("before-send.glue", kill)
            try:
                sync_table(table, glue, database)
                break
            except Killed:
                pass
            finally:
                events.unregister("before-send.glue", kill)
            sync_table(table, glue, database)
            assert not check_table(table, glue, database)
            glue.drop_database(database, cascade=True)
            at += 1
        assert at > 6

    def test_half_a_batch_is_an_error_and_the_next_sync_adds_the_rest(
        self, write: Write, glue: GlueCatalog, database: str
    ) -> None:
        for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
            table = write("t", 1, day=day)
        events = glue._connected().meta.events
        left: list[str] = []

        def halve(params: dict[str, Any], **_: object) -> None:
            rows = params["PartitionInputList"]
            left[:] = [row["Values"][0] for row in rows if row["Values"] == ["2026-01-02"]]
            params["PartitionInputList"] = [row for row in rows if row["Values"][0] not in left]

        def fail(parsed: dict[str, Any], **_: object) -> None:
            detail = {"ErrorCode": "InternalServiceException", "ErrorMessage": "down"}
            parsed["Errors"] = [{"PartitionValues": [value], "ErrorDetail": detail} for value in left]

        events.register("provide-client-params.glue.BatchCreatePartition", halve)
        events.register("after-call.glue.BatchCreatePartition", fail)
        with pytest.raises(
            SyncError, match=r"did not take 1 partitions by batch_create_partition: 2026-01-02: Internal"
        ):
            sync_table(table, glue, database)
        assert glue.partition_names(database, "t") == ["day=2026-01-01", "day=2026-01-03"]
        assert MARKER not in glue.table(database, "t").parameters
        events.unregister("provide-client-params.glue.BatchCreatePartition", halve)
        events.unregister("after-call.glue.BatchCreatePartition", fail)
        assert sync_table(table, glue, database).counts["partitions added"] == 1
        assert not check_table(table, glue, database)

    def test_a_sync_that_another_overtook_begins_again(self, write: Write, glue: GlueCatalog, database: str) -> None:
        sync_table(write("t", 1), glue, database)
        table = write("t", 2, day="2026-01-02")
        client = glue._connected()
        others = [1]

        def overtake(**_: object) -> None:
            if others.pop(0) if others else None:
                raw = entry(glue, database, "t")
                keys = ("StorageDescriptor", "PartitionKeys", "TableType")
                mine = {"Name": "t", "Parameters": {**raw["Parameters"], "by": "a crawler"}}
                client.update_table(DatabaseName=database, TableInput={**mine, **{key: raw[key] for key in keys}})

        client.meta.events.register("provide-client-params.glue.BatchCreatePartition", overtake)
        sync_table(table, glue, database)
        found = glue.table(database, "t").parameters
        assert found["by"] == "a crawler"
        assert found[MARKER] == table.timeline.data().completed().last().requested_time  # type: ignore[union-attr]

    def test_a_partition_that_glue_refuses_blocks_no_other(
        self, write: Write, glue: GlueCatalog, database: str
    ) -> None:
        write("t", 1)
        table = write("t", 2, day="2026-01-02")
        refused: list[str] = []

        def leave_out(params: dict[str, Any], **_: object) -> None:
            rows = params["PartitionInputList"]
            refused[:] = [row["Values"][0] for row in rows if row["Values"] == ["2026-01-02"]]
            params["PartitionInputList"] = [row for row in rows if row["Values"][0] not in refused]

        def fail(parsed: dict[str, Any], **_: object) -> None:
            detail = {"ErrorCode": "InvalidInputException", "ErrorMessage": "not that"}
            parsed["Errors"] = [{"PartitionValues": [value], "ErrorDetail": detail} for value in refused]

        glue._connected().meta.events.register("provide-client-params.glue.BatchCreatePartition", leave_out)
        glue._connected().meta.events.register("after-call.glue.BatchCreatePartition", fail)
        with pytest.raises(SyncError, match=r"what fits is done; can't be registered: partition 'day=2026-01-02'"):
            sync_table(table, glue, database)
        assert glue.partition_names(database, "t") == ["day=2026-01-01"]
        assert MARKER not in glue.table(database, "t").parameters


class Indexes:
    """Partition indexes as Glue keeps them; moto has none."""

    def __init__(self, glue: GlueCatalog) -> None:
        self.held: dict[str, list[str]] = {}
        for name in ("GetPartitionIndexes", "CreatePartitionIndex", "DeletePartitionIndex"):
            glue._connected().meta.events.register(f"before-call.glue.{name}", self.answer)

    def answer(self, model: Any, params: dict[str, Any], **_: object) -> tuple[AWSResponse, dict[str, Any]]:
        given = json.loads(params["body"])
        if model.name == "CreatePartitionIndex":
            self.held[given["PartitionIndex"]["IndexName"]] = given["PartitionIndex"]["Keys"]
        elif model.name == "DeletePartitionIndex":
            del self.held[given["IndexName"]]
        found = [{"IndexName": name, "Keys": [{"Name": key} for key in keys]} for name, keys in self.held.items()]
        return AWSResponse("http://nowhere", 200, {}, None), {"PartitionIndexDescriptorList": found}


class TestPartitionIndexes:
    def test_they_are_made_once_and_those_of_others_stay(
        self, write: Write, glue_options: dict[str, str], glue: GlueCatalog, database: str
    ) -> None:
        table = write("t", 1)
        sync_table(table, glue, database)
        with GlueCatalog.connect(ADDRESS, {**glue_options, SYNC + "partition_index_fields.enable": "true"}) as client:
            indexes = Indexes(client)
            indexes.held = {"by hand": ["other"], "hudi_managed_[old]": ["old"]}
            assert "partition indexes" in {finding.aspect for finding in check_table(table, client, database).findings}
            report = sync_table(table, client, database)
            assert report.counts["partition indexes changed"] == 2
            assert indexes.held == {"by hand": ["other"], "hudi_managed_[day]": ["day"]}
            assert client.table(database, "t").parameters["partition_filtering.enabled"] == "true"
            assert not sync_table(table, client, database).changed

    def test_columns_that_are_no_keys_are_refused(
        self, write: Write, glue_options: dict[str, str], database: str
    ) -> None:
        fields = {SYNC + "partition_index_fields.enable": "true", SYNC + "partition_index_fields": "day;id"}
        with (
            GlueCatalog.connect(ADDRESS, {**glue_options, **fields}) as client,
            pytest.raises(OptionError, match="id is no partition key"),
        ):
            sync_table(write("t", 1), client, database)

    def test_one_that_can_not_be_made_holds_up_nothing_else(
        self, write: Write, glue_options: dict[str, str], glue: GlueCatalog, database: str
    ) -> None:
        with GlueCatalog.connect(ADDRESS, {**glue_options, SYNC + "partition_index_fields.enable": "true"}) as client:
            Indexes(client)

            def refuse(**_: object) -> None:
                raise ReadTimeoutError(endpoint_url="glue")

            client._connected().meta.events.register_first("before-call.glue.CreatePartitionIndex", refuse)
            with pytest.raises(SyncError, match="create_partition_index"):
                sync_table(write("t", 1), client, database)
        assert MARKER in glue.table(database, "t").parameters


class TestTargets:
    def test_the_tool_alone_makes_glue_the_main_target(self) -> None:
        options = {TOOL: GLUE_TOOL, SYNC + "database_name": "lake", SYNC + "table_name": "orders"}
        (main,) = targets_of(options)
        assert main.names(None) == ("lake", "orders")
        assert main_address(Options(options)) == "glue:"

    def test_the_tool_adds_glue_to_a_metastore(self) -> None:
        for options in (
            {TOOL: f"org.apache.hudi.hive.HiveSyncTool,{GLUE_TOOL}"},
            {TOOL: GLUE_TOOL, HIVE + "metastore.uris": "thrift://a:1"},
        ):
            main, added = targets_of({**options, SYNC + "database_name": "lake"})
            assert (main.name, added.name, added.uri) == ("main", "glue", "glue:")
            assert main.names("d.t") == ("d", "t")
            assert added.names("d.t") == ("lake", "t")
        assert len(targets_of({TOOL: GLUE_TOOL}, in_glue=False)) == 2
        named = {"skep.sync.targets": "aws", "skep.sync.target.aws.uris": ADDRESS}
        assert [one.name for one in targets_of({**options, **named})] == ["main", "aws"]

    def test_other_tools_and_modes_are_refused(self) -> None:
        with pytest.raises(OptionError, match="AwsGlueCatalogSyncTool"):
            SyncOptions.of({TOOL: "org.apache.hudi.sync.datahub.DataHubSyncTool"})
        with pytest.raises(OptionError) as refused:
            SyncOptions.of({HIVE + "mode": "glue"})
        assert TOOL in (refused.value.hint or "")

    def test_a_target_of_several(self, write: Write, glue_options: dict[str, str], glue: GlueCatalog) -> None:
        database = f"db_{uuid.uuid4().hex[:10]}"
        options = {
            **glue_options,
            HIVE + "metastore.uris": "thrift://127.0.0.1:1",
            "skep.metastore.attempts": "1",
            "skep.sync.targets": "aws",
            "skep.sync.target.aws.uris": ADDRESS,
            "skep.sync.target.aws.database": database,
        }
        targets, table = targets_of(options, "thrift://127.0.0.1:1"), write("t", 1)
        with Clients() as clients:
            outcomes = each_target(targets, lambda one: sync_target(one, clients, table, "d.t"))
        assert [(one.target, type(one.error)) for one in outcomes] == [("main", SyncError), ("aws", type(None))]
        assert glue.tables(database) == ["t"]
        glue.drop_database(database, cascade=True)

    def test_the_region_must_be_known(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
        with pytest.raises(OptionError, match="region"):
            sync_target(Target("main", "glue:", Options()), Clients(), write("t", 1))


def test_a_plan_changes_nothing(write: Write, glue: GlueCatalog, database: str) -> None:
    plan = plan_sync(write("t", 1), glue, database)
    assert [step.to_json()["step"] for step in plan.steps] == [
        "create_database",
        "create_table",
        "add_partitions",
        "alter_table",
    ]
    assert database not in glue.databases()
    assert catalog_at(ADDRESS).lengths is glue.lengths
