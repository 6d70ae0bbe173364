"""Spark's documented examples of its functions, all of them: a lake answers each as Spark does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from skep.engines import DuckEngine, LeftToSpark
from skep.lake import Lake
from skep_sql.parse import parse
from skep_sql.statements import Query
from skep_sql.written import spark_text
from skep_writer import collect_arrow

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]


@pytest.fixture(scope="module")
def examples(spark: Any) -> list[str]:
    """Those of `DESCRIBE FUNCTION EXTENDED` of every function of this release."""
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    names = registry.listFunction()
    found: set[str] = set()
    for at in range(names.size()):
        text = registry.lookupFunction(names.apply(at)).get().getExamples()
        found |= {each.strip() for each in re.findall(r"^\s*> (.*?);$", text, re.MULTILINE | re.DOTALL)}
    assert len(found) > 800
    return sorted(each for each in found if not each.startswith("SET "))


def test_spark_gets_them_as_they_are_written(examples: list[str]) -> None:
    for text in examples:
        assert spark_text(query_of(text)) == text


def query_of(text: str) -> exp.Query:
    statement = parse(text)
    assert isinstance(statement, Query), text
    return statement.tree


def by_duckdb(text: str) -> pa.Table | None:
    """None where the query is left to Spark."""
    try:
        return DuckEngine().rows(query_of(text), {})
    except LeftToSpark:
        return None


def test_duckdb_answers_some_alike(examples: list[str], spark: Any) -> None:
    ours = {text: found for text in examples if (found := by_duckdb(text)) is not None}
    assert len(ours) > 20
    for text, found in ours.items():
        wanted = collect_arrow(spark.sql(text))
        assert found.schema.names == wanted.schema.names, text
        assert found.schema.types == wanted.schema.types, text
        assert found.to_pylist() == wanted.to_pylist(), text


class Answers:
    """What a session answers, or the class of its error."""

    def __init__(self, frame: Callable[[str], Any]) -> None:
        self._frame = frame

    def __call__(self, text: str) -> object:
        try:
            found = collect_arrow(self._frame(text))
        except Exception:
            return "error"
        return found.schema.names, found.schema.types, repr(found.to_pylist())


@pytest.mark.slow  # each example twice by Spark; those of a commit compare the texts that it gets
def test_a_lake_answers_them_all_as_spark(spark_lake: Lake, examples: list[str], spark: Any) -> None:
    spark_lake.database = "default"
    ours = Answers(lambda text: spark_lake.sql(text).to_spark())
    theirs = Answers(spark.sql)
    for text in examples:
        found, wanted = ours(text), theirs(text)
        if found != wanted and found[:2] == wanted[:2]:  # the time, or chance
            assert theirs(text) != wanted, text
        else:
            assert found == wanted, text
