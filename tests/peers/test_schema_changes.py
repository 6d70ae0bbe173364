"""Columns renamed, dropped and retyped by skep or by JVM Hudi: both read old and new files by the new schema."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.options import Options
from skep_format.schema.change import AddColumn, ChangeType, ColumnChange, DropColumn, MoveColumn, RenameColumn
from skep_format.schema.types import META_FIELDS, DateType, DecimalType, DoubleType, IntType, LongType, StringType
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Start = Callable[[str], Jvm]
ON = {
    "hoodie.schema.on.read.enable": "true",
    "hoodie.metadata.enable": "false",
    "spark.sql.parquet.enableVectorizedReader": "false",  # Hudi's refuses retyped members of structs
}
ON_1 = {**ON, "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
"""Hudi 1.1.1 refuses to rename without it."""
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float32()),
        ("price", pa.float64()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("text", pa.string()),
        ("spare", pa.int32()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
        ("l", pa.list_(pa.int32())),
        ("ts", pa.int64()),
    ]
)
CHANGES: tuple[tuple[ColumnChange, str], ...] = (
    (RenameColumn("name", "label"), "RENAME COLUMN name TO label"),
    (ChangeType("n", LongType()), "ALTER COLUMN n TYPE BIGINT"),
    (ChangeType("x", DoubleType()), "ALTER COLUMN x TYPE DOUBLE"),
    (ChangeType("price", StringType()), "ALTER COLUMN price TYPE STRING"),
    (ChangeType("amount", DecimalType(14, 4)), "ALTER COLUMN amount TYPE DECIMAL(14,4)"),
    (ChangeType("day", StringType()), "ALTER COLUMN day TYPE STRING"),
    (ChangeType("text", DateType()), "ALTER COLUMN text TYPE DATE"),
    (DropColumn("spare"), "DROP COLUMN spare"),
    (AddColumn("spare", StringType(), "another one", after="label"), "ADD COLUMNS (spare STRING AFTER label)"),
    (RenameColumn("s.a", "aa"), "RENAME COLUMN s.a TO aa"),
    (ChangeType("s.aa", LongType()), "ALTER COLUMN s.aa TYPE BIGINT"),
    (AddColumn("s.c", IntType(), after=""), "ADD COLUMNS (s.c INT FIRST)"),
    (DropColumn("s.b"), "DROP COLUMN s.b"),
    (ChangeType("m.value.v", LongType()), "ALTER COLUMN m.value.v TYPE BIGINT"),
    (ChangeType("l.element", LongType()), "ALTER COLUMN l.element TYPE BIGINT"),
    (MoveColumn("label", "n"), "ALTER COLUMN label AFTER n"),
)


def row(key: str, ts: int, **more: Any) -> dict[str, Any]:
    return {
        "id": key,
        "name": f"{key}{ts}",
        "n": ts,
        "x": 0.5,  # Hudi makes another double of 0.1 with its vectorized reader than without it
        "price": 1.5,
        "amount": Decimal("1.25"),
        "day": dt.date(2024, 2, 29),
        "text": "1999-12-31",
        "spare": 7,
        "s": {"a": ts, "b": "b"},
        "m": [("k", {"v": ts})],
        "l": [ts, 7],
        "ts": ts,
        **more,
    }


def new_table(path: Path, kind: TableType, version: int = 6) -> HudiTable:
    """Rows in a base file, and in a merge-on-read table one of them updated in a log."""
    spec = TableSpec(name="t", schema=COLUMNS, record_key=("id",), ordering="ts", type=kind, version=version)
    table = create_table(LocalStorage(str(path)), spec)
    LocalWriter(table).bulk_insert(pa.Table.from_pylist([row(key, 1) for key in "abc"], COLUMNS))
    LocalWriter(table.reload()).upsert(pa.Table.from_pylist([row("b", 2)], COLUMNS))
    return table.reload()


def ours(table: HudiTable) -> list[dict[str, Any]]:
    batches = read(table.reload(), ReadRequest()).to_batches()
    return [json.loads(line) for batch in batches for line in bytes(json_lines(batch)).splitlines()]


def same(hudi: Jvm, table: HudiTable, name: str) -> list[dict[str, Any]]:
    """The rows, which both read alike by the columns as they are, in the same order of columns."""
    found = ours(table)
    theirs = hudi.sql(f"SELECT * FROM {name}", ON)
    names = [field["name"] for field in theirs.schema["fields"]]
    assert names == [*META_FIELDS, *table.reload().schema().names()]
    assert not difference(theirs.rows, found)
    return found


def rewritten(table: HudiTable, key: str, ts: int) -> pa.Table:
    """A row of today's columns."""
    rows = read(table.reload(), ReadRequest(where=f"id = '{key}'")).to_arrow()
    found = rows.select([name for name in rows.schema.names if not name.startswith("_hoodie")])
    return found.set_column(found.schema.get_field_index("ts"), "ts", pa.array([ts], pa.int64()))


