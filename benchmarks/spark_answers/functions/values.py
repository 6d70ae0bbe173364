"""Values at which engines may part, by the kind of a column, and a table that has each of one with each of another."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

SIDES: Final = ("a", "b", "c", "d")  # of the first, second, third and fourth argument
UNIQUE: Final = "u"  # another side, whose values are all different, but for nulls
ROWS: Final = (31, 29)  # of different length: every value of one side meets every value of the other

_INTS = [None, 0, 1, -1, 2, 3, 5, -6, 7, 10, 100]
_FLOATS = [None, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1.005, 100.0, 123456789.125, 1e10]
_SPECIAL = [math.nan, math.inf, -math.inf]
_TEXTS = [
    *(None, "", "a", "Abc", "ABC", " abc ", "ß", "naïve", "日本語", "🐝x", "İ", "12", "-3.5", "1e3", " 7 ", "true"),
    *("2024-02-29", "2024-02-29 10:11:12.5", "b%c", "a_b", "a,b,c", "\n", "NaN", "abcabc", '{"a": 1, "b": [1, 2]}'),
    *("http://user@ex.org:80/p/q.html?k=v&x=y#r", "1999-12-31", "no", "F", "on", "off", "0123456789" * 9),
]
_DAYS = [
    *(None, dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2023, 12, 31)),
    *(dt.date(2024, 12, 30), dt.date(2026, 11, 27), dt.date(1900, 3, 1), dt.date(1582, 10, 15), dt.date(1, 1, 1)),
    *(dt.date(9999, 12, 31), dt.date(2023, 1, 31)),
]
_TIMES = [
    *(None, dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 500000)),
    *(dt.datetime(2024, 2, 29, 10, 11, 12, 123456), dt.datetime(2023, 12, 31, 23, 59, 59, 999999)),
    *(dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1900, 1, 1), dt.datetime(1582, 10, 15), dt.datetime(1, 1, 1)),
    *(dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 11, 27, 8)),
]
_SECOND = 10**6
_DAY = 86_400 * _SECOND
_PAIRS = [None, {"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": -6, "b": None}, {"a": 1, "b": "ß"}]


def _whole(bits: int) -> list[int | None]:
    return [*_INTS, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


def _decimals(*texts: str) -> list[Decimal | None]:
    return [None, *map(Decimal, texts)]


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


_PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
KINDS: Final[dict[str, tuple[pa.DataType, Sequence[Any]]]] = {
    "boolean": (pa.bool_(), [None, True, False]),
    "tinyint": (pa.int8(), _whole(8)),
    "smallint": (pa.int16(), _whole(16)),
    "int": (pa.int32(), _whole(32)),
    "bigint": (pa.int64(), _whole(64)),
    "float": (pa.float32(), [*_FLOATS, *_SPECIAL]),
    "double": (pa.float64(), [*_FLOATS, *_SPECIAL, 1e300, -1e300, 5e-324]),
    "decimal(10,2)": (
        pa.decimal128(10, 2),
        _decimals("0", "1", "-1", "0.05", "-0.05", "10.50", "2.50", "99999999.99", "-99999999.99", "100", "7.25"),
    ),
    "decimal(38,10)": (
        pa.decimal128(38, 10),
        _decimals("0", "1", "-1", "0.0000000001", "-2.5", "1234567890123456789012345678", "99.99"),
    ),
    "string": (pa.string(), _TEXTS),
    "binary": (pa.binary(), [None, b"", b"abc", b"\xff\x00", b"ABC ", b"12"]),
    "date": (pa.date32(), _DAYS),
    "timestamp": (pa.timestamp("us", "UTC"), [each and each.replace(tzinfo=dt.timezone.utc) for each in _TIMES]),
    "timestamp_ntz": (pa.timestamp("us"), _TIMES),
    "day_interval": (
        pa.duration("us"),
        [None, 0, 1, -1, _SECOND, -90 * _SECOND, 25 * 3600 * _SECOND + 500_000, -3 * _DAY - 1, 400 * _DAY],
    ),
    "array<int>": (_list_of(pa.int32()), [None, [], [1], [1, 2, None], [3, 1, 2, 3], [None], [5, -6, 0]]),
    "array<bigint>": (_list_of(pa.int64()), [None, [], [1], [2**63 - 1, None, -1], [3, 1, 3], [None, None]]),
    "array<string>": (_list_of(pa.string()), [None, [], ["a"], ["b", None, "a"], ["a", "a", "ß"], [""]]),
    "array<double>": (
        _list_of(pa.float64()),
        [None, [], [1.5], [math.nan, None, -0.0, 0.0], [math.inf, 2.5, -1.0]],
    ),
    "array<date>": (_list_of(pa.date32()), [None, [], [_DAYS[1]], [_DAYS[3], None, _DAYS[2]], [_DAYS[9], _DAYS[3]]]),
    "array<array<int>>": (
        _list_of(_list_of(pa.int32())),
        [None, [], [[1]], [[1, 2, None], [], None], [[3], [3], [-1, 2]]],
    ),
    "array<struct<a:int,b:string>>": (_list_of(_PAIR), [None, [], [_PAIRS[1]], [_PAIRS[3], None, _PAIRS[1]], _PAIRS]),
    "map<string,int>": (
        pa.map_(pa.string(), pa.int32()),
        [None, [], [("a", 1)], [("k", 1), ("j", None)], [("b", 2), ("a", 1)]],
    ),
    "map<string,string>": (
        pa.map_(pa.string(), pa.string()),
        [None, [], [("a", "b")], [("k", ""), ("", None)], [("b", "ß"), ("a", "1")]],
    ),
    "map<int,string>": (pa.map_(pa.int32(), pa.string()), [None, [], [(1, "a")], [(-6, ""), (2, None)], [(3, "b")]]),
    "struct<a:int,b:string>": (_PAIR, _PAIRS),
}
DECIMALS: Final = ("decimal(10,2)", "decimal(38,10)")
NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", *DECIMALS)
SCALARS: Final = (*NUMBERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "day_interval")
_ELEMENTS = [each for each in SCALARS if each not in (*DECIMALS, "day_interval")]
RESULTS: Final = (  # kinds of answers
    *(kind for kind in KINDS if kind not in DECIMALS),
    *(f"array<{each}>" for each in _ELEMENTS if f"array<{each}>" not in KINDS),
    *("array<array<string>>", "map<int,int>", "map<string,double>", "map<string,array<string>>"),
)


def column(side: str, kind: str) -> str:
    """The name of the column that has values of a kind on a side."""
    return f"{side}{list(KINDS).index(kind)}"


def places() -> dict[str, list[int]]:
    """For each side the number of the value in each row."""
    pairs = [(i, j) for i in range(ROWS[0]) for j in range(ROWS[1])]
    return {
        "a": [i for i, _ in pairs],
        "b": [j for _, j in pairs],
        "c": [i * 7 + j * 5 + i * j % 11 for i, j in pairs],
        "d": [i * 3 + j * 11 + i * j % 7 for i, j in pairs],
    }


def table() -> pa.Table:
    """A column for each side and kind, and the number of the row, `n`."""
    rows = _table(places())
    for kind in SCALARS:
        rows = rows.append_column(column(UNIQUE, kind), _unique(kind, rows.num_rows))
    return rows


def few() -> pa.Table:
    """The same columns with each value once, for what depends on one of them."""
    return _table({side: list(range(ROWS[0])) for side in SIDES})


def _table(taken: dict[str, list[int]]) -> pa.Table:
    columns = {"n": pa.array(range(len(taken[SIDES[0]])), pa.int32())}
    for kind, (arrow, values) in KINDS.items():
        for side, places_of_values in taken.items():
            columns[column(side, kind)] = pa.array([values[at % len(values)] for at in places_of_values], arrow)
    return pa.table(columns)


def empty_of_values(rows: pa.Table) -> pa.Table:
    """The same columns, with nulls only but for the number of the row."""
    nulls = [rows.column(0), *(pa.nulls(rows.num_rows, field.type) for field in rows.schema if field.name != "n")]
    return pa.table(nulls, schema=rows.schema)


def _unique(kind: str, size: int) -> pa.Array:
    """Values of which each is there once, in another order than the rows; every thirteenth is null."""
    numbers = [None if at % 13 == 0 else at * 389 % size for at in range(size)]
    arrow = KINDS[kind][0]
    if kind in ("boolean", "tinyint", "binary"):  # too few of them, or no order that Arrow makes of numbers
        return pa.nulls(size, arrow)
    if kind == "string":
        return pa.array([None if each is None else f"x{each:04}" for each in numbers], arrow)
    if kind in DECIMALS:
        return pa.array([None if each is None else Decimal(each) for each in numbers], arrow)
    if kind in ("date", "timestamp", "timestamp_ntz", "day_interval"):
        return pa.array(numbers, pa.int32() if kind == "date" else pa.int64()).cast(arrow)
    return pa.array(numbers, arrow)
