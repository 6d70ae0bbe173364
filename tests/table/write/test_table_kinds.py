"""Tables that keep less in their files: no meta columns, no partition columns, no filter over keys."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import instant_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep.query.over_rows import Queries
from skep.query.spark import SparkHolder
from skep_format.basefile import read_footer
from skep_format.errors import KeyFieldError, OptionError, TableMismatchError, UnsupportedError
from skep_format.logfile import read_blocks
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import META_FIELDS
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, compact_logs
from skep_table.table import HudiTable
from skep_table.write.input.source import matching
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.int32()), ("ts", pa.int64()), ("v", pa.int64())])
VIRTUAL = {"hoodie.populate.meta.fields": "false"}
DROPPED = {"hoodie.datasource.write.drop.partition.columns": "true"}
Make = Callable[..., HudiTable]
both_types = pytest.mark.parametrize("kind", list(TableType), ids=lambda kind: kind.value)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(properties: dict[str, str], **spec: Any) -> HudiTable:
        usual = {"schema": SCHEMA, "record_key": ("id",), "partition_by": ("part",), "ordering": "ts"}
        return create_table(
            LocalStorage(str(tmp_path / "t")), TableSpec(name="t", properties=properties, **{**usual, **spec})
        )

    return table


def rows(*values: tuple[str, int, int, int]) -> pa.Table:
    columns = list(zip(*values, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def writer(table: HudiTable, **options: Any) -> LocalWriter:
    given = Options({k.replace("__", "."): v for k, v in options.items()})
    return LocalWriter(table.with_context(options=given, queries=Queries(SparkHolder()).query))


def content(table: HudiTable) -> list[tuple[str, Any, int]]:
    found = read(table.reload(), ReadRequest(columns=("id", "part", "v"))).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["v"]) for row in found)


def base_files(table: HudiTable) -> Iterator[Path]:
    yield from (file for file in Path(table.storage.root).rglob("*.parquet"))


def life(table: HudiTable) -> list[tuple[str, int, int]]:
    """Inserts, an update, one that comes late, deletes by key and by predicate; what must be there then."""
    writer(table).insert(rows(("a", 1, 5, 1), ("b", 1, 5, 2), ("c", 2, 5, 3), ("d", 2, 5, 4)))
    writer(table).upsert(rows(("a", 1, 6, 10), ("b", 1, 4, 20), ("e", 2, 5, 5)))
    assert writer(table).delete(rows(("c", 2, 9, 0)).select(["id", "part"])).deleted == 1
    found = matching("v = 4 and part = '2'" if dropped(table) else "v = 4 and part = 2")
    assert writer(table).delete_computed(found).deleted == 1
    return [("a", 1, 10), ("b", 1, 2), ("e", 2, 5)]


def dropped(table: HudiTable) -> bool:
    return table.config.drop_partition_columns


# -- without meta columns ----------------------------------------------------------------------------------------------


@both_types
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "BUCKET"])
def test_keys_are_recomputed_where_rows_keep_none(make: Make, kind: TableType, index: str) -> None:
    table = make(VIRTUAL, type=kind)
    writer(table, hoodie__index__type=index, hoodie__bucket__index__num__buckets=2).insert(rows(("z", 3, 1, 0)))
    assert content(table) == [("z", 3, 0)]
    assert [*life(table), ("z", 3, 0)] == content(table)
    for file in base_files(table):
        held = pq.ParquetFile(file).read(columns=list(META_FIELDS))
        assert {column.null_count for column in held.columns} == {held.num_rows}
        assert read_footer(table.storage, str(file.relative_to(table.storage.root))).bloom is None
    assert read(table.reload(), ReadRequest()).schema.names == SCHEMA.names


def test_services_keep_no_meta_columns_either(make: Make) -> None:
    table = make(VIRTUAL, type=TableType.MERGE_ON_READ)
    expected = life(table)
    few = Options({"hoodie.log.compaction.blocks.threshold": "2"})
    assert compact_logs(table.reload().with_context(options=few))
    assert content(table) == expected
    assert compact(table.reload())
    assert content(table) == expected
    small = Options({"hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true"})
    assert cluster(table.reload().with_context(options=small))
    assert content(table) == expected
    assert writer(table).upsert(rows(("a", 1, 7, 70), ("n", 1, 7, 7))).updated == 1
    assert content(table) == [("a", 1, 70), *expected[1:], ("n", 1, 7)]
    for file in base_files(table):
        held = pq.ParquetFile(file).read(columns=["_hoodie_record_key"])
        assert held.column(0).null_count == held.num_rows


def test_keys_of_several_columns(make: Make) -> None:
    table = make(VIRTUAL, record_key=("id", "ts"), ordering=None)
    writer(table).insert(rows(("a", 1, 1, 1), ("a", 1, 2, 2)))
    assert writer(table).upsert(rows(("a", 1, 2, 20))).updated == 1
    assert content(table) == [("a", 1, 1), ("a", 1, 20)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"record_key": ()}, "needs record key columns"),
        ({"partition_by": ("part:simple",)}, "SIMPLE, COMPLEX, NON_PARTITION"),
        ({"record_key": ("part",), "partition_by": ("part",), "properties": DROPPED}, "part is needed in files"),
    ],
)
def test_keys_that_rows_do_not_have_are_refused(make: Make, spec: dict[str, Any], message: str) -> None:
    properties = {**VIRTUAL, **spec.pop("properties", {})}
    with pytest.raises(OptionError, match=message):
        make(properties, **spec)


@pytest.mark.parametrize("index", ["GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "HBASE"])
def test_indexes_that_need_kept_keys_are_refused_by_name(make: Make, index: str) -> None:
    with pytest.raises(UnsupportedError, match=index):
        writer(make(VIRTUAL), hoodie__index__type=index).upsert(rows(("a", 1, 1, 1)))


def test_validators_count_rows_that_have_no_meta_columns(make: Make) -> None:
    pytest.importorskip("duckdb")
    options_given = {
        "hoodie__precommit__validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
        "hoodie__precommit__validators__single__value__sql__queries": "select count(*) from <TABLE_NAME>#2",
    }
    assert writer(make(VIRTUAL), **options_given).insert(rows(("a", 1, 1, 1), ("b", 1, 1, 1))).inserted == 2


def test_rows_that_have_no_partition(make: Make) -> None:
    table = make(VIRTUAL)
    with pytest.raises(KeyFieldError, match="no meta columns"):
        writer(table).upsert(rows(("a", 1, 1, 1)), prepped=True)


# -- without partition columns -----------------------------------------------------------------------------------------


@both_types
@pytest.mark.parametrize("hive_style", [False, True])
def test_partition_columns_that_are_in_the_paths_only(make: Make, kind: TableType, hive_style: bool) -> None:
    table = make(DROPPED, type=kind, hive_style=hive_style)
    assert table.schema().names() == ("id", "ts", "v", "part")
    expected = [(key, str(part), v) for key, part, v in life(table)]
    assert content(table) == expected
    assert all("part" not in pq.ParquetFile(file).schema_arrow.names for file in base_files(table))
    last = table.reload().timeline.data().completed().last()
    assert last is not None
    stated = parse_avro(table.reload().commit_metadata(last).schema_json or "")
    assert stated.names() == ("id", "ts", "v")
    assert table.reload().schema().names() == ("id", "ts", "v", "part")
    if kind is TableType.MERGE_ON_READ:
        assert compact(table.reload())
    cluster(table.reload())
    assert content(table) == expected
    assert all("part" not in pq.ParquetFile(file).schema_arrow.names for file in base_files(table))


@pytest.mark.parametrize("block_format", ["avro", "parquet"])
@pytest.mark.parametrize("styles", [{}, {"hive_style": True}, {"hive_style": True, "url_encode": True}])
def test_rows_of_logs_keep_them_as_text(make: Make, styles: dict[str, bool], block_format: str) -> None:
    """As Hudi 0.15 writes them: where they are missing it reads null."""
    schema = SCHEMA.append(pa.field("city", pa.string()))
    table = make(DROPPED, type=TableType.MERGE_ON_READ, schema=schema, partition_by=("city", "part"), **styles)
    options = {"hoodie__logfile__data__block__format": block_format, "hoodie__log__compaction__blocks__threshold": "2"}
    frame = rows(("a", 1, 1, 1), ("b", -2, 1, 2), ("c", 3, 1, 3))
    city = pa.array(["K\u00f6ln: M\u00fclheim", "x=y", None])
    writer(table, **options).insert(frame.append_column("city", city))
    for ts in (2, 3):
        newer = frame.set_column(2, "ts", pa.repeat(pa.scalar(ts, pa.int64()), 3)).append_column("city", city)
        assert writer(table, **options).upsert(newer).updated == 3
    assert compact_logs(
        table.reload().with_context(options=Options({k.replace("__", "."): v for k, v in options.items()}))
    )
    held = [
        row
        for file in Path(table.storage.root).rglob(".*.log.*")
        for block in read_blocks(pa.OSFile(str(file)), str(file))
        for row in block.records(["id", "city", "part"]).to_pylist()
    ]
    assert len(held) == 3 * 3  # of two writes, and of the log compaction
    expected = {"a": ("K\u00f6ln: M\u00fclheim", "1"), "b": ("x=y", "-2"), "c": (None, "3")}
    assert {row["id"]: (row["city"], row["part"]) for row in held} == expected
    shown = read(table.reload(), ReadRequest(columns=("id", "city", "part"))).to_arrow().to_pylist()
    assert {row["id"]: (row["city"], row["part"]) for row in shown} == expected


def test_a_new_column_comes_before_the_dropped_ones(make: Make) -> None:
    table = make(DROPPED)
    writer(table).insert(rows(("a", 1, 1, 1)))
    result = writer(table).upsert(rows(("a", 1, 2, 2)).append_column("more", pa.array(["x"])))
    assert result.schema.names() == table.reload().schema().names() == ("id", "ts", "v", "more", "part")
    assert content(table) == [("a", "1", 2)]


def test_columns_that_two_writers_add_at_once(make: Make) -> None:
    table = make(DROPPED)
    writer(table).insert(rows(("a", 1, 1, 1)))

    class Meanwhile(ThreadRunner):
        def map(self, function: Any, tasks: Any) -> Any:
            if len(table.reload().timeline.data().completed()) == 1:
                writer(table).insert(rows(("b", 2, 1, 2)).append_column("theirs", pa.array(["x"])))
            return super().map(function, tasks)

    ours = rows(("c", 3, 1, 3)).append_column("ours", pa.array(["y"]))
    # the later instant determines the columns: this one is dated before, so it gives way and tries again
    options_given = {"num.retries.on.conflict.failures": "1", "set.null.for.missing.columns": "true"}
    options = Options({f"hoodie.write.{key}": value for key, value in options_given.items()})
    LocalWriter(table.with_context(runner=Meanwhile(), options=options)).insert(ours)
    assert set(table.reload().stored_schema().names()) == {"id", "ts", "v", "ours", "theirs"}
    assert content(table) == [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]


def test_paths_are_made_of_the_column_as_it_arrives(make: Make) -> None:
    """Times in paths are numbers, which their text is not: the column that is read back as text makes no difference."""
    schema = SCHEMA.set(1, pa.field("part", pa.timestamp("us", "UTC")))
    table = create_table(
        LocalStorage(make(DROPPED).storage.root + "-times"),
        TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), properties=DROPPED),
    )
    first = writer(table).insert(
        rows(("a", 0, 1, 1)).set_column(1, schema.field(1), pa.array([7], schema.field(1).type))
    )
    again = writer(table).upsert(
        rows(("a", 0, 1, 2)).set_column(1, schema.field(1), pa.array([7], schema.field(1).type))
    )
    assert first.partitions == again.partitions == ("7",)
    assert again.updated == 1


def test_an_ordering_column_has_to_be_in_files(make: Make) -> None:
    with pytest.raises(OptionError, match="column part is needed in files"):
        make(DROPPED, ordering="part")


def test_a_table_of_consistent_hashing_is_not_given_groups_that_its_index_does_not_know(make: Make) -> None:
    table = make({}, type=TableType.MERGE_ON_READ)
    mapping = (
        Path(table.storage.root) / ".hoodie/.bucket_index/consistent_hashing_metadata/1/00000000000000.hashing_meta"
    )
    mapping.parent.mkdir(parents=True)
    mapping.write_text("{}")
    with pytest.raises(TableMismatchError, match="consistent hashing"):
        writer(table).upsert(rows(("a", 1, 1, 1)))
    assert not len(table.reload().timeline)


@pytest.mark.parametrize("kind", list(TableType), ids=lambda kind: kind.value)
def test_a_table_with_buckets_by_partition_is_not_given_groups_by_another_number(make: Make, kind: TableType) -> None:
    table = make({}, type=kind)
    (Path(table.storage.root) / ".hoodie/.bucket_index/partition_bucket_index_meta/configs").mkdir(parents=True)
    with pytest.raises(TableMismatchError, match="a number of buckets for each partition"):
        writer(table).upsert(rows(("a", 1, 1, 1)))
    assert not len(table.reload().timeline)


# -- Hudi's own --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["cow_virtual_keys", "cow_drop_partition_columns"])
def test_tables_that_hudi_made_are_written_on(golden: Path, tmp_path: Path, case: str) -> None:
    shutil.copytree(golden / "0.15.0" / case / "table", tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))
    schema = to_arrow(table.schema())
    before = read(table, ReadRequest(columns=tuple(schema.names))).to_arrow()
    chosen = before.slice(0, before.num_rows // 2)
    moved = [row | {"ts": row["ts"] + 1_000_000_000} for row in chosen.to_pylist()]
    result = writer(table).upsert(pa.Table.from_pylist(moved, schema))
    assert (result.updated, result.inserted) == (chosen.num_rows, 0)
    changed = {row["order_id"]: row for row in moved}
    expected = [changed.get(row["order_id"], row) for row in before.to_pylist()]
    after = read(table.reload(), ReadRequest(columns=tuple(schema.names))).to_arrow().to_pylist()

    def by_key(row: dict[str, Any]) -> str:
        return str(row["order_id"])

    assert sorted(after, key=by_key) == sorted(expected, key=by_key)


# -- the filter over keys, and the operation column --------------------------------------------------------------------


@both_types
def test_keys_are_found_without_a_filter(make: Make, kind: TableType) -> None:
    table = make({}, type=kind)
    off = {"hoodie__parquet__bloom__filter__enabled": "false"}
    writer(table, **off).insert(rows(("a", 1, 1, 1), ("b", 1, 1, 2)))
    (file,) = base_files(table)
    footer = read_footer(table.storage, str(file.relative_to(table.storage.root)))
    assert (footer.bloom, footer.min_key) == (None, None)
    assert writer(table).upsert(rows(("a", 1, 2, 10), ("c", 1, 1, 3))).updated == 1
    assert content(table) == [("a", 1, 10), ("b", 1, 2), ("c", 1, 3)]


@both_types
def test_rows_are_deletes_by_their_operation(make: Make, kind: TableType) -> None:
    table = make({}, type=kind)
    options_given = {"hoodie__allow__operation__metadata__field": "true"}
    writer(table, **options_given).insert(rows(("a", 1, 1, 1), ("b", 1, 1, 2), ("c", 1, 1, 3)))
    assert table.reload().schema().names()[-1] == "_hoodie_operation"
    changes = rows(("a", 1, 2, 10), ("b", 1, 2, 20), ("c", 1, 2, 30), ("d", 1, 2, 40))
    operations = pa.array(["U", "D", "-U", "I"])
    writer(table, **options_given).upsert(changes.append_column("_hoodie_operation", operations))
    assert content(table) == [("a", 1, 10), ("d", 1, 40)]


@both_types
def test_the_operation_is_a_meta_column_to_who_declares_it(make: Make, kind: TableType) -> None:
    """Hudi's commits leave it out of their schema, so a table may have it in files only."""
    table = make({}, type=kind)
    options_given = {"hoodie.allow.operation.metadata.field": "true"}
    writer(table, **{key.replace(".", "__"): value for key, value in options_given.items()}).insert(
        rows(("a", 1, 1, 1)).append_column("_hoodie_operation", pa.array(["I"]))
    )
    folder = table.storage.root
    as_hudi_states_it(table)
    assert "_hoodie_operation" not in read(HudiTable.open(folder), ReadRequest()).schema.names
    for answer in (
        read(HudiTable.open(folder, options_given), ReadRequest()),
        read(HudiTable.open(folder), ReadRequest(options=options_given)),
    ):
        assert answer.schema.names[5] == "_hoodie_operation"
        assert answer.to_arrow()["_hoodie_operation"].to_pylist() == ["I"]


