"""Columns that are renamed, dropped, retyped, moved and added by id, on tables with rows in old files and logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from copied_groups import copied_groups

from skep_format.errors import CommitConflictError, InputError, SchemaError, SkepError, UnsupportedError
from skep_format.options import Options
from skep_format.schema.avro import avro_text
from skep_format.schema.change import (
    AddColumn,
    AllowNull,
    ChangeType,
    ColumnChange,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    may_become,
)
from skep_format.schema.history import parse_history
from skep_format.schema.types import (
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    ListType,
    LongType,
    StringType,
    StructType,
)
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, execute_compaction, schedule_compaction
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.slices.history import FOLDER, schema_history
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.planning.operation import data_action

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
        ("l", pa.list_(pa.int32())),
        ("part", pa.string()),
        ("ts", pa.int64()),
    ]
)


def row(key: int, ts: int = 1) -> dict[str, Any]:
    return {
        "id": key,
        "name": f"{key}.{ts}",
        "n": ts,
        "s": {"x": ts, "y": "y"},
        "m": [("k", {"v": ts})],
        "l": [ts],
        "part": "p",
        "ts": ts,
    }


def rows(*keys: int, ts: int = 1) -> pa.Table:
    return pa.Table.from_pylist([row(key, ts) for key in keys], SCHEMA)


def alter(table: HudiTable, *changes: ColumnChange) -> HudiTable:
    LocalWriter(table.reload()).alter(changes)
    return table.reload()


def content(table: HudiTable, **request: Any) -> list[dict[str, Any]]:
    found = read(table.reload(), ReadRequest(**request)).to_arrow()
    return list(found.select([name for name in found.schema.names if not name.startswith("_")]).to_pylist())


def values(table: HudiTable, column: str, **request: Any) -> dict[int, Any]:
    return {each["id"]: each[column] for each in content(table, **request)}


def latest(table: HudiTable) -> dict[str, Any]:
    last = table.reload().timeline.data().completed().last()
    assert last is not None
    found: dict[str, Any] = json.loads(table.commit_metadata(last).extra_metadata["latest_schema"])
    return found


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    """Rows 1 and 2, of which 2 was updated."""
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=request.param
    )
    made = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(made).bulk_insert(rows(1, 2))
    LocalWriter(made.reload()).upsert(rows(2, ts=2))
    return made.reload()


def test_old_files_are_read_by_the_new_columns(table: HudiTable) -> None:
    alter(table, RenameColumn("name", "label"), ChangeType("n", StringType()))
    alter(table, RenameColumn("s.x", "xx"), ChangeType("m.value.v", LongType()), ChangeType("l.element", LongType()))
    table = alter(table, AddColumn("s.z", IntType(), after=""), DropColumn("s.y"), MoveColumn("label", after="n"))
    assert table.schema().names() == ("id", "n", "label", "s", "m", "l", "part", "ts")
    expected = {"id": 2, "n": "2", "label": "2.2", "s": {"z": None, "xx": 2}, "m": [("k", {"v": 2})], "l": [2]}
    assert content(table, where="id = 2") == [{**expected, "part": "p", "ts": 2}]
    assert values(table, "n") == {1: "1", 2: "2"}


def test_a_column_added_by_a_dropped_ones_name_is_another_one(table: HudiTable) -> None:
    table = alter(table, DropColumn("n"))
    assert "n" not in table.schema()
    table = alter(table, AddColumn("n", IntType()), RenameColumn("name", "old"), AddColumn("name", StringType()))
    assert values(table, "n") == {1: None, 2: None}
    assert values(table, "old") == {1: "1.1", 2: "2.2"}
    assert values(table, "old", where="n = 1") == {}
    assert values(table, "old", where="n is null and old = '1.1'") == {1: "1.1"}
    assert values(table, "old", where="name = '1.1'") == {}
    new = read(table, ReadRequest()).to_arrow().select(table.schema().names())
    new = new.set_column(new.schema.get_field_index("n"), "n", pa.array([7, 7], pa.int32()))
    LocalWriter(table).upsert(new.slice(0, 1))
    assert sorted(values(table, "n").values(), key=str) == [7, None]
    assert set(values(table, "old").values()) == {"1.1", "2.2"}


def test_names_that_change_places(table: HudiTable) -> None:
    alter(table, RenameColumn("name", "spare"), CommentColumn("n", "first"))
    alter(table, AddColumn("name", StringType()))
    table = alter(table, RenameColumn("spare", "kept"))
    assert values(table, "kept") == {1: "1.1", 2: "2.2"}
    assert values(table, "name") == {1: None, 2: None}


def test_writes_and_services_go_on(table: HudiTable) -> None:
    table = alter(table, RenameColumn("name", "label"), ChangeType("n", LongType()), DropColumn("s.y"))
    new = read(table, ReadRequest(where="id = 1")).to_arrow().select(table.schema().names())
    new = new.set_column(new.schema.get_field_index("label"), "label", pa.array(["new"]))
    LocalWriter(table).upsert(new)
    assert values(table, "label") == {1: "new", 2: "2.2"}
    if table.config.is_mor:
        assert compact(table.reload())
    else:
        cluster(table.reload().with_context(options=Options({"hoodie.clustering.plan.strategy.sort.columns": "label"})))
    assert values(table, "label") == {1: "new", 2: "2.2"}
    assert values(table, "n") == {1: 1, 2: 2}
    table = alter(table, RenameColumn("label", "name"))
    assert values(table, "name") == {1: "new", 2: "2.2"}
    LocalWriter(table.reload()).delete(rows(1, ts=9).select(["id", "part"]))
    assert values(table, "name") == {2: "2.2"}


def test_earlier_times_have_their_own_columns(table: HudiTable) -> None:
    before = table.timeline.data().completed().last()
    assert before is not None
    table = alter(table, RenameColumn("name", "label"), DropColumn("n"))
    assert values(table, "name", as_of=before.requested_time) == {1: "1.1", 2: "2.2"}
    first = table.timeline.data().completed().instants[0]
    since = table.format.reads.time_in_range(first)
    assert values(table, "label", query="incremental", since=since) == {2: "2.2"}


def test_a_compaction_planned_before_keeps_the_values(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", type=TableType.MERGE_ON_READ)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(table).bulk_insert(rows(1, 2))
    LocalWriter(table.reload()).upsert(rows(2, ts=2))
    options = Options({"hoodie.compact.inline.max.delta.commits": "1"})
    planned = schedule_compaction(table.reload().with_context(options=options))
    assert planned is not None
    table = alter(table, RenameColumn("name", "label"), DropColumn("n"))
    table = alter(table, AddColumn("name", StringType()))
    assert execute_compaction(table, planned)
    assert values(table, "label") == {1: "1.1", 2: "2.2"}
    assert values(table, "name") == {1: None, 2: None}
    assert table.reload().schema().names() == ("id", "label", "s", "m", "l", "part", "ts", "name")


def test_a_write_that_began_before_is_refused(table: HudiTable) -> None:
    metadata = CommitMetadata(
        operation_type=WriteOperation.INSERT, extra_metadata={"schema": avro_text(table.stored_schema())}
    )
    with Transaction.begin(table.reload(), data_action(table)) as write:
        write.inflight(CommitMetadata(operation_type=WriteOperation.INSERT))
        alter(table, RenameColumn("name", "label"))
        with pytest.raises(CommitConflictError, match="columns were changed"):
            write.complete(metadata)
    assert values(table, "label") == {1: "1.1", 2: "2.2"}


def test_a_change_is_tried_again_after_other_writes(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another write that begins later and completes first would hide it."""
    complete, others = Transaction.complete, [rows(3)]

    def after_another(self: Transaction, *given: Any) -> Any:
        if others and self.table.config.name == "t":
            LocalWriter(table.reload()).insert(others.pop())
        return complete(self, *given)

    monkeypatch.setattr(Transaction, "complete", after_another)
    options = Options({"hoodie.write.num.retries.on.conflict.failures": "2"})
    LocalWriter(table.reload().with_context(options=options)).alter([RenameColumn("name", "label")])
    monkeypatch.undo()
    assert values(table, "label") == {1: "1.1", 2: "2.2", 3: "3.1"}


