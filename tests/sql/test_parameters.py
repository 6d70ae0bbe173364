"""Parameters of statements: values, never text, in both engines as in Spark's own `spark.sql(…, args=…)`."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from skep.lake import Lake
from skep_format.errors import InputError, SkepError

NASTY = [
    "",
    "it's",
    '"; DROP TABLE t; --',
    "'; DROP TABLE t; --",
    "\\'; DROP TABLE t; --",
    "a\\",
    "\\u0041 \\101 \\n \\%",
    "100% _x",
    "${env:HOME} ${spark.app.name}",
    ":id ? /* -- */ `x`",
    "line\nbreak\ttab\0nul",
    "ä漢😀",
]
VALUES = [
    None,
    True,
    False,
    0,
    -5,
    2**31 - 1,
    2**31,
    -(2**63),
    1.5,
    -2.25e300,
    math.inf,
    Decimal("1.50"),
    Decimal("-0.001"),
    b"\x00'A",
    dt.date(2026, 1, 2),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6789, dt.timezone.utc),
    dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
]


@pytest.mark.spark
def test_a_value_is_what_sparks_own_parameters_make_of_it(spark_lake: Lake, in_utc: Any) -> None:
    from skep_writer import collect_answer

    in_sail = [value for value in VALUES if not isinstance(value, (bytes, dt.datetime)) and value != math.inf]
    for engine, values in [("spark", [*VALUES, *NASTY]), ("sail", [*in_sail, *NASTY[:-2], NASTY[-1]])]:
        text = "SELECT " + ", ".join(f":v{at} AS c{at}" for at in range(len(values)))
        args = {f"v{at}": value for at, value in enumerate(values)}
        expected = collect_answer(in_utc.sql(text, args=args))
        found = spark_lake.sql(text, args, engine=engine).to_arrow()
        assert found.to_pylist() == expected.to_pylist(), engine
        assert found.schema.types == expected.schema.types, engine
        assert spark_lake.sql(_by_position(text), values, engine=engine).to_arrow() == found, engine


def _by_position(text: str) -> str:
    return re.sub(r":v\d+", "?", text)


@pytest.mark.spark
def test_values_that_spark_takes_otherwise_or_not(spark_lake: Lake) -> None:
    import numpy as np
    import pandas as pd

    some, naive = uuid.uuid4(), dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)
    args = {"a": some, "b": np.int64(7), "c": naive, "d": pd.Timestamp(naive), "e": pd.NaT, "f": dt.date(45, 1, 2)}
    found = spark_lake.sql("SELECT :a a, :b b, :c c, :d d, :e e, :f f", args).to_arrow()
    assert found.to_pylist() == [{**args, "a": str(some), "d": naive, "e": None}]
    assert found.schema.field("c").type == pa.timestamp("us")
    assert math.isnan(spark_lake.sql("SELECT ? x", [math.nan]).to_arrow()["x"][0].as_py())


def test_a_constant_stays_one_whatever_is_around_it(lake: Lake) -> None:
    assert lake.sql("SELECT 3 -:n a, 2*:n b", n=-5).to_arrow().to_pylist() == [{"a": 8, "b": -10}]
    assert lake.sql("SELECT ?::string a", [5]).to_arrow().to_pylist() == [{"a": "5"}]


def test_statements_of_all_kinds(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, note STRING, day DATE) TBLPROPERTIES (primaryKey = 'id') PARTITIONED BY (day)")
    day = dt.date(2026, 1, 1)
    for at, note in enumerate(NASTY):
        note = note.replace("\0", "")  # Sail takes none in a text
        made = lake.sql("INSERT INTO t VALUES (:id, :note, :day)", id=at, note=note, day=day)
    for at, note in enumerate(NASTY):
        note = note.replace("\0", "")
        found = lake.sql("SELECT id FROM t WHERE note = :note AND day = :day", note=note, day=day).to_arrow()
        assert found.to_pylist() == [{"id": at}]
    query = lake.sql("SELECT id FROM t WHERE day = :day", day=dt.date(2026, 1, 2))
    assert "0 of 1 file slices" in query.explain()  # a constant leaves out files
    lake.sql("UPDATE t SET note = :new WHERE id = :id", new="a':b", id=1)
    lake.sql("DELETE FROM t WHERE id IN (?, ?)", [2, 3])
    lake.sql("MERGE INTO t USING (SELECT :id AS id, :note AS note, :day AS day) s ON t.id = s.id "
             "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", id=100, note="?", day=day)  # fmt: skip
    rest = {row["id"]: row["note"] for row in lake.sql("SELECT id, note FROM t").to_arrow().to_pylist()}
    assert rest == {0: "", 1: "a':b", 100: "?"} | {
        at: note.replace("\0", "") for at, note in enumerate(NASTY) if at > 3
    }
    before = lake.sql("SELECT count(*) n FROM t TIMESTAMP AS OF :at", at=made.writes[0])  # type: ignore[union-attr]
    assert before.to_arrow().to_pylist() == [{"n": len(NASTY)}]
    assert lake.sql("SELECT id FROM t ORDER BY id LIMIT :n", n=1).to_arrow().to_pylist() == [{"id": 0}]
    shown = lake.sql("CALL show_commits(table => :table, limit => :n)", table="t", n=1).to_arrow()
    assert shown.num_rows == 1


@pytest.mark.parametrize(
    ("text", "args", "named", "words"),
    [
        ("SELECT :id", {"di": 1}, {}, "there is no value for :id; given: di"),
        ("SELECT :id", None, {"id": 1, "other": 2}, "the statement has no :other"),
        ("SELECT ?, ?", [1], {}, r"there is no value for \? number 2; given: 1"),
        ("SELECT ?", [1, 2], {}, r"the statement has 1 times \?"),
        ("SELECT :id", [1], {}, r"values are given for \? only: ':id' has none"),
        ("SELECT ?", None, {"id": 1}, "values are given by name"),
        ("SELECT ':id', `:id` FROM t -- :id", None, {"id": 1}, "the statement has no :id"),
        ("SELECT :id", None, {"id": [1]}, r"parameter id: \[1\] is no constant"),
        ("SELECT :id", None, {"id": "\ud800"}, "no text of Unicode"),
        ("SELECT :id", None, {"id": Decimal("NaN")}, "is no constant"),
        ("SELECT :id", None, {"id": 2**63}, "is no constant"),
        ("SELECT ?", "1", {}, "args are a mapping"),
        ("SET a.b = :id", None, {"id": 1}, "SET takes no parameters"),
    ],
)
def test_what_does_not_fit_is_refused(lake: Lake, text: str, args: Any, named: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        lake.sql(text, args, **named)


def test_a_marker_without_any_value_is_an_error(lake: Lake) -> None:
    for text in ("SELECT :id", "SELECT ?"):
        with pytest.raises(SkepError):
            lake.sql(text, engine="sail").to_arrow()