@pytest.mark.parametrize("service", [compact, compact_logs])
def test_rows_of_logs_are_deletes_by_an_operation_that_no_commit_states(
    make: Make, service: Callable[[HudiTable], object]
) -> None:
    """As Flink's changelog mode leaves them. Hudi looks into a data file for the column."""
    table = make({}, type=TableType.MERGE_ON_READ)
    options_given = {"hoodie__allow__operation__metadata__field": "true"}
    writer(table, **options_given).insert(rows(("a", 1, 1, 1), ("b", 1, 1, 2), ("c", 1, 1, 3)))
    changes = rows(("a", 1, 2, 10), ("b", 1, 2, 20)).append_column("_hoodie_operation", pa.array(["U", "Z"]))
    writer(table, **options_given).upsert(changes)
    as_hudi_states_it(table)
    (log,) = Path(table.storage.root).rglob(".*.log.*")
    log.write_bytes(log.read_bytes().replace(b"\x02\x02Z", b"\x02\x02D"))  # skep itself writes a delete block
    table = HudiTable.open(table.storage.root)
    assert "_hoodie_operation" not in table.schema()
    assert content(table) == [("a", 1, 10), ("c", 1, 3)]
    writer(table).upsert(rows(("c", 1, 2, 30)))
    assert service(table.reload().with_context(options=Options({"hoodie.log.compaction.blocks.threshold": "2"})))
    assert content(table) == [("a", 1, 10), ("c", 1, 30)]


