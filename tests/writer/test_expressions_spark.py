"""Expressions over columns have the values that Spark has for them, wherever these count as sure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from skep_table.expressions import expression_of
from skep_table.schema.types import DataType, DateType, IntType, LongType, StringType, TimestampType

DAY = dt.timedelta(days=1)
EPOCH = dt.date(1970, 1, 1)
LETTERS = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
TEXTS = [
    *LETTERS, None, "", " ", "  a b  ", "\ta\t", "\u00a0a\u00a0", "xxaxx", "yxayx", "straße", "ΑΣ", "İx", "ﬁ",
    "e\u0301", "\U0001f381\U0001d11e end", "\U00010428", "abc",
]  # fmt: skip
DAYS = [
    None, *(EPOCH + DAY * n for n in (0, -1, 1, 58, 59, 365, 19722, -25567, -141428, -141427, -719162, 2932096)),
]  # fmt: skip
SECONDS = [
    None, 0, -1, 1, 59, -86400, -86401, 86399, 1704067199, 1704067200, -2208988800, -12219292801, -12219292800,
    -62135596800, -62135596801, 253402300799, 253402300800,
]  # fmt: skip
MICROS = [None if each is None else each * 10**6 + more for each in SECONDS[:-3] for more in (0, 1, 999_999, -1)]
MOMENTS = pa.array([-62135596800 * 10**6 if each is None else each for each in MICROS], pa.timestamp("us", "UTC"))
FORMATS = ("yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyyMMdd", "yyyy/MM/dd", "yyyy.MM.dd")
TIMES = ("yyyy-MM-dd HH", "yyyy_MM_dd HH:mm", "yyyy-MM-dd HH:mm:ss")
MOMENT = TimestampType("us", utc=True)


def cases() -> Iterator[tuple[str, str, dict[str, str], DataType]]:
    for name in ("upper", "lower", "length"):
        yield f"{name}(v)", name, {}, StringType()
    for name, side in (("trim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING")):
        yield f"{name}(v)", name, {}, StringType()
        yield f"trim({side} 'xy' FROM v)", name, {"trimString": "xy"}, StringType()
    for start, length in ((0, 2), (1, 1), (2, 3), (3, 0), (9, 9)):
        yield f"substring(v, {start}, {length})", "substring", {"pos": str(start), "len": str(length)}, StringType()
    for form in (*FORMATS, *TIMES):
        for kind in (LongType(), IntType()):
            yield f"from_unixtime(v, '{form}')", "from_unixtime", {"format": form}, kind
        yield f"date_format(v, '{form}')", "date_format", {"format": form}, MOMENT
    yield "from_unixtime(v)", "from_unixtime", {}, LongType()
    for form in FORMATS:
        yield f"date_format(v, '{form}')", "date_format", {"format": form}, DateType()
    for kind in (DateType(), MOMENT):
        for name in ("year", "month", "day"):
            yield f"{name}(v)", name, {}, kind
        yield "to_date(v)", "to_date", {}, kind
    yield "hour(v)", "hour", {}, MOMENT
    for days in ("0", "1", "-31", "400"):
        yield f"date_add(v, {days})", "date_add", {"days": days}, DateType()
        yield f"date_sub(v, {days})", "date_sub", {"days": days}, DateType()


VALUES: dict[type, Any] = {
    StringType: pa.array(TEXTS, pa.string()),
    LongType: pa.array(SECONDS, pa.int64()),
    IntType: pa.array([each if each is None or abs(each) < 2**31 else 7 for each in SECONDS], pa.int32()),
    DateType: pa.array(DAYS, pa.date32()),
    TimestampType: MOMENTS,
}
READ = {TimestampType: "timestamp_micros(v)", DateType: "date_add(DATE'1970-01-01', v)"}
STORED = {TimestampType: pa.int64(), DateType: pa.int32()}


@pytest.fixture(scope="module")
def answers(spark: Any) -> Any:
    """Spark's values of an expression over values of a type, in their order, with the session's zone being UTC."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frames = {}
    for kind, values in VALUES.items():
        plain = values.cast(STORED.get(kind, values.type)).to_pylist()
        name = "string" if kind is StringType else "int" if kind in (IntType, DateType) else "long"
        frame = spark.createDataFrame(list(enumerate(plain)), f"at int, v {name}")
        frames[kind] = frame.selectExpr("at", f"{READ.get(kind, 'v')} AS v").coalesce(1).cache()

    def of(text: str, kind: type) -> list[Any]:
        # as text, so that Python's own types have no part in it
        rows = frames[kind].selectExpr("at", f"CAST({text} AS string) AS found").orderBy("at").collect()
        return [row.found for row in rows]

    yield of
    for frame in frames.values():
        frame.unpersist()
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize(("text", "function", "options", "kind"), list(cases()))
def test_values_are_those_of_spark(
    answers: Any, text: str, function: str, options: dict[str, str], kind: DataType
) -> None:
    expression, values = expression_of(function, options, kind), VALUES[type(kind)]
    ours, theirs = expression.of(values).cast(pa.string()).to_pylist(), answers(text, type(kind))
    assert len(ours) == len(theirs)
    sure = [expression.is_sure(values.slice(at, 1)) for at in range(len(values))]
    wrong = [
        (values[at].as_py(), mine, found)
        for at, (mine, found) in enumerate(zip(ours, theirs, strict=True))
        if mine != found and sure[at]
    ]
    assert not wrong, f"{text}: (value, skep's, Spark's) {wrong[:20]}"
    assert sum(sure) > 0.4 * len(sure) or kind == StringType()
