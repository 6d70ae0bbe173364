"""Writing to tables that Hudi or skep bootstrapped: rows whose data columns lie in the files that they were made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from skep_format.basefile import read_base
from skep_format.basefile.orc_output import orc_schema
from skep_format.errors import SkepError, StorageError, TableMismatchError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.plans import CompactionPlan, RequestedReplaceMetadata
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster, execute_clustering, schedule_clustering
from skep_table.services.compaction.compact import compact, schedule_compaction
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.source import open_source, read_source
from skep_table.write.input.source import matching
from skep_table.write.local import LocalWriter

SOURCE = "hoodie.bootstrap.base.path"
META_KEPT = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")
Content = dict[str, dict[str, Any]]


class Bootstrapped:
    """A table that was bootstrapped from three files, with its sources beside it: a copy of the golden one, which Hudi
    made, or one that skep makes of the same files, of a `version` or with all files in ORC."""

    def __init__(self, golden: Path, folder: Path, version: int | str | None = None, *, is_mor: bool = False) -> None:
        case = golden / "0.15.0" / "cow_bootstrap_metadata_only"
        shutil.copytree(case / "source", folder / "source")
        self.folder, self.source = folder / "table", folder / "source"
        self.format = BaseFormat.ORC if version == "ORC" else BaseFormat.PARQUET
        if self.format is BaseFormat.ORC:
            version = 9
            for file in self.source.rglob("*.parquet"):
                rows = pq.read_table(file, partitioning=None)
                orc.write_table(rows.cast(orc_schema(rows.schema)), file.with_suffix(".orc"))
                file.unlink()
        self.options = {SOURCE: str(self.source)}
        if version is None:
            self._copy(case, is_mor)
        else:
            self._make(int(version), is_mor)

    def _make(self, version: int, is_mor: bool) -> None:
        options = Options(self.options)
        storage, settings = open_source(options), BootstrapSettings.of(options)
        data = read_source(storage, ("order_id",), settings, ThreadRunner(1))
        spec = TableSpec(
            name="orders",
            schema=to_arrow(data.columns),
            record_key=("order_id",),
            partition_by=("city",),
            ordering="ts",
            hive_style=True,
            type=TableType.MERGE_ON_READ if is_mor else TableType.COPY_ON_WRITE,
            version=version,
            base_format=self.format,
        )
        LocalWriter(create_table(LocalStorage(str(self.folder)), spec, options)).bootstrap(data)

    def _copy(self, case: Path, is_mor: bool) -> None:
        shutil.copytree(case / "table", self.folder)
        for file in (*self.folder.rglob("*_20261121021151186.parquet"), *self.meta.glob("20261121021151186.*")):
            file.unlink()  # what was upserted since
        if is_mor:
            for file in self.meta.glob("00000000000001.commit*"):
                file.rename(file.with_name(file.name.replace(".commit", ".deltacommit")))
            (self.meta / "00000000000001.inflight").rename(self.meta / "00000000000001.deltacommit.inflight")
            settings = self.meta / "hoodie.properties"
            settings.write_text(settings.read_text().replace("COPY_ON_WRITE", "MERGE_ON_READ"))

    def files(self, folder: Path) -> set[Path]:
        """The data files below a folder."""
        return {file for file in folder.rglob(f"*.{self.format.extension}") if ".hoodie" not in file.parts}

    def source_of(self, partition: str) -> Path:
        """The one file with the rows of a partition."""
        (found,) = self.files(self.source / partition)
        return found

    @property
    def meta(self) -> Path:
        return self.folder / ".hoodie"

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.folder), self.options)

    def setting(self, **options: Any) -> dict[str, Any]:
        named = {f"hoodie.{k.replace('__', '.')}": v for k, v in options.items()}
        return {"options": Options({**self.options, **named})}

    def writer(self, **options: Any) -> LocalWriter:
        return LocalWriter(self.table.with_context(**self.setting(**options)))

    def rows(self, **request: Any) -> pa.Table:
        return read(self.table, ReadRequest(**request)).to_arrow()

    def content(self, **request: Any) -> Content:
        """By order id, without the name of the file, which changes when that is rewritten."""
        rows = self.rows(**request)
        return {row["order_id"]: row for row in rows.drop_columns(["_hoodie_file_name"]).to_pylist()}

    def in_city(self, city: str) -> pa.Table:
        """Rows as a writer hands them in."""
        rows = self.rows(where=f"city = '{city}'")
        return rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie")])

    def skeletons(self) -> set[str]:
        """The partitions whose newest base file is a skeleton."""
        view = self.table.view()
        return {
            slice_.partition_path
            for path in view.partitions()
            for slice_ in view.slices(path)
            if slice_.base_file and slice_.base_file.name.instant_time == METADATA_BOOTSTRAP
        }


pytestmark = pytest.mark.parametrize(
    "version",
    [
        pytest.param(None, id="by Hudi"),
        pytest.param(6, id="by skep, 6"),
        pytest.param(9, id="by skep, 9", marks=pytest.mark.slow),
        pytest.param("ORC", id="by skep, in ORC"),
    ],
    indirect=True,
)


@pytest.fixture
def version(request: pytest.FixtureRequest) -> int | str | None:
    found: int | str | None = request.param
    return found


@pytest.fixture
def cow(golden: Path, tmp_path: Path, version: int | str | None) -> Bootstrapped:
    return Bootstrapped(golden, tmp_path, version)


@pytest.fixture
def mor(golden: Path, tmp_path: Path, version: int | str | None) -> Bootstrapped:
    return Bootstrapped(golden, tmp_path, version, is_mor=True)


def changed(rows: pa.Table, note: str = "changed") -> pa.Table:
    """Newer versions of rows."""
    later = pc.add(rows.column("ts"), 1_000_000_000)
    rows = rows.set_column(rows.schema.get_field_index("ts"), rows.schema.field("ts"), later)
    return rows.set_column(
        rows.schema.get_field_index("note"), rows.schema.field("note"), pa.array([note] * len(rows), pa.string())
    )


def others(content: Content, *keys: str) -> Content:
    return {key: row for key, row in content.items() if key not in keys}


def stored(bootstrapped: Bootstrapped, partition: str) -> pa.Table:
    """What the newest base file of a partition holds, by itself."""
    (slice_,) = bootstrapped.table.view().slices(partition)
    assert slice_.base_file is not None
    storage = bootstrapped.table.storage
    return pa.Table.from_batches(read_base(storage, slice_.base_file.path))


# -- copy-on-write -----------------------------------------------------------------------------------------------------


def test_an_upsert_keeps_the_other_rows_of_the_file(cow: Bootstrapped) -> None:
    before = cow.content()
    assert len(before) == 45
    rows = changed(cow.in_city("chennai").slice(0, 1))
    key = rows["order_id"][0].as_py()
    cow.writer().upsert(rows)
    after = cow.content()
    assert others(after, key) == others(before, key)
    assert after[key]["note"] == "changed"
    assert cow.skeletons() == {"city=amsterdam", "city=utrecht"}
    whole = stored(cow, "city=chennai")
    assert whole.num_rows == 18
    assert set(whole["city"].to_pylist()) == {"chennai"}  # the source has no such column; from its folder's name


def test_the_new_base_file_goes_on_under_the_id_of_the_skeleton(cow: Bootstrapped) -> None:
    (skeleton,) = cow.table.view().slices("city=chennai")
    cow.writer().upsert(changed(cow.in_city("chennai").slice(0, 1)))
    (now,) = cow.table.view().slices("city=chennai")
    assert now.file_id == skeleton.file_id
    assert now.base_file is not None
    assert now.base_file.name.instant_time != METADATA_BOOTSTRAP


@pytest.mark.parametrize("duplicates", [True, False])
def test_an_insert_into_a_bootstrapped_file_keeps_its_rows(cow: Bootstrapped, duplicates: bool) -> None:
    before = cow.content()
    row = cow.in_city("utrecht").slice(0, 1)
    new = row.set_column(row.schema.get_field_index("order_id"), "order_id", pa.array(["new"]))
    cow.writer(merge__allow__duplicate__on__inserts=duplicates).insert(new)
    after = cow.content()
    assert others(after, "new") == before
    assert "city=utrecht" not in cow.skeletons()


def test_a_bootstrapped_file_counts_with_its_source_when_small_files_are_filled(cow: Bootstrapped) -> None:
    """The skeleton alone would be small."""
    (skeleton,) = cow.table.view().slices("city=utrecht")
    assert skeleton.base_file is not None
    source = cow.source_of("city=utrecht")
    limit = (skeleton.base_file.size_bytes + source.stat().st_size) - 1
    assert skeleton.base_file.size_bytes < limit
    row = cow.in_city("utrecht").slice(0, 1)
    new = row.set_column(row.schema.get_field_index("order_id"), "order_id", pa.array(["new"]))
    cow.writer(parquet__small__file__limit=limit).insert(new)
    assert "city=utrecht" in cow.skeletons()
    assert len(cow.table.view().slices("city=utrecht")) == 2


@pytest.mark.parametrize("how", ["keys", "where", "prepped"])
def test_a_delete_keeps_the_other_rows_of_the_file(cow: Bootstrapped, how: str) -> None:
    before = cow.content()
    rows = cow.in_city("chennai").slice(2, 1)
    key = rows["order_id"][0].as_py()
    if how == "keys":
        cow.writer().delete(rows.select(["order_id", "city"]))
    elif how == "where":
        cow.writer().delete_computed(matching(f"order_id = '{key}'"))
    else:
        cow.writer().delete(cow.rows(where=f"order_id = '{key}'"), prepped=True)
    assert cow.content() == others(before, key)
    assert "city=chennai" not in cow.skeletons()


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "INMEMORY"])
@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
def test_every_index_finds_the_keys_of_skeletons(cow: Bootstrapped, index: str) -> None:
    before = cow.content()
    cow.writer(index__type=index).upsert(changed(cow.in_city("chennai")))
    after = cow.content()
    assert after.keys() == before.keys()
    assert cow.rows().num_rows == 45
    assert {row["note"] for row in after.values() if row["city"] == "chennai"} == {"changed"}


@pytest.mark.parametrize("city", ["chennai", "delft"])
def test_a_bootstrapped_table_has_no_buckets(cow: Bootstrapped, city: str) -> None:
    """Not in a new partition either: the index that it would record makes the others unwritable."""
    before = cow.content()
    rows = cow.in_city("chennai").slice(0, 1)
    rows = rows.set_column(rows.schema.get_field_index("city"), "city", pa.array([city]))
    with pytest.raises(TableMismatchError, match="is not that of one of 4 buckets"):
        cow.writer(index__type="BUCKET", bucket__index__num__buckets=4).upsert(rows)
    assert "hoodie.index.type" not in cow.table.config.raw
    assert cow.content() == before
    assert not cow.table.timeline.pending().instants
    cow.writer().upsert(rows)


def test_a_row_that_moves_to_another_partition_leaves_the_others_where_they_are(cow: Bootstrapped) -> None:
    """The stored row has the greater ordering value in one case: its whole row has to be known."""
    before = cow.content()
    row = cow.in_city("chennai").slice(0, 1)
    older = row.set_column(row.schema.get_field_index("ts"), row.schema.field("ts"), pa.array([1], pa.int64()))
    moved = changed(cow.in_city("chennai").slice(1, 1))
    both = pa.concat_tables([older, moved])
    both = both.set_column(both.schema.get_field_index("city"), "city", pa.array(["utrecht", "utrecht"]))
    global_index = {"index__type": "GLOBAL_BLOOM", "bloom__index__update__partition__path": True}
    cow.writer(**global_index, datasource__write__payload__class="DefaultHoodieRecordPayload").upsert(both)
    after = cow.content()
    key = moved["order_id"][0].as_py()
    assert after[key]["city"] == "utrecht"
    assert others(after, key) == others(before, key)


def test_columns_that_arrive_later_are_null_in_bootstrapped_rows(cow: Bootstrapped) -> None:
    before = cow.content()
    rows = changed(cow.in_city("chennai").slice(0, 1)).append_column("extra", pa.array([7], pa.int64()))
    key = rows["order_id"][0].as_py()
    cow.writer().upsert(rows)
    after = cow.content()
    assert after[key]["extra"] == 7
    assert others(after, key) == {k: {**row, "extra": None} for k, row in others(before, key).items()}


def test_a_rolled_back_upsert_leaves_the_skeleton_in_force(cow: Bootstrapped) -> None:
    before = cow.content()
    result = cow.writer().upsert(changed(cow.in_city("chennai").slice(0, 1)))
    roll_back_instant(cow.table.with_context(**cow.setting()), result.instant.requested_time)
    assert cow.content() == before


def test_the_source_is_named_by_the_options_of_a_write(cow: Bootstrapped) -> None:
    """It lies elsewhere than where Hudi found it; the table itself was opened without a word of it."""
    before = cow.content()
    rows = changed(cow.in_city("chennai").slice(0, 1))
    opened = HudiTable.open(str(cow.folder))
    writer = LocalWriter(opened.with_context(options=Options({SOURCE: str(cow.source)})))
    writer.upsert(rows)
    key = rows["order_id"][0].as_py()
    assert others(cow.content(), key) == others(before, key)
    writer.delete_computed(matching(f"order_id = '{key}'"))
    assert cow.content() == others(before, key)


def test_a_missing_source_fails_the_write_and_leaves_the_table_as_it_was(cow: Bootstrapped) -> None:
    before = cow.content()
    rows = changed(cow.in_city("chennai").slice(0, 1))
    source = cow.source_of("city=chennai")
    data = source.read_bytes()
    source.unlink()
    files = cow.files(cow.folder)
    with pytest.raises(StorageError, match=SOURCE):
        cow.writer().upsert(rows)
    with pytest.raises(StorageError, match=SOURCE):
        cow.content()
    source.write_bytes(data)
    assert cow.files(cow.folder) == files
    assert cow.content() == before


def test_a_missing_index_fails_the_write(cow: Bootstrapped) -> None:
    rows = changed(cow.in_city("chennai").slice(0, 1))
    shutil.rmtree(cow.meta / ".aux")
    with pytest.raises(SkepError, match="bootstrap index"):
        cow.writer().upsert(rows)


def test_few_columns_are_read_of_bootstrapped_files(cow: Bootstrapped) -> None:
    assert sorted(cow.rows(columns=("_hoodie_record_key",))[0].to_pylist()) == sorted(cow.content())
    assert sorted(cow.rows(columns=("order_id",))[0].to_pylist()) == sorted(cow.content())
    assert set(cow.rows(columns=("city",))[0].to_pylist()) == {"amsterdam", "chennai", "utrecht"}


# -- services ----------------------------------------------------------------------------------------------------------


def test_clustering_puts_bootstrapped_files_together_with_their_sources(cow: Bootstrapped) -> None:
    before = cow.content()
    setting = cow.setting(clustering__plan__strategy__sort__columns="ts")
    instant = schedule_clustering(cow.table.with_context(**setting))
    assert instant is not None
    requested = cow.table.requested_plan(RequestedReplaceMetadata, instant)
    assert requested is not None
    assert requested.clustering_plan is not None
    named = {slice_.bootstrap_file_path for group in requested.clustering_plan.input_groups for slice_ in group.slices}
    assert named == {str(file) for file in cow.files(cow.source)}  # as Hudi's executor looks for it
    execute_clustering(cow.table.with_context(**setting), instant)
    assert cow.content() == before
    assert cow.skeletons() == set()
    assert set(stored(cow, "city=utrecht")["city"].to_pylist()) == {"utrecht"}


def test_clustering_measures_bootstrapped_files_with_their_sources(cow: Bootstrapped) -> None:
    large = cow.setting(
        clustering__plan__strategy__sort__columns="ts", clustering__plan__strategy__small__file__limit=5_000
    )
    assert cluster(cow.table.with_context(**large)) == []


# -- merge-on-read -----------------------------------------------------------------------------------------------------


def test_logs_lie_over_bootstrapped_files(mor: Bootstrapped) -> None:
    before = mor.content()
    rows = changed(mor.in_city("chennai").slice(0, 1))
    key = rows["order_id"][0].as_py()
    mor.writer().upsert(rows)
    after = mor.content()
    assert after[key]["note"] == "changed"
    assert others(after, key) == others(before, key)
    assert mor.rows(columns=("city",), where=f"order_id = '{key}'")[0].to_pylist() == ["chennai"]


def test_compaction_reads_skeleton_and_source(mor: Bootstrapped) -> None:
    before = mor.content()
    rows = changed(mor.in_city("chennai").slice(0, 1))
    removed = mor.in_city("chennai").slice(3, 1)
    mor.writer().upsert(rows)
    mor.writer().delete(removed.select(["order_id", "city"]))
    expected = mor.content()
    assert len(expected) == len(before) - 1
    instant = schedule_compaction(mor.table.with_context(**mor.setting()))
    assert instant is not None
    plan = mor.table.requested_plan(CompactionPlan, instant)
    assert plan is not None
    assert [each.bootstrap_file_path for each in plan.operations] == [str(mor.source_of("city=chennai"))]
    compact(mor.table.with_context(**mor.setting()))
    assert mor.content() == expected
    assert mor.skeletons() == {"city=amsterdam", "city=utrecht"}
    assert set(stored(mor, "city=chennai")["city"].to_pylist()) == {"chennai"}


def test_an_insert_into_a_small_bootstrapped_file_of_a_merge_on_read_table(mor: Bootstrapped) -> None:
    before = mor.content()
    row = mor.in_city("utrecht").slice(0, 1)
    new = row.set_column(row.schema.get_field_index("order_id"), "order_id", pa.array(["new"]))
    mor.writer().insert(new)
    assert others(mor.content(), "new") == before
    assert "city=utrecht" not in mor.skeletons()
