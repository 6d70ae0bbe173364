"""Streams of many tables in one process: at once, one failure stops no other, lines are whole, SIGTERM ends all."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from file_jobs import Job, command, many, row, words

import skep
from skep.flows.many_streams import Turns, run_at_once
from skep_stream.protocols import Batch, Position, StreamContext
from skep_table.table import HudiTable


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_many_tables_each_with_properties_of_its_own(job: Job) -> None:
    job.put("a.json", row("a", 1))
    folder = job.work / "tables"
    folder.mkdir()
    (folder / "shop_one_config.properties").write_text("hoodie.datasource.write.partitionpath.field=city\n")
    (folder / "shop_bad_config.properties").write_text(f"hoodie.streamer.source.dfs.root={job.work}/none\n")
    (job.work / "two.properties").write_text(f"hoodie.streamer.ingestion.targetBasePath={job.work}/elsewhere\n")
    names = "hoodie.streamer.ingestion.tablesToBeIngested=shop.bad,shop.one,two"
    two = f"hoodie.streamer.ingestion.default.two.configFile={job.work}/two.properties"
    more = ("--hoodie-conf", names, "--hoodie-conf", two, "--config-folder", str(folder))
    done = command(job, *more, "--base-path-prefix", f"{job.work}/lake/")
    assert done.returncode == 1
    assert f"error: shop.bad: the source folder {job.work}/none is not there" in done.stderr
    assert sorted(json.loads(line)["table"] for line in done.stdout.splitlines()) == ["shop.one", "two"]
    assert HudiTable.open(job.work / "lake/shop/one").config.partition_fields == ("city",)
    assert HudiTable.open(job.work / "elsewhere").config.name == "default.two"
    assert "many tables need" in command(job, "--config-folder", str(folder)).stderr


def test_a_table_without_its_properties_or_its_source_keeps_no_other_back(job: Job) -> None:
    job.put("a.json", row("a", 1))
    given = many(job, ["lost", "one", "away"], away=f"hoodie.streamer.source.dfs.root={job.work}/away")
    (job.work / "away").mkdir()
    assert command(job, *given).returncode == 0
    (job.work / "tables/default_lost_config.properties").unlink()
    (job.work / "away").rmdir()
    job.put("b.json", row("b", 1), at=1_700_000_001)
    for more in ((), ("--status",)):
        done = command(job, *given, *more)
        assert done.returncode == 1
        assert f"error: lost: {job.work}/tables/default_lost_config.properties is not there" in done.stderr
        assert f"error: away: the source folder {job.work}/away is not there" in done.stderr
        assert [json.loads(line)["table"] for line in done.stdout.splitlines()] == ["one"]


class Meeting:
    """A source whose fetch ends when that of the other table runs, too."""

    def __init__(self, context: StreamContext) -> None:
        self._folder, _, self._name = context.options["own.meeting"].rpartition("/")
        self._other = context.options["own.other"]

    def fetch(self, last: Position, limit: int) -> Batch:
        Path(self._folder, self._name).touch()
        end = time.monotonic() + 60
        while not Path(self._folder, self._other).exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{self._other} is not there")
            time.sleep(0.01)
        return Batch(pa.table({"id": [self._name], "ts": [1]}), self._name)


def meet(job: Job, *more: str) -> None:
    """Two tables whose sources wait for each other."""
    own = {one: f"own.meeting={job.work}/{one}\nown.other={other}" for one, other in (("one", "two"), ("two", "one"))}
    given = words(job, *many(job, own, **own), "--source-class", f"{Path(__file__).stem}:Meeting", *more)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(line)["table"] for line in done.stdout.splitlines()) == ["one", "two"]
    for name in own:
        assert skep.load(f"{job.work}/lake/default/{name}").to_arrow()["id"].to_pylist() == [name]


def test_two_tables_whose_sources_wait_for_each_other_run_at_once(job: Job) -> None:
    meet(job)


@pytest.mark.spark
def test_two_tables_run_at_once_on_one_spark(job: Job) -> None:
    meet(job, "--engine", "spark")


@pytest.mark.parametrize(("given", "message"), [("0", "'0' is no number from 1 on"), ("two", "'two' is no number")])
def test_how_many_at_once_is_a_number(job: Job, given: str, message: str) -> None:
    done = command(job, *many(job, ["one"]), "--tables-at-once", given)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: --tables-at-once: {message}" in done.stderr


def test_of_one_table_it_is_refused(job: Job) -> None:
    assert "--tables-at-once is of many tables" in command(job, "--tables-at-once", "2").stderr


def test_continuous_streams_of_many_tables_go_on_beside_one_that_fails_until_they_are_terminated(job: Job) -> None:
    """There are more of them than have a round at once, and none pauses."""
    names = [f"t{number}" for number in range(5)]
    job.put("a.json", row("a", 1))
    flags = many(job, [*names, "bad"], bad=f"hoodie.streamer.source.dfs.root={job.work}/none")
    given = words(job, *flags, "--continuous", "--tables-at-once", "2")
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rows = dict.fromkeys(names, 0)

    def read_until(most: int) -> None:
        assert process.stdout is not None
        while min(rows.values()) < most:
            facts = json.loads(process.stdout.readline())
            rows[facts["table"]] += facts["rows"]

    try:
        read_until(1)
        job.put("b.json", row("b", 1), at=int(time.time()) - 10)
        read_until(2)
        process.terminate()
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1  # of the table that failed
    assert f"error: bad: the source folder {job.work}/none is not there" in err
    assert {json.loads(line)["table"] for line in out.splitlines()} <= set(names)
    assert rows == dict.fromkeys(names, 2)
    for name in names:
        timeline = HudiTable.open(f"{job.work}/lake/default/{name}").timeline
        assert not list(timeline.pending())
        assert len(timeline.data().completed()) == 2


def test_a_reader_that_is_away_ends_all(job: Job) -> None:
    job.put("a.json", row("a", 1))
    process = subprocess.Popen(
        words(job, *many(job, ["one", "two"]), "--continuous"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 1  # as of one stream
    finally:
        process.kill()
        process.wait()
    for name in ("one", "two"):
        assert not list(HudiTable.open(f"{job.work}/lake/default/{name}").timeline.pending())


def test_turns_are_given_in_their_order_and_no_more_at_once_than_there_are() -> None:
    turns, guard = Turns(2), threading.Lock()
    running: list[str] = []
    most: list[int] = []
    order: list[str] = []

    def working(name: str) -> Callable[[], None]:
        def work() -> None:
            for _ in range(20):  # without a pause
                with turns.turn():
                    with guard:
                        running.append(name)
                        most.append(len(running))
                        order.append(name)
                    time.sleep(0.002)
                    with guard:
                        running.remove(name)

        return work

    names = [f"t{number}" for number in range(5)]
    run_at_once({name: working(name) for name in names}, lambda _, error: pytest.fail(str(error)), threading.Event())
    assert max(most) == 2
    assert len(order) == 100
    for name in names:
        places = [at for at, each in enumerate(order) if each == name]
        assert max(after - before for before, after in pairwise(places)) <= 10


def test_an_error_of_one_stream_is_passed_on_and_a_broken_pipe_stops_all() -> None:
    failed: list[tuple[str, str]] = []
    stop = threading.Event()
    ended: list[str] = []

    def broken() -> None:
        raise BrokenPipeError

    def bad() -> None:
        raise ValueError("bad")

    def patient() -> None:
        assert stop.wait(30)
        ended.append("patient")

    streams = {"bad": bad, "patient": patient, "broken": broken}
    with pytest.raises(BrokenPipeError):
        run_at_once(streams, lambda name, error: failed.append((name, str(error))), stop)
    assert (failed, ended) == ([("bad", "bad")], ["patient"])


def test_on_a_terminal_the_steps_are_shown_and_lines_are_whole(job: Job) -> None:
    """Both go to the same terminal: the bar leaves it to each line."""
    for number in range(3):
        job.put(f"{number}.json", row(str(number), 1), at=1_700_000_000 + number)
    ours, theirs = pty.openpty()
    given = words(job, "--continuous", "--source-limit", "1", "--min-sync-interval-seconds", "1")
    ends = ("--post-write-termination-strategy-class", "NoNewDataTerminationStrategy")
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen([*given, *ends], stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        drawn = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65536):
                drawn += part
    os.close(ours)
    assert process.returncode == 0
    text = drawn.decode()
    assert "stream: stream." in text
    lines = [line for line in text.replace("\r", "\n").split("\n") if '"checkpoint"' in line]
    assert [json.loads(line[line.index("{") :])["rows"] for line in lines] == [1, 1, 1, 0, 0, 0]
    for line in lines:  # nothing of the bar is on it
        assert "━" not in line
        assert "stream:" not in line