def test_a_rolled_back_change_never_was(table: HudiTable, tmp_path: Path) -> None:
    before = table.timeline.data().completed().last()
    assert before is not None
    table = alter(table, RenameColumn("name", "label"))
    last = table.timeline.data().completed().last()
    assert last is not None
    roll_back_instant(table, last.requested_time)
    table = table.reload()
    assert values(table, "name") == {1: "1.1", 2: "2.2"}
    assert not list((tmp_path / "t" / FOLDER).glob("*.schemacommit"))
    assert not schema_history(table)


def test_the_history_outlives_archived_commits(table: HudiTable, tmp_path: Path) -> None:
    table = alter(table, RenameColumn("name", "label"), DropColumn("n"))
    for ts in range(3, 12):
        frame = read(table.reload(), ReadRequest(where="id = 2")).to_arrow().select(table.schema().names())
        frame = frame.set_column(frame.schema.get_field_index("ts"), "ts", pa.array([ts], pa.int64()))
        LocalWriter(table.reload()).upsert(frame)
    options = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    archived = archive(table.reload().with_context(options=Options(options)))
    assert archived
    table = table.reload()
    LocalWriter(table).insert(read(table, ReadRequest(where="id = 2")).to_arrow().select(table.schema().names()))
    assert set(values(table, "label").values()) == {"1.1", "2.2"}
    kept = sorted(path.name for path in (tmp_path / "t" / FOLDER).glob("*.schemacommit"))
    active = {instant.requested_time for instant in table.reload().timeline.completed().data()}
    assert kept[-1].partition(".")[0] in active
    assert len(kept) <= len(active) + 1
    history = parse_history((tmp_path / "t" / FOLDER / kept[-1]).read_text())
    assert history[0].version_id == 0
    assert len(history) == 2


