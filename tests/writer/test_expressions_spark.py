"""Expressions over columns have the values that Spark has for them, wherever these count as sure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from skep_format.expressions import expression_of
from skep_format.expressions.text_days import days_of_texts
from skep_format.schema.types import BinaryType, DataType, DateType, IntType, LongType, StringType, TimestampType

DAY = dt.timedelta(days=1)
EPOCH = dt.date(1970, 1, 1)
LETTERS = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
DAY_TEXTS = [
    "2024-02-29", "2023-02-29", "2023-02-28 12:00:00", "1582-10-10", "0001-01-01", "9999-12-31T", "0000-12-31",
    "10000-01-01", "+2024-01-01", "-0044-03-15", "2024", "2024-1", "2024-1-2", " 2024-01-02 ", "\t2024-01-02\n",
    "2024-01-02x", "2024-01-02 x", "2024-01-02Tx", "2024-01 x", "2024-13-01", "2024-00-01", "2024-04-31", "20240102",
    "2024/01/02", "24-01-02", "02024-01-02", "2024-01-023", "-", "2024-", "2024-01-", "\u00a02024-01-02", "N/A",
    "2024-01-02\u007f", "\u00002024-01-02", "\u0662024-01-02", "1900-02-29", "2000-02-29", "5881580-07-11",
    "5881580-07-12", "-5877641-06-23", "-5877641-06-22", "+-2024-01-01", "2024--01-01", "99999999-01-01", "epoch",
]  # fmt: skip
TEXTS = [
    *DAY_TEXTS, None, "", " ", "  a b  ", "\ta\t", "\u00a0a\u00a0", "xxaxx", "yxayx", "straße", "ΑΣ", "İx", "ﬁ",
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
FORMATS = (
    "yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyyMMdd", "yyyy/MM/dd", "yyyy.MM.dd", "dd-MM-yyyy", "MM", "ddMM", "MM yyyy",
)  # fmt: skip
TIMES = (
    "yyyy-MM-dd HH", "yyyy_MM_dd HH:mm", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss", "HH:mm", "ss.mm.HH dd yyyy MM",
)  # fmt: skip
MOMENT = TimestampType("us", utc=True)


def cases() -> Iterator[tuple[str, str, dict[str, str], DataType]]:
    for name in ("upper", "lower", "length", "trim"):
        for kind in (StringType(), IntType(), LongType()):
            yield f"{name}(v)", name, {}, kind
    yield "length(v)", "length", {}, BinaryType()
    for pattern, group in (
        ("^([a-z]+)x", 1), ("[^a-z -]+", 0), ("(\\d{4})-(\\d{1,2})", 2), ("\\w+", 0), ("\\s.", 0), ("(x|ax|a)(.*)", 2),
        (".+", 0), ("\\W\\S", 0), ("a*", 0), ("-??.", 0), ("[\\w.-]+", 0),
    ):  # fmt: skip
        for kind in (StringType(), LongType()):
            options = {"pattern": pattern, "idx": str(group)}
            yield f"regexp_extract(v, r'{pattern}', {group})", "regexp_extract", options, kind
    for pattern, text in (("[^a-z]", ""), ("-", "--"), ("(\\d\\d)-", "<>"), ("^.", "/"), ("\\s+", " "), ("a+?", "b")):
        for kind in (StringType(), LongType()):
            options = {"pattern": pattern, "replacement": text}
            yield f"regexp_replace(v, r'{pattern}', '{text}')", "regexp_replace", options, kind
    yield "trim(BOTH '' FROM v)", "trim", {"trimString": ""}, StringType()
    for name, side in (("trim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING")):
        yield f"{name}(v)", name, {}, StringType()
        yield f"{name}(v)", name, {}, LongType()
        yield f"trim({side} 'xy' FROM v)", name, {"trimString": "xy"}, StringType()
    for start, length in (
        *((0, 2), (1, 1), (2, 3), (3, 0), (9, 9), (-1, 1), (-2, 5), (-3, 2), (-9, 2), (-9, 8), (-9, 20), (2, -1)),
        *((-2, -1), (-2147483648, 2147483647), (2147483647, 2147483647), (-2147483648, -2147483648)),
    ):
        for kind in (StringType(), LongType()):
            yield f"substring(v, {start}, {length})", "substring", {"pos": str(start), "len": str(length)}, kind
    for form in (*FORMATS, *TIMES):
        for kind in (LongType(), IntType()):
            yield f'from_unixtime(v, "{form}")', "from_unixtime", {"format": form}, kind
        yield f'date_format(v, "{form}")', "date_format", {"format": form}, MOMENT
    yield "from_unixtime(v)", "from_unixtime", {}, LongType()
    for form in FORMATS:
        yield f"date_format(v, '{form}')", "date_format", {"format": form}, DateType()
    for kind in (DateType(), MOMENT, StringType()):
        for name in ("year", "month", "day"):
            yield f"{name}(v)", name, {}, kind
        yield "to_date(v)", "to_date", {}, kind
    for kind in (DateType(), MOMENT):
        yield "to_date(v, 'yyyyMM')", "to_date", {"format": "yyyyMM"}, kind
        yield "unix_timestamp(v)", "unix_timestamp", {}, kind
        yield "unix_timestamp(v, 'yyyyMM')", "unix_timestamp", {"format": "yyyyMM"}, kind
    yield "hour(v)", "hour", {}, MOMENT
    for days in ("0", "1", "-31", "400"):
        for kind in (DateType(), StringType()):
            yield f"date_add(v, {days})", "date_add", {"days": days}, kind
            yield f"date_sub(v, {days})", "date_sub", {"days": days}, kind


VALUES: dict[str, pa.Array] = {
    "letters": pa.array([*LETTERS, *TEXTS], pa.string()),
    "StringType": pa.array(TEXTS, pa.string()),
    "LongType": pa.array(SECONDS, pa.int64()),
    "IntType": pa.array([each if each is None or abs(each) < 2**31 else 7 for each in SECONDS], pa.int32()),
    "DateType": pa.array(DAYS, pa.date32()),
    "TimestampType": MOMENTS,
    "BinaryType": pa.array([None, b"", b"a", b"\xff\x00\x80", "\U0001f381".encode()], pa.binary()),
}
READ = {"TimestampType": "timestamp_micros(v)", "DateType": "date_add(DATE'1970-01-01', v)"}
STORED = {"TimestampType": pa.int64(), "DateType": pa.int32()}
NAMES = {"letters": "string", "StringType": "string", "IntType": "int", "DateType": "int", "BinaryType": "binary"}
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false"}
DAYS_OF_TEXTS = "datediff(to_date(v), DATE'1970-01-01')"


def values_of(function: str, kind: DataType) -> str:
    """The name in VALUES of the values for a function over a type."""
    is_of_letters = function in ("upper", "lower", "length") and isinstance(kind, StringType)
    return "letters" if is_of_letters else type(kind).__name__


@pytest.fixture(scope="module")
def answers(spark: Any) -> dict[tuple[str, str], list[Any]]:
    """Spark's values of each expression over named values, in their order, with the session's zone being UTC."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    asked = {(values_of(function, kind), text) for text, function, _, kind in cases()} | {("StringType", DAYS_OF_TEXTS)}
    found = {}
    for name, values in VALUES.items():
        plain = values.cast(STORED.get(name, values.type)).to_pylist()
        frame = spark.createDataFrame(list(enumerate(plain)), f"at int, v {NAMES.get(name, 'long')}")
        texts = sorted(text for of, text in asked if of == name)
        # as text, so that Python's own types have no part in it
        columns = [f"CAST({text} AS string) AS found_{number}" for number, text in enumerate(texts)]
        rows = frame.selectExpr("at", f"{READ.get(name, 'v')} AS v").selectExpr("at", *columns).orderBy("at").collect()
        found |= {(name, text): [row[number + 1] for row in rows] for number, text in enumerate(texts)}
    for name, value in before.items():
        spark.conf.set(name, value)
    return found