@both_types
def test_a_delete_leaves_the_operations_of_other_rows(make: Make, kind: TableType) -> None:
    table = make({}, type=kind)
    options_given = {"hoodie__allow__operation__metadata__field": "true"}
    changes = rows(("a", 1, 1, 1), ("b", 1, 1, 1)).append_column("_hoodie_operation", pa.array(["I", "U"]))
    writer(table, **options_given).insert(changes)
    as_hudi_states_it(table)
    table = table.reload()
    assert writer(table, **options_given).delete(rows(("a", 1, 2, 0)).select(["id", "part"])).deleted == 1
    (row,) = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    assert (row["id"], row["_hoodie_operation"]) == ("b", "U")


def test_rows_of_logs_have_their_operation(make: Make) -> None:
    """Hudi 1.2 fails at those that do not."""
    table = make({}, type=TableType.MERGE_ON_READ)
    options_given = {"hoodie__allow__operation__metadata__field": "true"}
    writer(table, **options_given).insert(rows(("a", 1, 1, 1), ("b", 1, 1, 1)))
    writer(table, **options_given).upsert(rows(("a", 1, 2, 2)))
    assert {
        row["id"]: row["_hoodie_operation"] for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    } == {
        "a": "U",
        "b": None,
    }


def as_hudi_states_it(table: HudiTable) -> None:
    def without_operation(metadata: CommitMetadata) -> CommitMetadata:
        schema = json.loads(metadata.schema_json or "")
        schema["fields"] = [field for field in schema["fields"] if field["name"] != "_hoodie_operation"]
        return instant_files.with_extra(metadata, schema=json.dumps(schema))

    table = table.reload()
    for instant in table.timeline.data().completed():
        instant_files.rewrite(table, instant, without_operation)


