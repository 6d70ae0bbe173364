"""Each golden scenario of HoodieStreamer, replayed: rows, commits, checkpoints and exits are Hudi's.

Where skep does better by default, the scenario is listed with its reason, and equals Hudi's by the options beside it.
A failed round of skep leaves no instant, so that there is nothing to roll back: rollbacks are not compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from replays import GOLDEN, Outcome, Replay, scenarios

BETTER: dict[str, tuple[str, tuple[str, ...]]] = {
    "json_old_file": (
        "a file that arrives with an older or equal time is read",
        ("--hoodie-conf", "skep.stream.files.remembered=0"),
    ),
    "source_limit": (
        "a file as large as the source limit is read alone",
        ("--hoodie-conf", "skep.stream.files.oversized=false"),
    ),
}
PAGE = Path(__file__).parents[2] / "docs" / "stream.md"


def compared(outcome: Outcome) -> dict[str, Any]:
    def order(row: dict[str, Any]) -> list[str]:
        return sorted(f"{key}={value}" for key, value in row.items())

    return {
        "exit": outcome.exit,
        "actions": [action for action in outcome.actions if action != "rollback"],
        "new": [each for each in outcome.new if each["action"] != "rollback"],
        "rows": sorted(outcome.rows or [], key=order),
    }


def wanted(replay: Replay, number: int, expect: dict[str, Any]) -> dict[str, Any]:
    return compared(Outcome(expect["exit"], None, expect["actions"], expect["new"], replay.expected_rows(number)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", scenarios())
def test_a_scenario_ends_as_with_hudi(name: str, tmp_path: Path) -> None:
    replay = Replay(name, tmp_path)
    _, flags = BETTER.get(name, ("", ()))
    for number, (round, outcome) in enumerate(replay.run(flags), 1):
        assert compared(outcome) == wanted(replay, number, round["expect"]), (number, outcome.error)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", BETTER)
def test_what_is_better_by_default_differs(name: str, tmp_path: Path) -> None:
    """An entry without a difference would hide one."""
    replay = Replay(name, tmp_path)
    found = [
        (compared(outcome), wanted(replay, at, round["expect"])) for at, (round, outcome) in enumerate(replay.run(), 1)
    ]
    assert any(ours != theirs for ours, theirs in found)
    assert all(ours["exit"] == theirs["exit"] and len(ours["rows"]) >= len(theirs["rows"]) for ours, theirs in found)


def test_all_scenarios_are_there() -> None:
    assert len(scenarios()) == len([path for path in GOLDEN.iterdir() if path.is_dir()]) == 17
    assert all(reason in PAGE.read_text(encoding="utf-8") for reason, _ in BETTER.values())
