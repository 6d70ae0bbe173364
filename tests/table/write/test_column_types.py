"""Frames whose columns have other types than the table's: what is cast, what widens, what is refused."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_format.errors import KeyFieldError, SchemaError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.input.columns import MetaColumnWarning
from skep_table.write.local import LocalWriter

LOSSY = {"skep.write.lossy.casts": True}
NULLS = {"hoodie.write.set.null.for.missing.columns": True}
KINDS = [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ]


def make(path: Path, rows: pa.Table, kind: TableType = KINDS[0], **spec: Any) -> HudiTable:
    given = {"record_key": ("id",), "type": kind, **spec}
    table = create_table(LocalStorage(str(path / "t")), TableSpec(name="t", schema=rows.schema, **given))
    LocalWriter(table).insert(rows)
    return table


def writer(table: HudiTable, **options: Any) -> LocalWriter:
    return LocalWriter(table.with_context(options=Options(options)))


def rows_of(table: HudiTable, *names: str) -> list[tuple[Any, ...]]:
    read_back = read(table.reload(), ReadRequest(columns=names)).to_arrow()
    return sorted(zip(*(read_back[name].to_pylist() for name in names), strict=True), key=str)


def files_of(path: Path) -> set[Path]:
    return {each for each in path.rglob("*") if each.is_file() and ".hoodie" not in each.parts}


# -- keys, partitions, order ------------------------------------------------------------------------------------------

KEYS = [
    (pa.array([1, 2]), pd.Series([2.0, 3.0]), pa.array([0.5]), ["1", "2", "3"]),
    (pa.array([1, 2]), pa.array(["2", "3"]), pa.array(["03"]), ["1", "2", "3"]),
    (pa.array([1, 2], pa.int32()), pa.array([2, 3]), pa.array([2**40]), ["1", "2", "3"]),
    (
        pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(9, 2)),
        pa.array([Decimal("2.000"), Decimal("3.000")], pa.decimal128(9, 3)),
        pa.array([Decimal("2.001")], pa.decimal128(9, 3)),
        ["1.00", "2.00", "3.00"],
    ),
    (
        pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
        pd.Series(pd.to_datetime(["2024-01-02", "2024-01-03"])),
        pa.array([dt.datetime(2024, 1, 2, 12)], pa.timestamp("us")),
        ["2024-01-01", "2024-01-02", "2024-01-03"],
    ),
    (
        pa.array([1, 2], pa.timestamp("us")),
        pa.array([2000, 3000], pa.timestamp("ns")),
        pa.array([2001], pa.timestamp("ns")),
        ["1", "2", "3"],
    ),
]


@pytest.mark.parametrize(("first", "second", "misfit", "keys"), KEYS, ids=lambda value: str(getattr(value, "type", "")))
@pytest.mark.parametrize("role", ["key", "partition"])
def test_keys_and_partitions_keep_their_type(
    tmp_path: Path, first: pa.Array, second: Any, misfit: pa.Array, keys: list[str], role: str
) -> None:
    by = {"partition_fields": ("part",)} if role == "partition" else {}
    spec = {"partition_by": ("part",)} if by else {}

    def frame(column: Any) -> Any:
        if role == "key":
            return pd.DataFrame({"id": column}) if isinstance(column, pd.Series) else pa.table({"id": column})
        ids = [f"k{at}" for at in range(len(column))]
        if isinstance(column, pd.Series):
            return pd.DataFrame({"id": ids, "part": column})
        return pa.table({"id": ids, "part": column})

    table = make(tmp_path, frame(first), **spec)
    before = table.reload().schema()
    writer(table).upsert(frame(second))
    assert table.reload().schema() == before
    meta = "_hoodie_record_key" if role == "key" else "_hoodie_partition_path"
    assert sorted({row[0] for row in rows_of(table, meta)}) == keys
    instants, files = table.reload().timeline.data().instants, files_of(tmp_path)
    name = "id" if role == "key" else "part"
    for operation in ("upsert", "insert", "bulk_insert", "insert_overwrite", "delete"):
        with pytest.raises(SchemaError, match=f"column {name}: ") as refused:
            getattr(writer(table, **LOSSY), operation)(frame(misfit))
        assert {"column", "found", "expected", "value"} <= set(refused.value.fields)
    assert files_of(tmp_path) == files
    assert list(table.reload().timeline.data().instants) == list(instants)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_deleted_by_keys_of_another_type(tmp_path: Path, kind: TableType) -> None:
    rows = pa.table({"id": [1, 2, 3], "part": [2024, 2024, 2025]})
    table = make(tmp_path, rows, kind, partition_by=("part",))
    writer(table).delete(pd.DataFrame({"id": [1.0, 3.0], "part": ["2024", "2025"], "note": [None, None]}))
    assert rows_of(table, "id", "part") == [(2, 2024)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [pa.array(["9", "11"]), pd.Series([9.0, 11.0]), pa.array([9, 11], pa.uint64())])
def test_the_ordering_column_keeps_its_type(tmp_path: Path, kind: TableType, given: Any) -> None:
    table = make(tmp_path, pa.table({"id": ["a", "b"], "at": [10, 10]}), kind, ordering="at")
    writer(table).upsert(
        pd.DataFrame({"id": ["a", "b"], "at": given})
        if isinstance(given, pd.Series)
        else pa.table({"id": ["a", "b"], "at": given})
    )
    assert rows_of(table, "id", "at") == [("a", 10), ("b", 11)]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (pa.array(["1"]), pa.array([1.0])),
        (pa.array(["1"]), pa.array([Decimal("1.0")])),
        (pa.array([1]), pa.array([True])),
        (pa.array([1]), pa.array([dt.date(2024, 1, 1)])),
        (pa.array([1.5]), pa.array(["1.5"])),
        (pa.array([dt.date(2024, 1, 1)]), pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)
def test_key_types_with_more_than_one_text_are_refused(tmp_path: Path, stored: pa.Array, given: pa.Array) -> None:
    table = make(tmp_path, pa.table({"id": stored}))
    for operation in ("upsert", "delete"):
        with pytest.raises(SchemaError, match=r"column id: rows have .* which it keeps") as refused:
            getattr(writer(table), operation)(pa.table({"id": given}))
        assert {"column", "found", "expected"} <= set(refused.value.fields)


def test_a_key_within_a_struct_keeps_its_type(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"who": [{"id": 1, "n": 1}]}), record_key=("who.id",))
    writer(table).upsert(pa.table({"who": [{"id": 1.0, "n": 2}, {"id": 2.0, "n": 2}]}))
    assert rows_of(table, "_hoodie_record_key", "who") == [("1", {"id": 1, "n": 2}), ("2", {"id": 2, "n": 2})]
    with pytest.raises(SchemaError, match=r"column who\.id: 0\.5"):
        writer(table).upsert(pa.table({"who": [{"id": 0.5, "n": 2}]}))


def test_a_partition_column_that_files_leave_out_is_text(tmp_path: Path) -> None:
    dropped = {"hoodie.datasource.write.drop.partition.columns": "true"}
    rows = pa.table({"id": ["a"], "year": [2024]})
    table = make(tmp_path, rows, partition_by=("year",), properties=dropped)
    writer(table).upsert(pa.table({"id": ["a"], "year": ["2024"]}))
    assert rows_of(table, "id", "year") == [("a", "2024")]
    for operation in ("upsert", "delete"):
        with pytest.raises(SchemaError, match="column year: the rows have floats"):
            getattr(writer(table), operation)(pa.table({"id": ["a"], "year": [2024.0]}))


# -- other columns ----------------------------------------------------------------------------------------------------

EDGE = 2**53 + 1


@pytest.mark.filterwarnings("ignore::skep_table.write.flow.NullInListWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"m": x}, lambda x: [x]], ids=["column", "member", "element"])
def test_whole_numbers_given_as_floats_stay_whole(tmp_path: Path, kind: TableType, wrap: Any) -> None:
    table = make(tmp_path, pa.table({"id": ["a", "b"], "x": [wrap(EDGE), wrap(1)]}), kind)
    writer(table).upsert(pa.table({"id": ["b", "c"], "x": [wrap(5.0), wrap(float("nan"))]}))
    assert rows_of(table, "id", "x") == [("a", wrap(EDGE)), ("b", wrap(5)), ("c", wrap(None))]


def test_times_take_the_unit_of_the_table(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": pa.array([1], pa.time64("us"))}))
    writer(table).upsert(pa.table({"id": ["b"], "x": pa.array([1], pa.time32("ms"))}))
    assert rows_of(table, "id", "x") == [("a", dt.time(microsecond=1)), ("b", dt.time(microsecond=1000))]
    with pytest.raises(SchemaError, match="column x: "):
        writer(table).upsert(pa.table({"id": ["b"], "x": pa.array([1], pa.time64("ns"))}))


def test_missing_values_of_pandas_do_not_change_a_column(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": [EDGE]}))
    writer(table).upsert(pd.DataFrame({"id": ["b", "c"], "x": [7, None]}))
    assert rows_of(table, "id", "x") == [("a", EDGE), ("b", 7), ("c", None)]


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (pa.array([EDGE]), pa.array([0.5])),
        (pa.array([0.5]), pa.array([EDGE])),
        (pa.array([0.5], pa.float32()), pa.array([EDGE])),
        (pa.array([1], pa.timestamp("us")), pa.array([1001], pa.timestamp("ns"))),
        (pa.array([1], pa.timestamp("ms")), pa.array([1001], pa.timestamp("us"))),
        (pa.array([Decimal("12345.0")], pa.decimal128(6, 1)), pa.array([Decimal("1.55")], pa.decimal128(3, 2))),
        (pa.array([1]), pa.array([2**63], pa.uint64())),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_refused(tmp_path: Path, operation: str, stored: Any, given: Any) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": stored}))
    files = files_of(tmp_path)
    with pytest.raises(SchemaError, match=r"column x: .* exactly") as refused:
        getattr(writer(table), operation)(pa.table({"id": ["b"], "x": given}))
    assert {"column", "found", "expected", "value"} <= set(refused.value.fields)
    assert files_of(tmp_path) == files
    assert rows_of(table, "id", "x") == [("a", stored[0].as_py())]
    assert len(table.reload().timeline.data().completed().instants) == 1


@pytest.mark.parametrize(
    ("stored", "given", "before", "after"),
    [
        (pa.array([EDGE]), pa.array([0.5]), 2.0**53, 0.5),
        (pa.array([0.5]), pa.array([EDGE]), 0.5, 2.0**53),
        (pa.array([0.5], pa.float32()), pa.array([2**24 + 1]), 0.5, 2.0**24),
        (
            pa.array([1], pa.timestamp("us")),
            pa.array([2001], pa.timestamp("ns")),
            dt.datetime(1970, 1, 1, microsecond=1),
            dt.datetime(1970, 1, 1, microsecond=2),
        ),
    ],
    ids=str,
)
def test_an_option_lets_values_be_rounded(tmp_path: Path, stored: Any, given: Any, before: Any, after: Any) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": stored}))
    writer(table, **LOSSY).upsert(pa.table({"id": ["b"], "x": given}))
    assert rows_of(table, "id", "x") == [("a", before), ("b", after)]


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
@pytest.mark.parametrize(
    ("stored", "given", "after"),
    [
        (pa.array([1], pa.int32()), pa.array([0.5]), pa.float64()),
        (pa.array([2**31 - 1], pa.int32()), pa.array([0.5], pa.float32()), pa.float64()),
        (pa.array([1.5], pa.float32()), pa.array([2**24 + 1]), pa.float64()),
    ],
    ids=str,
)
def test_a_column_widens_when_a_value_needs_it(
    tmp_path: Path, operation: str, stored: Any, given: Any, after: pa.DataType
) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": stored, "y": stored}))
    whole = pa.array([3]).cast(given.type)
    getattr(writer(table), operation)(pa.table({"id": ["b"], "x": whole, "y": given}))
    schema = read(table.reload(), ReadRequest()).schema
    assert (schema.field("x").type, schema.field("y").type) == (stored.type, after)
    assert rows_of(table, "id", "y") == [("a", stored[0].as_py()), ("b", given[0].as_py())]
    assert len(table.reload().timeline.data().instants) == 2


_NUMBERS = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.sampled_from([EDGE, 2**24 + 1, -EDGE]),
    pa.float32(): st.floats(width=32, allow_nan=False) | st.sampled_from([2.0**24, 3.0]),
    pa.float64(): st.floats(allow_nan=False) | st.integers(-(2**40), 2**40).map(float),
}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_is_read_is_what_was_written(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    first, second = (data.draw(st.sampled_from(list(_NUMBERS))) for _ in range(2))
    stored = data.draw(st.lists(st.none() | _NUMBERS[first], min_size=1, max_size=3))
    given = data.draw(st.lists(st.none() | _NUMBERS[second], min_size=1, max_size=3))
    table = make(
        tmp_path_factory.mktemp("t"),
        pa.table({"id": [f"a{at}" for at in range(len(stored))], "x": pa.array(stored, first)}),
        data.draw(st.sampled_from(KINDS)),
    )
    expected = [(f"a{at}", value) for at, value in enumerate(stored)]
    rows = pa.table({"id": [f"b{at}" for at in range(len(given))], "x": pa.array(given, second)})
    with contextlib.suppress(SchemaError):
        writer(table).upsert(rows)
        expected += [(f"b{at}", value) for at, value in enumerate(given)]
    found = rows_of(table, "id", "x")
    if first == pa.float32() and read(table.reload(), ReadRequest()).schema.field("x").type == pa.float64():
        # Hudi promotes a stored float by its shortest decimal text
        found = [
            (key, pa.scalar(x).cast(pa.float32()).as_py() if key[0] == "a" and x is not None else x) for key, x in found
        ]
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "properties", [{}, {"hoodie.datasource.write.drop.partition.columns": "true"}], ids=["", "dropped"]
)
def test_null_structs_whose_members_are_never_null(tmp_path: Path, kind: TableType, properties: dict[str, str]) -> None:
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])

    def frame(column: pa.Array) -> pa.Table:
        return pa.table({"id": ["a", "b"], "part": ["p", "p"], "x": column})

    table = make(
        tmp_path, frame(pa.array([{"a": 1}, None], strict)), kind, partition_by=("part",), properties=properties
    )
    writer(table).upsert(frame(pa.array([None, {"a": 2}])))
    assert rows_of(table, "id", "x", "part") == [("a", None, "p"), ("b", {"a": 2}, "p")]
    with pytest.raises(SchemaError, match=r"column x\.a is required and null in 1 rows"):
        writer(table).upsert(frame(pa.array([{"a": None}, {"a": 2}])))
    assert rows_of(table, "id", "x", "part") == [("a", None, "p"), ("b", {"a": 2}, "p")]


# -- columns without a type -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::skep_table.write.flow.NullInListWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_nulls_take_the_type_of_the_table(tmp_path: Path, kind: TableType) -> None:
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))])
    first = pa.table({"id": ["a"], "x": [1], "n": pa.array([{"a": 1, "b": []}], nested)})
    table = make(tmp_path, first, kind)
    before = table.reload().schema()
    writer(table).upsert(pa.table({"id": ["b"], "x": pa.nulls(1), "n": [{"a": None, "b": [None]}]}))
    writer(table).upsert(pd.DataFrame({"id": ["c"], "x": [None], "n": [None]}))
    assert table.reload().schema() == before
    assert rows_of(table, "id", "x", "n")[1:] == [("b", None, {"a": None, "b": [None]}), ("c", None, None)]


def test_new_columns_of_nulls_are_refused_or_left_out(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "n": [{"a": 1}]}))
    rows = pa.table({"id": ["b"], "n": [{"a": 2, "c": None}], "new": pa.nulls(1), "list": [[None]]})
    with pytest.raises(SchemaError, match=r"column n\.c has no type") as refused:
        writer(table).upsert(rows)
    assert "skep.write.drop.untyped.columns=true" in str(refused.value)
    writer(table, **{"skep.write.drop.untyped.columns": True}).upsert(rows)
    assert table.reload().schema().names() == ("id", "n")
    assert rows_of(table, "id", "n") == [("a", {"a": 1}), ("b", {"a": 2})]


def test_a_key_of_nulls_is_a_null_key(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": [1], "x": [1]}))
    with pytest.raises(Exception, match="column id is null or empty in 1 row"):
        writer(table).upsert(pa.table({"id": pa.nulls(1), "x": [1]}))


# -- Hudi's own names -------------------------------------------------------------------------------------------------


def test_rows_that_were_read_are_written_on_as_they_are(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": [1]}))
    rows = read(table.reload(), ReadRequest()).to_arrow()
    assert writer(table).upsert(rows).updated == 1  # a warning would be an error here


def test_columns_named_like_some_meta_columns_are_left_out_with_a_warning(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "x": [1]}))
    rows = pa.table({"id": ["a"], "x": [2], "_hoodie_file_name": ["mine"], "_hoodie_note": ["kept"]})
    with pytest.warns(MetaColumnWarning, match="^_hoodie_file_name of the rows: not written"):
        writer(table).upsert(rows)
    assert rows_of(table, "id", "x", "_hoodie_note") == [("a", 2, "kept")]


@pytest.mark.parametrize("role", ["record_key", "partition_by", "ordering"])
def test_meta_columns_are_no_keys(tmp_path: Path, role: str) -> None:
    schema = pa.schema([("id", pa.string()), ("_hoodie_record_key", pa.string())])
    spec: dict[str, Any] = {"record_key": ("id",)}
    spec[role] = "_hoodie_record_key" if role == "ordering" else ("_hoodie_record_key",)
    with pytest.raises(KeyFieldError, match="_hoodie_record_key is one of Hudi's meta columns"):
        create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=schema, **spec))
    assert not (tmp_path / "t").exists()


def test_names_that_metastores_take_for_meta_columns_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a"], "_Hoodie_Commit_Time": [1]})
    with pytest.raises(SchemaError, match="column _Hoodie_Commit_Time differs from Hudi's meta column"):
        make(tmp_path, rows)
    table = make(tmp_path, rows.select(["id"]))
    with pytest.raises(SchemaError, match="column _Hoodie_Commit_Time differs from Hudi's meta column"):
        writer(table).upsert(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["insert", "upsert", "bulk_insert"])
@pytest.mark.parametrize(
    ("type", "stored", "fits", "other"),
    [
        (pa.float64(), 1.5, "2.5", "abc"),
        (pa.float32(), 1.5, "2.5", "2.50"),
        (pa.int64(), 1, "2", "007"),
        (pa.date32(), dt.date(2026, 1, 1), "2026-01-02", "soon"),
    ],
    ids=str,
)
def test_text_by_mistake_does_not_make_a_column_text(
    tmp_path: Path, kind: TableType, operation: str, type: pa.DataType, stored: Any, fits: str, other: str
) -> None:
    """Hudi makes the column text, for good: numbers and dates to string are promotions of its schema on write.

    See the table of promotions in its documentation of schema evolution, and apache/hudi#9743.
    """
    schema = pa.schema([("id", pa.string()), ("x", type)])
    table = make(tmp_path, pa.table([["a"], [stored]], schema=schema), kind)

    def texts(*values: str | None) -> pa.Table:
        return pa.table({"id": [f"k{at}" for at in range(len(values))], "x": pa.array(values, pa.string())})

    before = len(table.reload().timeline.instants)
    with pytest.raises(
        SchemaError, match=re.escape(f"column x: '{other}' of type string does not fit the table's {type}")
    ) as found:
        getattr(writer(table), operation)(texts(None, fits, other, "also"))
    assert found.value.fields["value"] == repr(other)
    assert "skep.write.columns.become.text=true" in str(found.value)
    assert len(table.reload().timeline.instants) == before
    getattr(writer(table), operation)(texts(None, fits))
    assert table.reload().schema()["x"] == table.schema()["x"]
    assert ("k1", pa.array([fits]).cast(type)[0].as_py()) in rows_of(table, "id", "x")
    getattr(writer(table.reload(), **{"skep.write.columns.become.text": True}), operation)(texts(other))
    assert ("a", str(stored)) in rows_of(table, "id", "x")
    assert ("k0", other) in rows_of(table, "id", "x")