# -- commits of nothing ------------------------------------------------------------------------------------------------


def test_a_write_of_nothing_leaves_no_trace_where_that_is_asked_for(make: Make) -> None:
    table = make({})
    writer(table).insert(rows(("a", 1, 1, 1)))
    off = {"hoodie__allow__empty__commit": "false"}
    nothing = [
        writer(table, **off).insert(SCHEMA.empty_table()),
        writer(table, **off).bulk_insert(SCHEMA.empty_table()),
        writer(table, **off).delete(rows(("nowhere", 1, 1, 1)).select(["id", "part"])),
        writer(table, **off).delete_partitions(["none*"]),
        writer(table, **off).delete_computed(matching("v = 99")),
    ]
    assert all(result.empty for result in nothing)
    assert len(table.reload().timeline) == 1
    assert not writer(table).insert(SCHEMA.empty_table()).empty
    assert len(table.reload().timeline) == 2


class TestPartitionsWithinOthers:
    """Hudi lists no partition in the folder of another: its rows would be lost to every reader of listings."""

    SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string())])

    def batch(self, *parts: str) -> pa.Table:
        return pa.table({"id": [f"k{part}" for part in parts], "part": list(parts)}, self.SCHEMA)

    @both_types
    @pytest.mark.parametrize("version", [6, 8, 9])
    @pytest.mark.parametrize("kept", ["true", "false"])
    @pytest.mark.parametrize("parts", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a"), ("a", "a/b/c")])
    def test_the_second_one_is_refused(
        self, make: Make, parts: tuple[str, str], kept: str, version: int, kind: TableType
    ) -> None:
        table = make({}, schema=self.SCHEMA, ordering=None, version=version, type=kind)
        write = writer(table, **{"hoodie.metadata.enable": kept})
        write.upsert(self.batch(parts[0], "other"))
        files = table.storage.list_prefix("", recursive=True)
        for operation in ("upsert", "bulk_insert"):
            with pytest.raises(KeyFieldError, match="can't be in one table") as error:
                getattr(write, operation)(self.batch("more", parts[1]))
            assert all(repr(part) in str(error.value) for part in parts)
            assert "urlencode" in str(error.value.hint)
        view = table.reload().view(metadata=False)
        assert view.partitions() == sorted([parts[0], "other"])
        assert [file.path for file in table.storage.list_prefix("", recursive=True) if ".hoodie/" not in file.path] == [
            file.path for file in files if ".hoodie/" not in file.path
        ]
        write.upsert(self.batch(f"{parts[0]}x", "a.b"))  # alike names are other folders

    def test_both_in_one_batch_are_refused(self, make: Make) -> None:
        table = make({}, schema=self.SCHEMA, ordering=None)
        with pytest.raises(KeyFieldError, match="can't be in one table"):
            writer(table).upsert(self.batch("a", "a/b"))
        assert table.reload().view(metadata=False).partitions() == []
        writer(table).upsert(self.batch("a/b"))

    def test_encoded_paths_have_room_for_both(self, make: Make) -> None:
        table = make({}, schema=self.SCHEMA, ordering=None, url_encode=True)
        writer(table).upsert(self.batch("a", "a/b"))
        assert table.reload().view(metadata=False).partitions() == ["a", "a%2Fb"]
