"""How a run chooses cases by its budgets and divides them among workers (`testrun/`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testrun.budget import Budgets, shares_of
from testrun.measured import Measured, Timed
from testrun.schedule import lanes, next_unit, unit_of

TESTS = Path(__file__).parents[1]
SECONDS = st.floats(0.01, 20)


def shares(budget: float, **tests: tuple[int, float]) -> dict[str, int]:
    """Of tests, each with a number of cases of so many seconds."""
    return dict(shares_of({name: Timed(seconds, "unit", count) for name, (count, seconds) in tests.items()}, budget))


def test_short_cases_all_run_before_the_second_of_a_long_test() -> None:
    assert shares(18, short=(500, 0.01), long=(10, 10.0)) == {"short": 500, "long": 1}
    assert shares(26, short=(500, 0.01), long=(10, 10.0)) == {"short": 500, "long": 2}


def test_tests_of_one_length_have_the_same_share() -> None:
    assert shares(8, one=(10, 1.0), other=(20, 1.0)) == {"one": 4, "other": 4}


@given(st.lists(st.tuples(st.integers(1, 9), SECONDS), min_size=1, max_size=9), SECONDS)
def test_each_test_keeps_a_case_and_the_rest_fits(tests: list[tuple[int, float]], budget: float) -> None:
    of = {f"t{at}": test for at, test in enumerate(tests)}
    kept = shares(budget, **of)
    assert kept.keys() == of.keys()
    firsts = sum(seconds for _, seconds in tests)
    assert sum(kept[name] * seconds for name, (_, seconds) in of.items()) <= max(budget, firsts) + 1e-6
    assert shares(10_000, **of) == {name: count for name, (count, _) in of.items()}


def test_the_same_cases_run_whatever_else_is_collected() -> None:
    measured = Measured({f"sql/test_a.py::{name}": Timed(1.0, "unit", 9) for name in ("listed", "other")})
    budgets = Budgets({"sql": 6})
    listed, other, unlisted = (
        [f"tests/sql/test_a.py::{name}[{at}]" for at in range(9)] for name in ("listed", "other", "unlisted")
    )
    alone = budgets.choose(listed, measured)
    assert len(alone) == 3
    assert budgets.choose([*other, *listed, *unlisted], measured) >= alone | {*unlisted}
    assert budgets.choose(reversed(listed), measured) == alone


def test_short_tests_are_paid_first() -> None:
    """They are listed together, by file."""
    listed = {"sql/test_a.py::one": Timed(1.0, "unit", 9)}
    short = {"sql/test_a.py": Timed(0.01, "unit", 200), "table/test_b.py": Timed(1.0, "unit", 9)}
    cases = [f"tests/sql/test_a.py::one[{at}]" for at in range(9)]
    assert len(Budgets({"sql": 6, "table": 1}).choose(cases, Measured(listed, short))) == 4


def test_a_run_may_leave_out_long_tests() -> None:
    measured = Measured({"sql/test_a.py::one": Timed(3.0, "unit", 1)})
    assert Budgets({"sql": 60}, longest=2).choose(["tests/sql/test_a.py::one"], measured) == set()
    assert len(Budgets({"sql": 60}, longest=4).choose(["tests/sql/test_a.py::one"], measured)) == 1


def test_a_suite_is_the_innermost_folder_with_a_budget() -> None:
    budgets = Budgets({"table": 1, "table/write": 1})
    assert budgets.suite("tests/table/write/test_a.py::test_b[c]") == "table/write"
    assert budgets.suite("tests/table/merge/test_a.py::test_b") == "table"
    with pytest.raises(ValueError, match=r"no budget for a folder of tests/sql/test_a\.py"):
        budgets.suite("tests/sql/test_a.py::test_b")


@pytest.mark.parametrize("name", ["commit", "quick"])
def test_every_folder_has_a_budget(name: str) -> None:
    budgets = Budgets.load(name)
    for file in TESTS.rglob("test_*.py"):
        assert budgets.suite(f"tests/{file.relative_to(TESTS)}::test")
    assert all((TESTS / suite).is_dir() for suite in budgets.seconds)


def test_measured_tests_are_there() -> None:
    assert all((TESTS / test.partition("::")[0]).is_file() for test in [*Measured.load().tests, *Measured.load().short])


def test_times_of_a_run_replace_those_before() -> None:
    before = Measured(
        {"a.py::one": Timed(5, "unit", 1), "a.py::two": Timed(6, "unit", 1), "b.py::old": Timed(7, "unit", 1)}
    )
    run = [(f"tests/a.py::one[{at}]", "spark", seconds) for at, seconds in enumerate([1.0, 2.0, 9.0])]
    assert before.with_run(run, {"a.py::one": 4}, ["a.py"]).tests == {
        "a.py::one": Timed(4.0, "spark", 4),
        "a.py::two": Timed(6, "unit", 1),
    }


def test_short_tests_are_listed_by_file(tmp_path: Path) -> None:
    before = Measured({"a.py::one": Timed(5, "unit", 1)}, {"b.py": Timed(0.02, "unit", 7), "c.py": Timed(1, "unit", 1)})
    run = [("tests/a.py::one", "spark", 0.01), ("tests/a.py::two[a]", "unit", 0.03), ("tests/a.py::three", "unit", 2.0)]
    after = before.with_run(run, {"a.py::one": 1, "a.py::two": 1, "a.py::three": 1}, ["a.py", "b.py"])
    assert after.tests == {"a.py::two": Timed(0.03, "unit", 1), "a.py::three": Timed(2.0, "unit", 1)}
    assert after.short == {"a.py": Timed(0.01, "unit", 1), "b.py": Timed(0.02, "unit", 7)}
    after.save(tmp_path / "measured")
    assert Measured.load(tmp_path / "measured") == after
    assert after.seconds("tests/a.py::one") == 0.01
    assert after.seconds("tests/a.py::two[b]") == 0.03


def test_lanes_stay_with_their_worker_and_the_longest_is_first() -> None:
    left = {"a": 10.0, "b": 40.0, "c": 35.0, "d": 20.0}
    lane_of = {"c": "spark", "d": "spark"}
    assert next_unit(left, lane_of, {}, "one") == "c"
    assert next_unit(left, lane_of, {"spark": "one"}, "other") == "b"
    assert next_unit({"d": 20.0}, lane_of, {"spark": "one"}, "other") is None


def test_units_are_files_and_the_folders_of_real_engines() -> None:
    assert unit_of("tests/peers/test_a.py::test_b[c]") == "peers"
    assert unit_of("tests/table/write/test_a.py::test_b") == "table/write/test_a.py"
    measured = Measured(
        {"writer/test_a.py::test_b": Timed(1, "spark", 1), "peers/test_a.py::test_b": Timed(1, "spark", 1)}
    )
    found = lanes(["tests/writer/test_a.py::test_b[c]", "tests/peers/test_a.py::test_b"], measured)
    assert found == {"writer/test_a.py": "spark"}