@pytest.mark.parametrize(("text", "function", "options", "kind"), list(cases()))
def test_values_are_those_of_spark(
    answers: dict[tuple[str, str], list[Any]], text: str, function: str, options: dict[str, str], kind: DataType
) -> None:
    name = values_of(function, kind)
    expression, values = expression_of(function, options, kind), VALUES[name]
    ours, theirs = expression.of(values).cast(pa.string()).to_pylist(), answers[name, text]
    assert len(ours) == len(theirs)
    if expression.result == DateType():  # Spark has a sign before years of five digits
        theirs = [found and found.removeprefix("+") for found in theirs]
    sure = [expression.is_sure(values.slice(at, 1)) for at in range(len(values))]
    wrong = [
        (values.slice(at, 1).to_string(), mine, found)
        for at, (mine, found) in enumerate(zip(ours, theirs, strict=True))
        if mine != found and sure[at]
    ]
    assert not wrong, f"{text}: (value, skep's, Spark's) {wrong[:20]}"
    assert sum(sure) > 0.4 * len(sure) or kind == StringType()


def test_texts_are_the_days_of_spark_sure_or_not(answers: dict[tuple[str, str], list[Any]]) -> None:
    """Filters compare all of them."""
    ours = days_of_texts(VALUES["StringType"]).cast(pa.int32()).cast(pa.string()).to_pylist()
    found = zip(TEXTS, ours, answers["StringType", DAYS_OF_TEXTS], strict=True)
    wrong = [each for each in found if each[1] != each[2]]
    assert not wrong, f"(text, skep's, Spark's) {wrong[:20]}"
    assert len(set(ours)) > 10
