"""The demo as a newcomer runs it: from an empty folder to a checked answer, and once more."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pytest
from rich.console import Console

from skep.demo import KEY, Demo, differences, load_flights, prepare, timetable


@pytest.mark.engine("spark")
@pytest.mark.metastore
@pytest.mark.spark
def test_the_demo_runs_and_runs_again(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[str, float]:
        start = time.monotonic()
        command = [Path(sys.executable).with_name("skep"), "demo", "--folder", tmp_path / "demo", *words]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout, time.monotonic() - start

    first, seconds = run()
    assert "Every number is what pandas computes from the source." in first
    assert "336,776" in first
    assert "add 12 partitions" in first
    assert "+ column air_time = int" in first
    assert "What to try next" in first
    print(f"the demo took {seconds:.0f} s")
    second, _ = run()
    assert "timetable of the year: 1 of 1 were there" in second
    assert re.search(r"January day by day: (\d+) of \1 were there", second)
    assert "Every number is what pandas computes from the source." in second


def test_the_key_is_unique() -> None:
    flights = load_flights()
    assert flights.num_rows == 336_776
    assert flights.group_by(list(KEY)).aggregate([]).num_rows == 336_776
    assert timetable(flights).num_rows == 336_776
    assert timetable(flights)["dep_time"].null_count == 336_776


def test_each_day_of_january_is_a_commit(tmp_path: Path) -> None:
    flights = load_flights()
    steps = prepare(flights, tmp_path)
    days = steps["January day by day"]
    assert sum(step.operation == "upsert" for step in days) == 31
    assert len({step.name for phase in steps.values() for step in phase}) == sum(map(len, steps.values()))
    assert len(steps["February to December"]) == 11


def test_a_wrong_answer_is_noticed() -> None:
    flights = load_flights()
    january = flights.filter(pc.equal(flights["month"], 1))
    stays = january.filter(pc.is_valid(january["dep_time"])).to_pandas()
    right = pd.DataFrame(
        {
            "month": [1],
            "flights": [len(stays)],
            "flown": [len(stays)],
            "delay": [round(stays["arr_delay"].mean(), 3)],
            "minutes": [stays["air_time"].sum()],
        }
    )
    assert differences(right, january) == []
    assert differences(right.assign(flown=right["flown"] - 1), january) == [
        f"  month 1, flown: {len(stays) - 1} in the table, {len(stays)} in the source"
    ]
    assert len(differences(right.iloc[:0], january)) == 4


def test_afresh_deletes_only_what_is_the_demos(tmp_path: Path) -> None:
    for name in ("warehouse", "source", "mine"):
        (tmp_path / name).mkdir()
    Demo(tmp_path, Console(file=io.StringIO()))._forget()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