def test_ids_are_hudis(table: HudiTable) -> None:
    """Meta columns first, then the columns, then what is within them; a new column gets the next number."""
    alter(table, RenameColumn("name", "label"))
    before = latest(table)
    assert [field["id"] for field in before["fields"]] == list(range(13))
    assert before["max_column_id"] == 18
    by_name = {field["name"]: field["type"] for field in before["fields"]}
    assert [member["id"] for member in by_name["s"]["fields"]] == [13, 14]
    assert (by_name["m"]["key_id"], by_name["m"]["value_id"]) == (15, 16)
    assert by_name["m"]["value"]["fields"] == [{"id": 17, "name": "v", "optional": True, "type": "int"}]
    assert by_name["l"] == {"type": "array", "element_id": 18, "element": "int", "element_optional": True}
    alter(table, AddColumn("new", IntType(), after="id"))
    after = latest(table)
    assert [field["id"] for field in after["fields"]] == [*range(6), 19, *range(6, 13)]
    assert after["max_column_id"] == 19


REFUSED: dict[str, tuple[ColumnChange, type[SkepError], str]] = {
    "a key": (RenameColumn("id", "key"), InputError, "primaryKey"),
    "a partition column": (DropColumn("part"), InputError, "partitionKey"),
    "an ordering column": (ChangeType("ts", StringType()), InputError, "CombineKey"),
    "narrower": (ChangeType("n", DateType()), SchemaError, "int to a incompatibility type: date"),
    "a nested type": (ChangeType("s", StringType()), SchemaError, "struct"),
    "to a nested type": (ChangeType("n", ListType(IntType())), SchemaError, "list"),
    "at the front": (AddColumn("new", IntType(), after=""), SchemaError, "first syntax"),
    "moved to the front": (MoveColumn("n", after=""), SchemaError, "first syntax"),
    "there already": (AddColumn("NAME", IntType()), InputError, "there already"),
    "a name that is taken": (RenameColumn("n", "name"), InputError, "there already"),
    "a meta column": (DropColumn("_hoodie_record_key"), InputError, "_hoodie_record_key"),
    "called as a meta column": (RenameColumn("n", "_hoodie_file_name"), InputError, "hudi meta col"),
    "no such column": (DropColumn("nope"), InputError, "no column nope"),
    "no such member": (DropColumn("s.nope"), InputError, "there are: x, y"),
    "a member of no struct": (AddColumn("n.a", IntType()), SchemaError, "only structs"),
    "an element": (DropColumn("l.element"), InputError, "only its type"),
    "behind one of another struct": (MoveColumn("s.x", after="n"), InputError, "no column"),
    "a dotted name": (RenameColumn("n", "a.b"), InputError, "name of a column"),
    "a name that Avro forbids": (RenameColumn("n", "a-b"), SchemaError, "column a-b: Avro"),
    "a new one": (AddColumn("1a", IntType()), SchemaError, "column 1a: Avro"),
    "a member that Avro forbids": (AddColumn("s.a b", IntType()), SchemaError, "column s.a b: Avro"),
    "one within": (
        AddColumn("new", ListType(StructType((Field("a:b", IntType()),)))),
        SchemaError,
        "column new.element.a:b: Avro",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_changes_leave_no_trace(case: str, tmp_path: Path) -> None:
    change, error, text = REFUSED[case]
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    with pytest.raises(error, match=text):
        alter(table, change)
    assert not table.reload().timeline.instants


TYPES = [IntType(), LongType(), FloatType(), DoubleType(), DecimalType(20, 4), StringType(), DateType()]
WIDER = {
    (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 4), (3, 5),
    (4, 5), (5, 4), (5, 6), (6, 5),
}  # fmt: skip


def test_types_change_as_hudi_has_it() -> None:
    found = {(a, b) for a, one in enumerate(TYPES) for b, other in enumerate(TYPES) if may_become(one, other)}
    assert found - {(4, 4)} == WIDER
    assert may_become(DecimalType(10, 2), DecimalType(12, 4))
    assert not may_become(DecimalType(10, 2), DecimalType(10, 4))
    assert not may_become(DecimalType(10, 2), DecimalType(12, 1))


def test_a_key_of_int_may_become_long(table: HudiTable) -> None:
    table = alter(table, ChangeType("id", LongType()))
    assert table.schema()["id"].type == LongType()
    longer = SCHEMA.set(0, pa.field("id", pa.int64()))
    LocalWriter(table).upsert(rows(1, ts=5).cast(longer))
    assert values(table, "name") == {1: "1.5", 2: "2.2"}


def test_required_columns_may_become_nullable(tmp_path: Path) -> None:
    required = SCHEMA.set(1, pa.field("name", pa.string(), nullable=False))
    table = create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=required, record_key=("id",)))
    LocalWriter(table).insert(rows(1).cast(required))
    table = alter(table, AllowNull("name"))
    assert table.schema()["name"].nullable
    LocalWriter(table).insert(rows(2).set_column(1, "name", pa.array([None], pa.string())))
    assert values(table, "name") == {1: "1.1", 2: None}


