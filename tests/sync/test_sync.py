"""Tables that Hudi wrote, synced to a real metastore: its entries, once more, after changes, and against others."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_catalog.client import Metastore
from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_catalog.entries import MARKER
from skep_format.errors import MetastoreUnreachableError, OptionError, SyncError, TableMismatchError
from skep_format.storage import open_storage
from skep_sync.following.status import sync_status
from skep_sync.planning.steps import AddPartitions, AlterEntry, DropPartitions, SyncPlan
from skep_sync.sync import plan_sync, sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore

VERSIONS = ("0.15.0", "1.0.2", "1.1.1")


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Callable[[str, str], HudiTable]:
    """A golden table of one's own."""

    def make(version: str, case: str) -> HudiTable:
        shutil.copytree(golden / version / case / "table", tmp_path / case)
        return HudiTable.open(str(tmp_path / case))

    return make


def hide_last_commit(table: HudiTable) -> Callable[[], HudiTable]:
    """Takes the newest completed write off the timeline; the answer puts it back."""
    last = table.timeline.data().completed().instants[-1]
    folder = Path(table.storage.root, table.timeline.layout.folder)
    hidden = folder.parent / "hidden"
    hidden.mkdir()
    files = [file for file in folder.iterdir() if file.name.startswith(last.requested_time)]
    for file in files:
        file.rename(hidden / file.name)

    def bring_back() -> HudiTable:
        for file in files:
            (hidden / file.name).rename(file)
        return table.reload()

    return bring_back


