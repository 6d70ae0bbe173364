"""The comparison of engines: what counts as Spark's answer, and what an allow-list lets through."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.engine_choice.allow_list import allow_list, features, let_through
from benchmarks.engine_choice.answers import Answer
from benchmarks.engine_choice.compare import Judged, Verdict, judged

UPPER, CAST, SUM = "select upper(a) from t", "select cast(x as int) i from t", "select sum(x) s from t"
COLUMNS = {"a": pa.string(), "x": pa.float64()}


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


def test_functions_are_known_by_name_and_kinds_of_arguments() -> None:
    text = "select upper(a), sum(x + 1), cast('1' as int) from t where a like 'b%'"
    assert features(text, COLUMNS, by_types=False) == {"upper", "sum", "add", "cast to int32", "like"}
    assert features(text, COLUMNS, by_types=True) == {
        *("upper(string)", "sum(add)", "add(double, int32)", "cast to int32(string)", "like(string, string)"),
    }


def test_a_wrong_example_blocks_the_function_that_it_documents() -> None:
    nested = "select upper(cast(x as string)) from t"
    judgements = [
        Judged(UPPER, Verdict.EQUAL),
        Judged(CAST, Verdict.EQUAL),
        Judged(SUM, Verdict.REFUSED),
        Judged(nested, Verdict.WRONG),
    ]
    found = {each.query: features(each.query, COLUMNS, by_types=False) for each in judgements}
    made = allow_list(judgements, found, {nested: ["upper"]})
    assert (made.allowed, made.wrong) == ({"cast to int32"}, {"upper"})
    assert [each.query for each in let_through(judgements, found, made)] == [CAST]
