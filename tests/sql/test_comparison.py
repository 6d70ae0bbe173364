"""The comparison of engines: what counts as Spark's answer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.spark_answers.answers import Answer
from benchmarks.spark_answers.compare import Verdict, judged

UPPER = "select upper(a) from t"


def answer(**columns: object) -> Answer:
    return Answer(pa.table(columns), "", 0.0)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (answer(a=pa.array([1, 2], pa.int32())), Verdict.EQUAL),
        (answer(a=pa.array([2, 1], pa.int32())), Verdict.EQUAL),
        (answer(a=pa.array([1, 2], pa.int64())), Verdict.WRONG),
        (answer(b=pa.array([1, 2], pa.int32())), Verdict.NAMES),
        (answer(a=pa.array([1, 3], pa.int32())), Verdict.WRONG),
        (Answer(None, "unknown function", 0.0), Verdict.REFUSED),
    ],
)
def test_rows_types_and_names_are_compared(found: Answer, verdict: Verdict) -> None:
    wanted = answer(a=pa.array([1, 2], pa.int32()))
    assert judged("select a from t", found, wanted).verdict is verdict


def test_order_counts_where_the_query_has_one() -> None:
    one, other = answer(a=["x", "y"]), answer(a=["y", "x"])
    assert judged("select a from t order by a", one, other).verdict is Verdict.WRONG


def test_sums_of_floats_have_a_verdict_of_their_own() -> None:
    one, other = answer(a=[0.1 + 0.2, float("nan")]), answer(a=[0.3, float("nan")])
    assert judged("select a from t", one, one).verdict is Verdict.EQUAL
    assert judged("select a from t", one, other).verdict is Verdict.DIGITS


def test_an_error_of_spark_is_an_answer_that_none_else_gives() -> None:
    failed, found = Answer(None, "SparkArithmeticException: zero", 0.0), answer(a=[1])
    assert judged(UPPER, found, failed).verdict is Verdict.WRONG
    assert judged(UPPER, failed, failed).verdict is Verdict.BOTH_REFUSE
    assert judged(UPPER, found, found, answer(a=[2])).verdict is Verdict.CHANCE
