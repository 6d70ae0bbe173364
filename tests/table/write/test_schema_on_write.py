"""Schema on write: which frames a table takes, what becomes of its columns, and what all rows read as afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import InputError, SchemaError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

RECONCILE = {"hoodie.datasource.write.reconcile.schema": True}
NULLS = {"hoodie.write.set.null.for.missing.columns": True}
DROP = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": True}
KEY = pa.field("id", pa.string())


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def kind(request: pytest.FixtureRequest) -> TableType:
    found: TableType = request.param
    return found


def make(path: Path, kind: TableType, first: pa.Table) -> HudiTable:
    spec = TableSpec(name="t", schema=first.schema, record_key=("id",), type=kind)
    table = create_table(LocalStorage(str(path / "t")), spec)
    LocalWriter(table).insert(first)
    return table


def upsert(table: HudiTable, rows: pa.Table, **options: Any) -> None:
    LocalWriter(table.with_context(options=Options(options))).upsert(rows)


def frame(kind: pa.DataType, *values: Any, name: str = "x", keys: str = "abc", nullable: bool = True) -> pa.Table:
    field = pa.field(name, kind, nullable)
    return pa.table([pa.array(list(keys[: len(values)])), pa.array(values, kind)], schema=pa.schema([KEY, field]))


def stored(table: HudiTable) -> dict[str, Any]:
    rows = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    return {row["id"]: {name: value for name, value in row.items() if name[0] != "_" and name != "id"} for row in rows}


def struct(**kinds: Any) -> pa.StructType:
    return pa.struct(
        [pa.field(name, *kind) if isinstance(kind, tuple) else (name, kind) for name, kind in kinds.items()]
    )


INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()


BECOMES_TEXT = {"skep.write.columns.become.text": True}


@pytest.mark.parametrize(
    ("before", "value", "after", "other", "kept"),
    [
        (INT, 1, LONG, 2**40, 1),
        (INT, 1, FLOAT, 0.5, 1.0),
        (INT, 1, DOUBLE, 0.5, 1.0),
        (FLOAT, 1.5, DOUBLE, 0.1, 1.5),
        (INT, 1, TEXT, "x", "1"),
        (struct(a=INT), {"a": 1}, struct(a=LONG), {"a": 2**40}, {"a": 1}),
        (pa.list_(INT), [1], pa.list_(LONG), [2**40], [1]),
        (pa.map_(TEXT, INT), [("k", 1)], pa.map_(TEXT, LONG), [("k", 2**40)], [("k", 1)]),
        (struct(a=INT), {"a": 1}, struct(a=INT, b=TEXT), {"a": 2, "b": "x"}, {"a": 1, "b": None}),
        (
            pa.list_(struct(a=INT)),
            [{"a": 1}],
            pa.list_(struct(a=INT, b=TEXT)),
            [{"a": 2, "b": "x"}],
            [{"a": 1, "b": None}],
        ),
    ],
    ids=str,
)
def test_columns_widen_and_grow(
    tmp_path: Path, kind: TableType, before: Any, value: Any, after: Any, other: Any, kept: Any
) -> None:
    table = make(tmp_path, kind, frame(before, value, value))
    upsert(table, frame(after, other, other, keys="bc"), **BECOMES_TEXT)
    assert stored(table) == {"a": {"x": kept}, "b": {"x": other}, "c": {"x": other}}


@pytest.mark.parametrize(
    ("kept", "given", "value"),
    [(LONG, INT, 1), (DOUBLE, FLOAT, 0.5), (TEXT, INT, "1"), (DOUBLE, INT, 1.0)],
    ids=str,
)
def test_narrower_rows_are_cast_up(tmp_path: Path, kind: TableType, kept: Any, given: Any, value: Any) -> None:
    table = make(tmp_path, kind, frame(kept, pa.scalar(1).cast(kept).as_py()))
    arriving = pa.array([value]).cast(given) if given != INT else pa.array([1], INT)
    upsert(table, pa.table({"id": ["b"], "x": arriving}))
    assert stored(table)["b"] == {"x": value}
    assert read(table.reload(), ReadRequest()).schema.field("x").type == kept


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("added", {"x": [2], "added": [7]}),
        ("added", {"added": [7], "x": [2]}),
        ("_hoodie_mine", {"_hoodie_mine": [7], "x": [2]}),
    ],
)
def test_columns_are_added_wherever_they_stand(tmp_path: Path, kind: TableType, name: str, columns: Any) -> None:
    table = make(tmp_path, kind, frame(LONG, 1, 1))
    upsert(table, pa.table({"id": ["b"], **columns}))
    assert table.reload().schema().names() == ("id", "x", name)
    rows = read(table.reload(), ReadRequest()).to_arrow()
    assert sorted(zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True)) == [("a", None), ("b", 7)]


def test_a_map_or_list_column_is_added(tmp_path: Path, kind: TableType) -> None:
    table = make(tmp_path, kind, frame(LONG, 1))
    upsert(table, frame(LONG, 2, keys="b").append_column("m", pa.array([[("k", 1)]], pa.map_(TEXT, INT))))
    assert [stored(table)[key]["m"] for key in "ab"] == [None, [("k", 1)]]


@pytest.mark.parametrize("nested", [False, True])
def test_new_columns_that_are_never_null_are_refused(tmp_path: Path, kind: TableType, nested: bool) -> None:
    first = frame(struct(a=INT), {"a": 1})
    table = make(tmp_path, kind, first)
    new = (
        frame(struct(a=INT, b=(INT, False)), {"a": 1, "b": 2})
        if nested
        else first.append_column(pa.field("b", INT, nullable=False), pa.array([2], INT))
    )
    with pytest.raises(SchemaError, match=r"new column (x\.)?b is never null") as refused:
        upsert(table, new)
    assert "make it nullable" in str(refused.value)
    assert len(table.reload().timeline.instants) == 1
    upsert(table, new, **RECONCILE)
    assert table.reload().schema() != table.schema()


@pytest.mark.parametrize(
    ("table_has", "rows_have"),
    [
        (INT, pa.date32()),
        (TEXT, pa.binary()),
        (LONG, pa.timestamp("us", "UTC")),
        (pa.bool_(), INT),
        (pa.list_(INT), INT),
        (struct(a=INT), TEXT),
        (struct(a=INT), struct(a=pa.bool_())),
        (INT, pa.decimal128(5, 0)),
    ],
    ids=str,
)
def test_what_would_lose_data_is_refused(tmp_path: Path, kind: TableType, table_has: Any, rows_have: Any) -> None:
    table = make(tmp_path, kind, frame(table_has, None))
    with pytest.raises(SchemaError, match="column x") as refused:
        upsert(table, frame(rows_have, None))
    assert {"column", "found", "expected"} <= set(refused.value.fields)
    assert len(table.reload().timeline.instants) == 1


def two_columns() -> pa.Table:
    return pa.table({"id": ["a", "b"], "x": [1, 1], "y": ["old", "old"]})


def test_a_missing_column_is_refused(tmp_path: Path, kind: TableType) -> None:
    table = make(tmp_path, kind, two_columns())
    with pytest.raises(SchemaError, match="column y of the table is missing") as refused:
        upsert(table, frame(LONG, 2, keys="b"))
    assert "set.null.for.missing.columns=true" in str(refused.value)


@pytest.mark.parametrize("options", [NULLS, RECONCILE], ids=["set_null", "reconcile"])
def test_missing_columns_are_null_on_request(tmp_path: Path, kind: TableType, options: dict[str, Any]) -> None:
    table = make(tmp_path, kind, two_columns())
    upsert(table, frame(LONG, 2, keys="b"), **options)
    assert stored(table) == {"a": {"x": 1, "y": "old"}, "b": {"x": 2, "y": None}}


def test_missing_columns_are_dropped_on_request(tmp_path: Path, kind: TableType) -> None:
    table = make(tmp_path, kind, two_columns())
    upsert(table, frame(LONG, 2, keys="b"), **DROP)
    assert stored(table) == {"a": {"x": 1}, "b": {"x": 2}}
    assert table.reload().schema().names() == ("id", "x")


@pytest.mark.parametrize("role", ["ordering", "partition_by"])
def test_columns_that_place_or_order_rows_are_not_dropped(tmp_path: Path, role: str) -> None:
    rows = two_columns().append_column("who", pa.array([{"y": 1, "z": 1}] * 2))
    spec = {"ordering": "who.y"} if role == "ordering" else {"partition_by": ("y",)}
    table = create_table(
        LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=rows.schema, record_key=("id",), **spec)
    )
    writer = LocalWriter(table.with_context(options=Options(DROP)))
    writer.insert(rows)
    with pytest.raises(InputError, match="who" if role == "ordering" else "y"):
        writer.insert(rows.select(["id", "x", "y"] if role == "ordering" else ["id", "x", "who"]))
    assert table.reload().schema().names() == ("id", "x", "y", "who")


def test_nested_members_go_the_way_of_columns(tmp_path: Path, kind: TableType) -> None:
    table = make(tmp_path, kind, frame(struct(a=INT, b=TEXT), {"a": 1, "b": "old"}, {"a": 1, "b": "old"}))
    fewer = frame(struct(a=INT), {"a": 2}, keys="b")
    with pytest.raises(SchemaError, match=r"column x\.b"):
        upsert(table, fewer)
    upsert(table, fewer, **NULLS)
    assert stored(table) == {"a": {"x": {"a": 1, "b": "old"}}, "b": {"x": {"a": 2, "b": None}}}


def test_comments_stay(tmp_path: Path, kind: TableType) -> None:
    from dataclasses import replace

    from skep_format.schema.arrow import from_arrow

    fields = from_arrow(frame(LONG, 1).schema)
    documented = replace(fields, fields=tuple(replace(field, doc=f"about {field.name}") for field in fields.fields))
    table = create_table(
        LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=documented, record_key=("id",), type=kind)
    )
    upsert(table, frame(LONG, 1).append_column("new", pa.array([1])))
    upsert(table, frame(TEXT, "x").append_column("new", pa.array([1])), **BECOMES_TEXT)
    assert [field.doc for field in table.reload().schema().fields] == ["about id", "about x", None]


# Avro's specification of names; Avro for Java takes letters and digits of all languages.
FORBIDDEN = ("a-b", "1a", "a b", "a.b", "a:b", "", "\u00e9\u2019", "\U0001f600", "a\n", "\u0663")


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("within", [None, "struct", "list", "map"])
def test_names_that_avro_forbids_are_refused(tmp_path: Path, name: str, within: str | None) -> None:
    """Hudi could not open the table any more."""
    inner = pa.struct([(name, pa.int32())])
    kinds = {"struct": inner, "list": pa.list_(inner), "map": pa.map_(pa.string(), inner)}
    column = pa.field(name, pa.int32()) if within is None else pa.field("c", kinds[within])
    schema = pa.schema([("id", pa.string())])
    with pytest.raises(SchemaError, match=r"Avro, in which tables keep their schemas, has no name"):
        create_table(LocalStorage(str(tmp_path / "new")), TableSpec(name="t", schema=schema.append(column)))
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").rglob("*"))
    table = create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=schema, record_key=("id",)))
    rows = pa.table({"id": ["1"]}).append_column(column, pa.nulls(1, column.type))
    for operation in ("upsert", "bulk_insert", "insert_overwrite"):
        with pytest.raises(SchemaError, match=r"Avro, in which tables keep their schemas, has no name"):
            getattr(LocalWriter(table.reload()), operation)(rows)
    assert not table.reload().timeline.instants


def test_names_that_avro_for_java_takes_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([(name, pa.string()) for name in ("id", "_a1", "gr\u00f6\u00dfe", "\u540d", "A_\u0663")])
    table = create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=schema, record_key=("id",)))
    LocalWriter(table).upsert(pa.table({name: ["x"] for name in schema.names}))
    assert table.reload().schema().names() == tuple(schema.names)