class TestGoldenTables:
    @pytest.mark.parametrize("version", ["0.15.0", pytest.param("1.0.2", marks=pytest.mark.slow), "1.1.1"])
    def test_every_table_is_registered_and_then_in_sync(
        self, golden: Path, version: str, metastore: Metastore, database: str
    ) -> None:
        for folder in sorted((golden / version).iterdir()):
            if not (folder / "table").is_dir():
                continue
            table = HudiTable.open(str(folder / "table"))
            report = sync_table(table, metastore, database)
            assert report.changed
            name = table.config.name.lower()
            views = [f"{name}_ro", f"{name}_rt", name] if table.config.is_mor else [name]
            again = sync_table(table, metastore, database)
            assert not again.changed, f"{folder.name}: {again.plan}"
            assert again.calls == 1, "a sync with nothing to do looks up all entries by one call"
            assert not plan_sync(table, metastore, database, full=True)
            for view in views:
                entry = metastore.table(database, view)
                schema = json.loads(entry.parameters["spark.sql.sources.schema.part.0"])
                names = [field["name"].lower() for field in schema["fields"]]
                assert names == [c.name for c in (*entry.storage.columns, *entry.partition_keys)]
                assert entry.parameters[MARKER] == table.timeline.data().completed().instants[-1].requested_time

    def test_the_snapshot_schema_is_the_one_that_spark_reported(
        self, golden: Path, metastore: Metastore, database: str
    ) -> None:
        """`expected/schema.json` is what Hudi's own reader answered."""
        folder = golden / "0.15.0" / "cow_upsert"
        sync_table(HudiTable.open(str(folder / "table")), metastore, database)
        recorded = json.loads((folder / "expected" / "schema.json").read_text())
        registered = metastore.table(database, "cow_upsert").parameters["spark.sql.sources.schema.part.0"]
        by_name = {field["name"]: field["type"] for field in json.loads(registered)["fields"]}
        assert by_name == {field["name"]: field["type"] for field in recorded["fields"]}

    @pytest.mark.parametrize("version", VERSIONS)
    def test_special_partition_values_are_decoded(
        self, golden: Path, version: str, metastore: Metastore, database: str
    ) -> None:
        folder = golden / version / "cow_special_chars_urlencode_hive"
        sync_table(HudiTable.open(str(folder / "table")), metastore, database)
        rows = [json.loads(line) for line in (folder / "expected" / "snapshot.jsonl").read_text().splitlines()]
        wanted = {row["city"] or "__HIVE_DEFAULT_PARTITION__" for row in rows}
        partitions = {p.values[0]: p for p in metastore.partitions(database, "cow_special_chars_urlencode_hive")}
        assert partitions.keys() == wanted
        for row in rows:
            location = partitions[row["city"] or "__HIVE_DEFAULT_PARTITION__"].storage.location
            assert location is not None
            assert location.endswith("/table/" + row["_hoodie_partition_path"])

    def test_partitions_carry_the_numbers_of_their_live_files(
        self, golden: Path, metastore: Metastore, database: str
    ) -> None:
        table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
        sync_table(table, metastore, database)
        view = table.view()
        for partition in metastore.partitions(database, "cow_upsert"):
            slices = view.slices(partition.values[0])
            files = [s.base_file for s in slices if s.base_file is not None]
            assert partition.parameters["numFiles"] == str(len(files))
            assert partition.parameters["totalSize"] == str(sum(file.size_bytes for file in files))

    def test_new_partitions_do_not_repeat_what_spark_reads_at_the_table(
        self, golden: Path, metastore: Metastore, database: str
    ) -> None:
        sync_table(HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table")), metastore, database)
        entry = metastore.table(database, "cow_upsert")
        assert {"path", "hoodie.query.as.ro.table"} <= entry.storage.serde_parameters.keys()
        for partition in metastore.partitions(database, "cow_upsert"):
            assert partition.storage.serde_parameters.keys() <= {"serialization.format"}
            assert partition.storage.columns == entry.storage.columns


class TestIncremental:
    @pytest.mark.parametrize(("version", "case"), [("0.15.0", "cow_upsert"), ("1.1.1", "mor_upsert")])
    def test_a_new_commit_costs_one_alteration_an_entry(
        self, copy: Callable[[str, str], HudiTable], version: str, case: str, metastore: Metastore, database: str
    ) -> None:
        table = copy(version, case)
        bring_back = hide_last_commit(table)
        sync_table(table.reload(), metastore, database)
        before = metastore.table(database, case).parameters[MARKER]
        plan = plan_sync(bring_back(), metastore, database)
        assert not plan.complete
        alters = [step for step in plan.steps if isinstance(step, AlterEntry)]
        assert len(alters) == len(plan.steps) == (3 if table.config.is_mor else 1)
        assert all(step.expected == (MARKER, before) for step in alters)
        sync_table(table.reload(), metastore, database)
        assert not plan_sync(table.reload(), metastore, database)

    def test_new_columns_arrive(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("0.15.0", "cow_schema_evolution")
        bring_back = hide_last_commit(table)
        old = table.reload().schema()
        sync_table(table.reload(), metastore, database)
        columns = {column.name for column in metastore.table(database, "cow_schema_evolution").storage.columns}
        new = bring_back()
        sync_table(new, metastore, database)
        entry = metastore.table(database, "cow_schema_evolution")
        after = {column.name for column in entry.storage.columns}
        assert after - columns == set(new.schema().names()) - set(old.names())
        for partition in metastore.partitions(database, "cow_schema_evolution"):
            assert partition.storage.columns == entry.storage.columns

    def test_a_partition_overwritten_away_is_dropped(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("0.15.0", "cow_upsert")
        sync_table(table, metastore, database)
        entry = metastore.table(database, "cow_upsert")
        (partition, *_) = metastore.partitions(database, "cow_upsert")
        metastore.add_partitions(database, "cow_upsert", [replace(partition, values=("nowhere",))])
        assert not plan_sync(table, metastore, database), "a sync with nothing new does not list partitions"
        (step,) = plan_sync(table, metastore, database, full=True).steps
        assert isinstance(step, DropPartitions)
        sync_table(table, metastore, database, full=True)
        assert "city=nowhere" not in metastore.partition_names(database, "cow_upsert")
        assert metastore.table(database, "cow_upsert").parameters == entry.parameters

    def test_a_delete_partition_commit_drops_its_partition(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("0.15.0", "cow_upsert")
        sync_table(table, metastore, database)
        view = table.view()
        replaced = view.partitions()[0]
        time = "20991231235959999"
        metadata = {
            "partitionToWriteStats": {},
            "compacted": False,
            "extraMetadata": {},
            "operationType": "DELETE_PARTITION",
            "partitionToReplaceFileIds": {replaced: [slice_.file_id for slice_ in view.slices(replaced)]},
        }
        folder = Path(table.storage.root, ".hoodie")
        for ending in (".replacecommit.requested", ".replacecommit.inflight"):
            (folder / f"{time}{ending}").touch()
        (folder / f"{time}.replacecommit").write_text(json.dumps(metadata))
        plan = plan_sync(table.reload(), metastore, database)
        drop, alter = plan.steps
        assert isinstance(drop, DropPartitions)
        assert drop.names == (f"city={replaced}",)
        assert isinstance(alter, AlterEntry)
        sync_table(table.reload(), metastore, database)
        assert f"city={replaced}" not in metastore.partition_names(database, "cow_upsert")
        assert not plan_sync(table.reload(), metastore, database, full=True)

    def test_a_marker_the_timeline_does_not_know_compares_all(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("0.15.0", "cow_upsert")
        sync_table(table, metastore, database)
        entry = metastore.table(database, "cow_upsert")
        old = replace(entry, parameters={**entry.parameters, MARKER: "20000101000000000"})
        metastore.alter_table(database, "cow_upsert", old)
        names = metastore.partition_names(database, "cow_upsert")
        metastore.drop_partitions(database, "cow_upsert", names[:1])
        plan = plan_sync(table, metastore, database)
        assert plan.complete
        assert isinstance(plan.steps[0], AddPartitions)
        sync_table(table, metastore, database)
        assert metastore.partition_names(database, "cow_upsert") == names

    def test_an_older_look_never_moves_the_marker_back(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("0.15.0", "cow_upsert")
        bring_back = hide_last_commit(table)
        older = table.reload()
        newer = bring_back()
        sync_table(newer, metastore, database)
        marker = metastore.table(database, "cow_upsert").parameters[MARKER]
        assert not plan_sync(older, metastore, database)
        assert not sync_table(older, metastore, database).changed
        assert metastore.table(database, "cow_upsert").parameters[MARKER] == marker

    def test_a_commit_that_was_restored_away_is_reported(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("0.15.0", "cow_upsert")
        sync_table(table, metastore, database)
        hide_last_commit(table)
        report = sync_table(table.reload(), metastore, database)
        assert "rolled back or restored" in report.plan.warnings[0]
        assert report.plan.complete
        assert not plan_sync(table.reload(), metastore, database)


class TestTogether:
    def test_syncs_at_once_lose_nothing(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        """Also on servers without expected parameters: syncs of one table take turns."""
        table = copy("0.15.0", "mor_upsert")
        bring_back = hide_last_commit(table)
        older, newer = table.reload(), bring_back()
        start = threading.Barrier(6)

        def sync(look: HudiTable) -> None:
            start.wait()
            sync_table(look, metastore, database)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(sync, [older, newer] * 3))
        assert not plan_sync(newer, metastore, database, full=True)
        assert metastore.locks(database) == []

    @pytest.mark.engine("metastore")
    def test_cut_between_any_two_calls_the_marker_is_never_ahead(
        self,
        copy: Callable[[str, str], HudiTable],
        metastore: Metastore,
        database: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The line is cut before each call in turn; a sync afterwards ends in sync."""
        table = copy("0.15.0", "cow_upsert")
        call = metastore._connections.call
        survived = 0
        for cut in range(40):
            left = cut

            def failing(name: str, request: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise MetastoreUnreachableError("cut", call=name)
                return call(name, request, **options)

            monkeypatch.setattr(metastore._connections, "call", failing)
            try:
                sync_table(table, metastore, database)
                survived = cut
            except SyncError:
                pass
            monkeypatch.setattr(metastore._connections, "call", call)
            for lock in metastore.locks(database):
                metastore.unlock(lock.lock_id)
            entry = metastore.find_table(database, "cow_upsert")
            if entry is not None and MARKER in entry.parameters:
                assert not plan_sync(table, metastore, database, full=True)
            if entry is not None:
                metastore.drop_table(database, "cow_upsert")
            if survived:
                break
        assert survived

    @pytest.mark.parametrize("change", ["alter_partitions", "drop_partitions"])
    def test_partitions_are_changed_on_one_connection_at_a_time(
        self, metastore: Metastore, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
    ) -> None:
        """A server lets two changes of a table's partitions wait for each other until one fails, or for long."""
        days = [f"2026-01-{day:02}" for day in range(1, 30)]
        rows = pa.table({"id": list(range(29)), "day": days})
        spec = TableSpec(name="days", schema=rows.schema, record_key=("id",), partition_by=("day",))
        table = create_table(open_storage(tmp_path / "days"), spec)
        LocalWriter(table.reload()).upsert(rows)
        sync_table(table.reload(), metastore, database)
        if change == "alter_partitions":
            LocalWriter(table.reload()).upsert(rows.append_column("more", pa.array([1] * 29)))
        else:
            LocalWriter(table.reload()).delete_partitions(days[1:])
        call, under_way, seen = getattr(metastore, change), threading.Semaphore(1), Counter[str]()

        def counted(*words: Any) -> None:
            alone = under_way.acquire(blocking=False)
            seen["alone" if alone else "beside another"] += 1
            call(*words)
            if alone:
                under_way.release()

        monkeypatch.setattr(metastore, change, counted)
        options = {"skep.sync.cascade": "all", "hoodie.datasource.hive_sync.batch_num": "2"}
        sync_table(table.reload(), metastore, database, options=options)
        assert seen == {"alone": 15 if change == "alter_partitions" else 14}
        columns = {part.storage.columns for part in metastore.partitions(database, "days")}
        assert columns == {metastore.table(database, "days").storage.columns}


class TestRefusals:
    def test_another_table_under_the_name_is_left_alone(
        self, golden: Path, metastore: Metastore, database: str
    ) -> None:
        other = TableEntry(
            database,
            "cow_upsert",
            StorageDescriptor(
                (Column("a", "int"),),
                f"file:///nowhere/{database}",
                "org.apache.hadoop.mapred.TextInputFormat",
                "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
                "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            ),
            table_type="EXTERNAL_TABLE",
        )
        metastore.create_table(other)
        table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
        with pytest.raises(SyncError, match="not as a Hudi table") as error:
            sync_table(table, metastore, database)
        assert isinstance(error.value.__cause__, TableMismatchError)
        assert metastore.table(database, "cow_upsert").storage.columns == other.storage.columns

    def test_other_partition_keys_are_refused(self, golden: Path, metastore: Metastore, database: str) -> None:
        table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
        sync_table(table, metastore, database, options={"hoodie.datasource.hive_sync.partition_fields": "country"})
        with pytest.raises(SyncError, match=r"has the partition keys \['country'\].*the table has \['city'\]"):
            sync_table(table, metastore, database)

    def test_an_unreachable_metastore(self, golden: Path) -> None:
        table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
        with pytest.raises(SyncError, match="no metastore answers") as error:
            sync_table(table, Metastore.connect("thrift://127.0.0.1:1", attempts=1), "d")
        assert error.value.fields["cause"] == "MetastoreUnreachableError"

    def test_a_missing_database_is_made_or_refused(self, golden: Path, metastore: Metastore, database: str) -> None:
        table = HudiTable.open(str(golden / "0.15.0" / "cow_nonpartitioned" / "table"))
        missing = f"{database}_other"
        options = {"hoodie.datasource.hive_sync.auto_create_database": "false"}
        with pytest.raises(SyncError, match=f"has no database {missing}"):
            sync_table(table, metastore, missing, options=options)
        sync_table(table, metastore, missing)
        assert metastore.tables(missing) == ["cow_nonpartitioned"]
        metastore.drop_database(missing, cascade=True)

    @pytest.mark.parametrize(
        ("key", "value"), [("mode", "jdbc"), ("table.strategy", "BOTH"), ("batch_num", "0"), ("table_properties", "x")]
    )
    def test_options_that_do_not_parse_are_named(
        self, golden: Path, metastore: Metastore, database: str, key: str, value: str
    ) -> None:
        table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
        key = f"hoodie.datasource.hive_sync.{key}"
        with pytest.raises(OptionError, match=key):
            sync_table(table, metastore, database, options={key: value})
        assert metastore.tables(database) == []


class TestReports:
    def test_plan_and_report_as_text_and_json(self, golden: Path, metastore: Metastore, database: str) -> None:
        table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
        plan = plan_sync(table, metastore, database)
        assert isinstance(plan, SyncPlan)
        assert f"create table {database}.cow_upsert" in str(plan)
        assert [step["step"] for step in json.loads(json.dumps(plan.to_json()))["steps"]] == [
            "create_table",
            "add_partitions",
            "alter_table",
        ]
        report = sync_table(table, metastore, database)
        assert report.counts == {"tables created": 1, "partitions added": 3, "tables altered": 1}
        assert json.loads(json.dumps(report.to_json()))["applied"] == report.counts

    def test_status_counts_the_commits_behind(
        self, copy: Callable[[str, str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("1.1.1", "cow_upsert")
        (missing,) = sync_status(table, metastore, database)
        assert (missing.registered, missing.commits) == (False, None)
        bring_back = hide_last_commit(table)
        sync_table(table.reload(), metastore, database)
        (behind,) = sync_status(bring_back(), metastore, database)
        assert behind.commits == 1
        assert behind.seconds is not None
        sync_table(table.reload(), metastore, database)
        (current,) = sync_status(table.reload(), metastore, database)
        assert (current.commits, current.seconds) == (0, 0.0)
