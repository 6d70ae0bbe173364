"""Values at which engines may part, by the kind of a column, and a table that has each of one with each of another."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

SIDES: Final = ("a", "b", "c")
ROWS: Final = (29, 27)  # different steps for two sides: every value of one meets every value of the other

_INTS = [None, 0, 1, -1, 2, 3, 5, -6, 7, 10, 100]
_FLOATS = [None, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1.005, 100.0, 123456789.125, 1e10]
_SPECIAL = [math.nan, math.inf, -math.inf]
_TEXTS = [
    *(None, "", "a", "Abc", "ABC", " abc ", "ß", "naïve", "日本語", "🐝x", "İ", "12", "-3.5", "1e3", " 7 ", "true"),
    *("2024-02-29", "2024-02-29 10:11:12.5", "b%c", "a_b", "a,b,c", "\n", "NaN", "abcabc", '{"a": 1, "b": [1, 2]}'),
    "http://user@ex.org:80/p/q.html?k=v&x=y#r",
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


def _whole(bits: int) -> list[int | None]:
    return [*_INTS, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


def _decimals(*texts: str) -> list[Decimal | None]:
    return [None, *map(Decimal, texts)]


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


KINDS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
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
    "array<int>": (_list_of(pa.int32()), [None, [], [1], [1, 2, None], [3, 1, 2, 3], [None], [5, -6, 0]]),
    "array<string>": (_list_of(pa.string()), [None, [], ["a"], ["b", None, "a"], ["a", "a", "ß"], [""]]),
    "array<double>": (
        _list_of(pa.float64()),
        [None, [], [1.5], [math.nan, None, -0.0, 0.0], [math.inf, 2.5, -1.0]],
    ),
    "map<string,int>": (
        pa.map_(pa.string(), pa.int32()),
        [None, [], [("a", 1)], [("k", 1), ("j", None)], [("b", 2), ("a", 1)]],
    ),
}


def column(side: int, kind: str) -> str:
    """The name of the column that has values of a kind on a side: the first, the second or a later argument."""
    return f"{SIDES[min(side, 2)]}{list(KINDS).index(kind)}"


def table() -> pa.Table:
    """A column for each side and kind, and the number of the row, `n`."""
    places = [(i, j) for i in range(ROWS[0]) for j in range(ROWS[1])]
    columns = {"n": pa.array(range(len(places)), pa.int32())}
    for kind, (arrow, values) in KINDS.items():
        for side in range(len(SIDES)):
            taken = (i if side == 0 else j if side == 1 else i * 7 + j * 5 + i * j % 11 for i, j in places)
            columns[column(side, kind)] = pa.array([values[at % len(values)] for at in taken], arrow)
    return pa.table(columns)