def test_comments_need_no_ids(table: HudiTable) -> None:
    table = alter(table, CommentColumn("name", "what it is called"))
    assert table.schema()["name"].doc == "what it is called"
    assert not schema_history(table)
    LocalWriter(table).upsert(rows(1, ts=5))
    assert table.reload().schema()["name"].doc == "what it is called"


def test_tables_that_drop_their_partition_columns_are_refused(tmp_path: Path) -> None:
    properties = {"hoodie.datasource.write.drop.partition.columns": "true"}
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), properties=properties)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    with pytest.raises(UnsupportedError, match="partition columns"):
        alter(table, RenameColumn("name", "label"))


@pytest.mark.parametrize("compacted", [False, True], ids=["clustered", "written_or_compacted"])
def test_no_file_holds_a_dropped_column_after_rewriting_and_cleaning(table: HudiTable, *, compacted: bool) -> None:
    root, word = Path(table.storage.root), b"to be forgotten"
    settings = {
        "hoodie.parquet.compression.codec": "none",
        "hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.cleaner.fileversions.retained": "1",
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
    }
    table = table.with_context(options=Options(settings))

    def written(*keys: int, ts: int) -> pa.Table:
        return pa.Table.from_pylist([{**row(key, ts), "name": f"{word.decode()} {key}"} for key in keys], SCHEMA)

    def holding() -> list[str]:
        return [path.name for path in root.rglob("*") if path.is_file() and word in path.read_bytes()]

    LocalWriter(table).insert(written(3, 4, ts=1))
    LocalWriter(table.reload()).upsert(written(2, 3, ts=3))
    assert holding()
    table = alter(table, DropColumn("name"))
    with copied_groups() as copied:  # the bytes of an older file have the column
        LocalWriter(table).upsert(rows(1, ts=4).drop_columns(["name"]))
        if compacted and table.config.is_mor:
            assert compact(table.reload())
        if not compacted:
            assert cluster(table.reload())
    assert not copied
    assert holding()
    clean(table.reload())
    assert holding() == []
    for base in [each.base_file for each in table.reload().view().slices("p")]:
        assert base is not None
        names = pq.read_schema(root / base.path).names
        assert names[-7:] == [each for each in SCHEMA.names if each != "name"]
        assert "name" not in names
    assert values(table, "n") == {1: 4, 2: 3, 3: 3, 4: 1}
    assert "name" not in table.reload().schema()