@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def test_hudi_reads_what_skep_altered_and_writes_on(kind: TableType, jvm: Start, tmp_path: Path) -> None:
    hudi, name = jvm("0.15.0"), f"ours_{kind.name.lower()}"
    table = new_table(tmp_path / "t", kind)
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'")
    for at, (change, _) in enumerate(CHANGES):
        LocalWriter(table.reload()).alter([change])
        if at % 5 and change is not CHANGES[-1][0]:
            continue
        hudi.sql(f"DROP TABLE {name}")
        hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'", ON)
        found = same(hudi, table, name)
        assert {one["id"]: one["ts"] for one in found} == {"a": 1, "b": 2, "c": 1}, change
    LocalWriter(table.reload()).upsert(rewritten(table, "a", 3))
    assert {one["id"]: one["ts"] for one in same(hudi, table, name)} == {"a": 3, "b": 2, "c": 1}
    hudi.sql(f"UPDATE {name} SET label = 'theirs', ts = 4 WHERE id = 'c'", ON)
    found = same(hudi, table, name)
    assert {one["id"]: (one["ts"], one["label"]) for one in found} == {
        "a": (3, "a1"),
        "b": (2, "b2"),
        "c": (4, "theirs"),
    }
    hudi.sql(f"ALTER TABLE {name} RENAME COLUMN label TO tag", ON)
    LocalWriter(table.reload()).alter([RenameColumn("tag", "label")])
    if kind is TableType.MERGE_ON_READ:
        LocalWriter(table.reload()).upsert(rewritten(table, "a", 4))
        assert compact(table.reload())
    hudi.sql(f"DROP TABLE {name}")
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'", ON)
    found = same(hudi, table, name)
    assert {one["id"]: one["label"] for one in found} == {"a": "a1", "b": "b2", "c": "theirs"}


@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def test_skep_reads_what_hudi_altered_and_writes_on(kind: TableType, jvm: Start, tmp_path: Path) -> None:
    hudi, name = jvm("0.15.0"), f"theirs_{kind.name.lower()}"
    table = new_table(tmp_path / "t", kind)
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'", ON)
    for _, text in CHANGES:
        hudi.sql(f"ALTER TABLE {name} {text}", ON)
    same(hudi, table, name)
    LocalWriter(table.reload()).upsert(rewritten(table, "a", 3))
    assert {one["id"]: one["label"] for one in same(hudi, table, name)} == {"a": "a1", "b": "b2", "c": "c1"}
    wider = rewritten(table, "c", 5).append_column("more", pa.array([5], pa.int32()))
    options = Options({"hoodie.write.set.null.for.missing.columns": "true"})
    LocalWriter(table.reload().with_context(options=options)).upsert(wider)
    LocalWriter(table.reload()).alter([DropColumn("l")])
    hudi.sql(f"DROP TABLE {name}")
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'", ON)
    found = same(hudi, table, name)
    assert {one["id"]: one["more"] for one in found} == {"a": None, "b": None, "c": 5}


@pytest.mark.parametrize(
    ("release", "version", "kind"),
    [
        pytest.param("1.1.1", 9, TableType.MERGE_ON_READ, marks=pytest.mark.peer("hudi-1.1.1")),
        pytest.param("1.0.2", 8, TableType.MERGE_ON_READ, marks=pytest.mark.peer("hudi-1.0.2")),
        pytest.param("1.0.2", 8, TableType.COPY_ON_WRITE, marks=[pytest.mark.peer("hudi-1.0.2"), pytest.mark.slow]),
    ],
)
def test_both_change_columns_in_turns(release: str, version: int, kind: TableType, jvm: Start, tmp_path: Path) -> None:
    """Hudi names its history files by the timeline's layout there, and skep's have the names of before."""
    hudi, name = jvm(release), f"turns_{version}_{kind.name.lower()}"
    # 1.0.2 reads null for a member of a struct that it has renamed, of rows in its own logs as well.
    member = "a" if (release, kind) == ("1.0.2", TableType.MERGE_ON_READ) else "aa"
    table = new_table(tmp_path / "t", kind, version)
    made = table.timeline.data().completed().last()
    assert made is not None
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'", ON_1)
    hudi.sql(f"ALTER TABLE {name} RENAME COLUMN name TO label", ON_1)
    if member != "a":
        hudi.sql(f"ALTER TABLE {name} RENAME COLUMN s.a TO {member}", ON_1)
    hudi.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE BIGINT", ON_1)
    hudi.sql(f"ALTER TABLE {name} DROP COLUMN spare", ON_1)
    labels = {"a": "a1", "b": "b2", "c": "c1"}
    assert {one["id"]: one["label"] for one in same(hudi, table, name)} == labels
    before = read(table.reload(), ReadRequest(as_of=made.requested_time)).to_arrow().to_pylist()
    assert {one["id"]: one["name"] for one in before} == labels
    changes = read(table.reload(), ReadRequest(query="incremental")).to_arrow().to_pylist()
    assert {one["id"]: (one["label"], one["s"][member]) for one in changes} == {
        "a": ("a1", 1),
        "b": ("b2", 2),
        "c": ("c1", 1),
    }
    LocalWriter(table.reload()).alter([RenameColumn("label", "tag"), MoveColumn("tag", "ts")])
    LocalWriter(table.reload()).upsert(rewritten(table, "c", 3))
    hudi.sql(f"DROP TABLE {name}")
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 't'}'", ON_1)
    assert {one["id"]: (one["tag"], one["ts"]) for one in same(hudi, table, name)} == {
        "a": ("a1", 1),
        "b": ("b2", 2),
        "c": ("c1", 3),
    }
    hudi.sql(f"ALTER TABLE {name} RENAME COLUMN tag TO remark", ON_1)
    hudi.sql(f"UPDATE {name} SET remark = 'theirs', ts = 4 WHERE id = 'a'", ON_1)
    assert {one["id"]: one["remark"] for one in same(hudi, table, name)} == {**labels, "a": "theirs"}
