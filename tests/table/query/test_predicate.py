"""Filters: SQL's meaning row by row, pandas as the second opinion, and pruning that never loses a row."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import PredicateError
from skep_table.query.filters.predicate import Bounds, Predicate
from skep_table.query.filters.text import parse_predicate

POINT = pa.struct([("lat", pa.float64()), ("name", pa.string())])
ROWS = pa.table(
    {
        "a": pa.array([1, 2, None, 4], pa.int32()),
        "s": ["x", "Ab%c", None, "xy\nz"],
        "f": pa.array([1.5, float("nan"), None, -2.0], pa.float32()),
        "dec": pa.array([Decimal("1.20"), Decimal("5.00"), None, Decimal("-1.00")], pa.decimal128(10, 2)),
        "d": [dt.date(2024, 1, 1), dt.date(2024, 2, 1), None, dt.date(2023, 1, 1)],
        "at": pa.array(
            [dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 2, 1), None, dt.datetime(2023, 1, 1)],
            pa.timestamp("us", "UTC"),
        ),
        "ms": pa.array(
            [dt.datetime(2024, 1, 1), dt.datetime(2024, 2, 1), None, dt.datetime(2023, 1, 1)],
            pa.timestamp("ms", "UTC"),
        ),
        "b": [True, False, None, True],
        "bin": [b"\x1a", b"b", None, b""],
        "st": pa.array(
            [{"lat": 1.0, "name": "p"}, None, {"lat": None, "name": "q"}, {"lat": -5.0, "name": None}], POINT
        ),
    }
)

T, F, N = True, False, None
MEANINGS = [
    ("s = 'O''Brien' OR s = 'x'", [T, F, N, F]),
    ("st.name IN ('p''', 'p')", [T, N, F, N]),
    ("a > 1", [F, T, N, T]),
    ("1 < a", [F, T, N, T]),
    ("a = -1 OR a >= +4", [F, F, N, T]),
    ("a > 1 AND NOT a = 4", [F, T, N, F]),
    ("a = 1 OR s = 'Ab%c'", [T, T, N, F]),
    ("a IN (1, 4)", [T, F, N, T]),
    ("a IN (1, NULL)", [T, N, N, N]),
    ("a NOT IN (1, NULL)", [F, N, N, N]),
    ("a NOT IN (1, 4)", [F, T, N, F]),
    ("a IN (1.5, 2)", [F, T, N, F]),
    ("a BETWEEN 1 AND 2", [T, T, N, F]),
    ("a NOT BETWEEN 1 AND 2", [F, F, N, T]),
    ("a > 1.5", [F, T, N, T]),
    ("a = 1.0", [T, F, N, F]),
    ("a > '1'", [F, T, N, T]),
    ("a > 99999999999999999999", [F, F, N, F]),
    ("a + 1 >= 5", [F, F, N, T]),
    ("a / 2 = 2", [F, F, N, T]),
    ("-a < -1", [F, T, N, T]),
    ("A > 1", [F, T, N, T]),
    ("`a` = 1", [T, F, N, F]),
    ("a IS NULL", [F, F, T, F]),
    ("a IS NOT NULL", [T, T, F, T]),
    ("a <=> NULL", [F, F, T, F]),
    ("a <=> 1", [T, F, F, F]),
    ("a IS DISTINCT FROM 1", [F, T, T, T]),
    ("s LIKE 'x%'", [T, F, N, T]),
    ("s NOT LIKE 'x%'", [F, T, N, F]),
    ("s LIKE '%b\\\\%c'", [F, T, N, F]),
    ("s LIKE '%b!%c' ESCAPE '!'", [F, T, N, F]),
    ("s LIKE 'xy_z'", [F, F, N, T]),
    ("s ILIKE 'AB%'", [F, T, N, F]),
    ("lower(s) = 'ab%c'", [F, T, N, F]),
    ("length(s) > 1", [F, T, N, T]),
    ('s = "x"', [T, F, N, F]),
    ("f > 1.4", [T, T, N, F]),
    ("f <> 1.5", [F, T, N, T]),
    ("dec > 1.195", [T, T, N, F]),
    ("dec = 5", [F, T, N, F]),
    ("dec < 1e0", [F, F, N, T]),
    ("d >= '2024-01-01'", [T, T, N, F]),
    ("d = DATE '2024-02-01'", [F, T, N, F]),
    ("d > '2024-01-01 10:00:00'", [F, T, N, F]),
    ("at > '2024-01-01'", [T, T, N, F]),
    ("at >= TIMESTAMP '2024-01-01 12:00:00'", [T, T, N, F]),
    ("at > '2024-01-01T13:00:00.5+01:00'", [F, T, N, F]),
    ("CAST(at AS DATE) = d", [T, T, N, T]),
    ("CAST(a AS STRING) = '2'", [F, T, N, F]),
    ("b", [T, F, N, T]),
    ("NOT b", [F, T, N, F]),
    ("b = false", [F, T, N, F]),
    ("b IS TRUE", [T, F, F, T]),
    ("b IS NOT TRUE", [F, T, T, F]),
    ("bin = X'1a'", [T, F, N, F]),
    ("st.lat < 0", [F, N, N, T]),
    ("a IN (1, 3000000000)", [T, F, N, F]),
    ("a NOT IN (3000000000)", [T, T, N, T]),
    ("f IN (1.5, 'NaN')", [T, T, N, F]),
    ("f NOT IN (1.5, 'NaN')", [F, F, N, T]),
    ("f IN (1.1)", [F, F, N, F]),
    ("ms = '2024-01-01 00:00:00.000001'", [F, F, N, F]),
    ("ms > '2023-12-31 23:59:59.999999'", [T, T, N, F]),
    ("ms IN ('2024-01-01 00:00:00', '2023-01-01 00:00:00.000001')", [T, F, N, F]),
    ("ST.Name IS NULL", [F, T, F, T]),
    ("true", [T, T, T, T]),
]


@pytest.mark.parametrize(("text", "meaning"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_meaning(text: str, meaning: list[bool | None]) -> None:
    predicate = parse_predicate(text, ROWS.schema)
    assert predicate.mask(ROWS).to_pylist() == meaning
    kept = pa.array([index for index, true in enumerate(meaning) if true], pa.int64())
    pushed = ROWS if predicate.expression is None else ROWS.filter(predicate.expression)
    assert pushed.filter(predicate.mask(pushed))["d"].equals(ROWS.take(kept)["d"])
    assert pickle.loads(pickle.dumps(predicate)).mask(ROWS).to_pylist() == meaning


def test_expressions_of_spark_are_not_put_to_scanners() -> None:
    schema = pa.schema([("s", pa.string()), ("d", pa.date32())])
    assert parse_predicate("upper(s) = 'A' OR s = 'b'", schema).expression is None
    both = parse_predicate("upper(s) = 'A' AND s = 'b'", schema).expression
    assert both is not None
    assert both.equals(pc.field("s") == "b")


REFUSED = [
    ("zz > 1", "zz is no column"),
    ("st.q = 1", "st.q is no column"),
    ("a.x = 1", "has no member x"),
    ("a >", "does not parse: Required keyword: 'expression' missing for GT near '>'$"),
    ("a ) 3", r"does not parse: .* near '\)'$"),
    ("", "does not parse"),
    ("a > 1; DROP TABLE t", "more than one"),
    ("a = 1 GROUP BY a", "more than one"),
    ("a > 1 LIMIT 3", "more than one"),
    ("s > 1", "does not compare"),
    ("b = 1", "does not compare"),
    ("st = 1", "does not compare"),
    ("s = d", "does not compare"),
    ("a = 'many'", "not a number"),
    ("d > 'yesterday'", "no date"),
    ("foo(a) = 1", "not supported"),
    ("EXISTS (SELECT 1)", "not supported"),
    ("a IN (SELECT 1)", "list of values"),
    ("a LIKE 'x'", "takes text"),
    ("s LIKE 'x\\\\'", "ends in its escape"),
    ("s", "not a condition"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(PredicateError, match=reason):
        parse_predicate(text, ROWS.schema)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'O''Brien'", "O'Brien"),
        (r"'O\'Brien'", "O'Brien"),
        ('"O\'Brien"', "O'Brien"),
        ("''''", "'"),
        ("''", ""),
        ("'a''''b'", "a''b"),
        ('"a""b"', 'a"b'),
        ("'a\"\"b'", 'a""b'),
        ("'it''s; -- /* no */'", "it's; -- /* no */"),
    ],
)
def test_quotes_within_text(text: str, value: str) -> None:
    rows = pa.table({"s": [value, "other"]})
    for where in (f"s = {text}", f"s IN ({text})", f"s <=> {text}", f"s LIKE {text}"):
        assert parse_predicate(where, rows.schema).mask(rows).to_pylist() == [True, False], where


def test_a_bad_cast_is_the_filters_error() -> None:
    with pytest.raises(PredicateError, match="CAST"):
        parse_predicate("CAST(s AS INT) = 1", ROWS.schema).mask(ROWS)


# Random predicates over two integer columns and a text one: pandas decides which rows stay.

COLUMNS = {"i": st.integers(-3, 3), "j": st.integers(-3, 3)}
OPERATORS = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.sampled_from(["compare", "in", "null", "between"] + ["and", "or", "not"] * (depth > 0)))
    if kind in ("and", "or"):
        return f"({draw(conditions(depth - 1))} {kind} {draw(conditions(depth - 1))})"
    if kind == "not":
        return f"(NOT {draw(conditions(depth - 1))})"
    column = draw(st.sampled_from("ij"))
    if kind == "compare":
        other = draw(st.sampled_from(["i", "j"]) | st.integers(-3, 3).map(str))
        return f"{column} {draw(st.sampled_from(list(OPERATORS)))} {other}"
    if kind == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "between":
        low, high = draw(st.integers(-3, 3)), draw(st.integers(-3, 3))
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {low} AND {high}"
    values = draw(st.lists(st.integers(-3, 3).map(str) | st.just("NULL"), min_size=1, max_size=3))
    return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(values)})"


Rows = list[tuple[int | None, int | None]]
rows_of_two = st.lists(st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(-3, 3)), max_size=12)


def table_of(rows: Rows) -> pa.Table:
    return pa.table({"i": pa.array([i for i, _ in rows], pa.int64()), "j": pa.array([j for _, j in rows], pa.int64())})


@given(text=conditions(), rows=rows_of_two)
def test_agrees_with_duckdb(text: str, rows: Rows) -> None:
    import duckdb

    table = table_of(rows)
    found = parse_predicate(text, table.schema).mask(table).to_pylist()
    with duckdb.connect() as connection:
        connection.register("t", table)
        values = [value for (value,) in connection.execute(f"SELECT ({text})::BOOLEAN FROM t").fetchall()]
    assert found == values


@given(st.sampled_from("ij"), st.sampled_from(list(OPERATORS)), st.integers(-3, 3), rows_of_two)
def test_comparisons_agree_with_pandas(column: str, operator: str, value: int, rows: Rows) -> None:
    table = table_of(rows)
    frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    expected = getattr(frame[column], OPERATORS[operator])(value)
    found = parse_predicate(f"{column} {operator} {value}", table.schema).mask(table).to_pylist()
    assert found == [None if value is pd.NA else bool(value) for value in expected]


def bounds_of(chunks: list[pa.Table]) -> dict[tuple[str, ...], Bounds]:
    def column(name: str) -> Bounds:
        arrays = [chunk.column(name) for chunk in chunks]
        values = [[value for value in array.to_pylist() if value is not None] for array in arrays]
        return Bounds(
            pa.array([min(some, default=None) for some in values], pa.int64()),
            pa.array([max(some, default=None) for some in values], pa.int64()),
            pa.array([array.null_count for array in arrays], pa.int64()),
            pa.array([len(array) for array in arrays], pa.int64()),
        )

    return {("i",): column("i"), ("j",): column("j")}


@given(text=conditions(), files=st.lists(rows_of_two, min_size=1, max_size=4))
def test_statistics_never_lose_a_row(text: str, files: list[Rows]) -> None:
    chunks = [table_of(rows) for rows in files]
    predicate = parse_predicate(text, chunks[0].schema)
    may = predicate.may_match(bounds_of(chunks), len(chunks))
    for chunk, wanted in zip(chunks, may, strict=True):
        assert wanted or True not in predicate.mask(chunk).to_pylist()


@given(text=conditions(), rows=rows_of_two)
def test_weakened_to_one_column_never_loses_a_row(text: str, rows: Rows) -> None:
    table = table_of(rows)
    predicate = parse_predicate(text, table.schema)
    weaker = predicate.weakened(frozenset({"i"}))
    if weaker is None:
        return
    assert weaker.columns == ("i",) or weaker.columns == ()
    strong, weak = predicate.mask(table).to_pylist(), weaker.mask(table.select(["i"])).to_pylist()
    assert all(kept for true, kept in zip(strong, weak, strict=True) if true)


@given(text=conditions(), rows=rows_of_two)
def test_equal_values_hold_every_match(text: str, rows: Rows) -> None:
    table = table_of(rows)
    predicate = parse_predicate(text, table.schema)
    values = predicate.equal_values(("i",))
    if values is not None:
        matches = table.filter(predicate.mask(table)).column("i").to_pylist()
        assert set(matches) <= set(values.to_pylist())


# Columns of each type, with the values and literals in which types, spellings and orders differ.

ZONED = dt.timezone.utc
TYPED: dict[str, tuple[pa.DataType, list[object], list[str]]] = {
    "int": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1], ["0", "-1", "2147483648", "1.5", "1e0", "'1'"]),
    "long": (pa.int64(), [-(2**63), 0, 2**53 + 1, 2**63 - 1], ["0", "9007199254740992e0", "9223372036854775808"]),
    "float": (
        pa.float32(), [float("nan"), float("-inf"), -0.0, 0.0, 1.1, 3.4e38, float("inf")],
        ["0.0", "0", "1.1", "'NaN'", "'-Infinity'", "1e300"],
    ),
    "double": (
        pa.float64(), [float("nan"), float("-inf"), -0.0, 0.0, 1.1, 1e300, float("inf")],
        ["0.0", "-0e0", "1.1", "'NaN'", "'Infinity'", "1e300"],
    ),
    "decimal": (
        pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("-0.01"), Decimal(0), Decimal("1.10"), Decimal("999.99")],
        ["-0.01", "-0.005", "1.1", "1000", "0", "1e0", "99999999999999999999999.5"],
    ),
    "text": (
        pa.string(), ["", "a", "a\uffff", "a\U0001f381", "z", "\ud7ff", "\ue000", "\U0001f381", "x" * 70],
        ["''", "'a'", "'\uffff'", "'\U0001f381'", "'xx'", "'a\U0001f381'"],
    ),
    "day": (
        pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
        ["'1969-12-31'", "DATE '1970-01-01'", "'1969-12-31 12:00:00'", "TIMESTAMP '1970-01-01 00:00:00'"],
    ),
    "milli": (
        pa.timestamp("ms", "UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999000, ZONED), dt.datetime(1970, 1, 1, tzinfo=ZONED)],
        ["'1970-01-01'", "'1969-12-31 23:59:59.999'", "'1969-12-31 23:59:59.9995'", "DATE '1970-01-01'"],
    ),
    "micro": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1582, 1, 1, tzinfo=ZONED), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, ZONED)],
        ["'1970-01-01'", "'1969-12-31 23:59:59.999999'", "'1582-01-01'"],
    ),
    "flag": (pa.bool_(), [True, False], ["TRUE", "FALSE"]),
    "raw": (pa.binary(), [b"", b"a", b"\x80", b"\xff"], ["X'80'", "X''", "'a'"]),
}  # fmt: skip


@st.composite
def typed_conditions(draw: st.DrawFn, name: str, depth: int = 2) -> str:
    forms = ["compare", "compare", "in", "null", "like" if name == "text" else "compare"]
    form = draw(st.sampled_from(forms + ["and", "or", "not"] * (depth > 0)))
    if form in ("and", "or"):
        return f"({draw(typed_conditions(name, depth - 1))} {form} {draw(typed_conditions(name, depth - 1))})"
    if form == "not":
        return f"(NOT {draw(typed_conditions(name, depth - 1))})"
    literal = st.sampled_from(TYPED[name][2])
    negated = draw(st.sampled_from(["", "NOT "]))
    if form == "null":
        return f"c IS {negated}NULL"
    if form == "like":
        return f"c {negated}LIKE '{draw(literal)[1:-1]}%'"
    if form == "in":
        return f"c {negated}IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
    operator = draw(st.sampled_from([*OPERATORS, "<=>"]))
    sides = ["c", draw(literal)]
    return f" {operator} ".join(sides[::-1] if draw(st.booleans()) else sides)


def rows_of_type(name: str) -> st.SearchStrategy[pa.Table]:
    kind, values, _ = TYPED[name]
    chosen = st.none() | st.sampled_from(values)
    return st.lists(chosen, max_size=6).map(lambda each: pa.table({"c": pa.array(each, kind)}))


def typed_bounds(chunks: list[pa.Table]) -> dict[tuple[str, ...], Bounds]:
    """Of the values that have an order: those of footers leave NaN out."""
    kind = chunks[0].schema.field("c").type
    columns = [chunk["c"].drop_null() for chunk in chunks]
    if pa.types.is_floating(kind):
        columns = [column.filter(pc.invert(pc.is_nan(column))) for column in columns]
    ranges = [pc.min_max(column) for column in columns]
    low, high = (pa.array([each[name].as_py() for each in ranges], kind) for name in ("min", "max"))
    nulls, rows = ([count(chunk) for chunk in chunks] for count in (lambda c: c["c"].null_count, len))
    return {("c",): Bounds(low, high, pa.array(nulls), pa.array(rows))}


@pytest.mark.parametrize("name", TYPED)
@given(data=st.data())
def test_statistics_of_each_type_never_lose_a_row(name: str, data: st.DataObject) -> None:
    chunks = data.draw(st.lists(rows_of_type(name), min_size=1, max_size=4))
    text = data.draw(typed_conditions(name))
    predicate = parse_predicate(text, chunks[0].schema)
    may = predicate.may_match(typed_bounds(chunks), len(chunks))
    for chunk, wanted in zip(chunks, may, strict=True):
        found = predicate.mask(chunk)
        assert wanted or True not in found.to_pylist()
        values = predicate.equal_values(("c",))
        if values is not None:
            assert pc.all(pc.is_in(chunk.filter(found)["c"], value_set=values), min_count=0).as_py()


@pytest.mark.parametrize("name", TYPED)
@given(data=st.data())
def test_one_of_a_list_is_equal_to_one_of_it(name: str, data: st.DataObject) -> None:
    rows = data.draw(rows_of_type(name))
    listed = data.draw(st.lists(st.sampled_from(TYPED[name][2]), min_size=1, max_size=4))
    found = parse_predicate(f"c IN ({', '.join(listed)})", rows.schema)
    expected = parse_predicate(" OR ".join(f"c = {each}" for each in listed), rows.schema)
    assert found.mask(rows).to_pylist() == expected.mask(rows).to_pylist()


@pytest.mark.parametrize("name", TYPED)
@given(data=st.data())
def test_scanners_of_each_type_keep_the_same_rows(name: str, data: st.DataObject) -> None:
    """They leave out row groups by their own reading of the statistics."""
    rows = data.draw(rows_of_type(name))
    predicate = parse_predicate(data.draw(typed_conditions(name)), rows.schema)
    file = pa.BufferOutputStream()
    pq.write_table(rows, file, row_group_size=data.draw(st.integers(1, 3)))
    kept = ds.ParquetFileFormat().make_fragment(file.getvalue()).to_table(filter=predicate.expression)
    assert str(kept.filter(predicate.mask(kept)).to_pylist()) == str(rows.filter(predicate.mask(rows)).to_pylist())


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("c <> 1.5", [1.5, math.nan]),
        ("NOT c IN (1.5, 2.5)", [1.5, math.nan, 1.5]),
        ("NOT (c = 1.5 OR c IS NULL)", [1.5, None, math.nan]),
        ("c <> 1.5 AND c <> 2.5", [2.5, math.nan]),
    ],
)
def test_scanners_keep_nan_beside_one_number(text: str, values: list[float | None]) -> None:
    file = pa.BufferOutputStream()
    pq.write_table(rows := pa.table({"c": pa.array(values, pa.float64())}), file)
    predicate = parse_predicate(text, rows.schema)
    kept = ds.ParquetFileFormat().make_fragment(file.getvalue()).to_table(filter=predicate.expression)
    assert str(kept.filter(predicate.mask(kept))["c"].to_pylist()) == "[nan]"
    assert predicate.may_match(typed_bounds([rows]), 1).all(), "statistics have no NaN"


def test_statistics_leave_out_what_they_can() -> None:
    low, high = pa.array([0, 10, 20]), pa.array([9, 19, 29])
    bounds = {("i",): Bounds(low, high, pa.array([0, 0, 5]), pa.array([5, 5, 5]))}

    def chosen(text: str) -> list[bool]:
        predicate: Predicate = parse_predicate(text, pa.schema([("i", pa.int64()), ("k", pa.int64())]))
        return list(np.asarray(predicate.may_match(bounds, 3)))

    assert chosen("i = 15") == [F, T, F]
    assert chosen("i > 9 AND k = 3") == [F, T, F]  # the third holds nulls only
    assert chosen("i > 9 OR k = 3") == [T, T, T]
    assert chosen("i IN (3, 12)") == [T, T, F]
    assert chosen("i IS NULL") == [F, F, T]
    assert chosen("NOT i BETWEEN 0 AND 9") == [F, T, F]


def test_text_statistics_heed_like() -> None:
    bounds = {("s",): Bounds(pa.array(["a", "m"]), pa.array(["f", "z"]), pa.array([0, 0]), pa.array([2, 2]))}
    predicate = parse_predicate("s LIKE 'mo%'", pa.schema([("s", pa.string())]))
    assert list(predicate.may_match(bounds, 2)) == [F, T]
