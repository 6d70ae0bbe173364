"""The metrics of streams: scraped from a stream that runs, counted by outcome, and never in the way of a round."""

from __future__ import annotations

import json
import math
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ended_process import outcome
from file_jobs import Job, command, many, row, words

from skep_format.errors import InputError, StorageError
from skep_stream.lag import lag_watch
from skep_stream.protocols import Batch, Position
from skep_table.events import Event, Events

prometheus_client = pytest.importorskip("prometheus_client")
LAG = ("--hoodie-conf", "skep.stream.lag.seconds=1")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@contextmanager
def continuous(job: Job, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A stream that goes on, and the address of its metrics."""
    given = words(job, "--continuous", "--min-sync-interval-seconds", "1", *LAG, *more)
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        name, _, address = process.stderr.readline().strip().partition(" ")
        assert name == "metrics:"
        yield process, address
    finally:
        process.terminate()
        outcome(process)


def scraped(address: str) -> dict[str, float]:
    """The samples by name and labels, as they are written."""
    with urllib.request.urlopen(address, timeout=10) as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def until(address: str, name: str, value: float) -> dict[str, float]:
    end = time.monotonic() + 30
    while (found := scraped(address)).get(name) != value:
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


def test_a_stream_that_goes_on_is_scraped(job: Job) -> None:
    job.put("a.json", row("a", 1), row("b", 1))
    begin = time.time()
    with continuous(job, "--metrics-port", "0", "--source-limit", "1") as (process, address):
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["rows"] == 2
        found = until(address, 'skep_stream_waiting_files{table="t"}', 0)
        assert found['skep_stream_rows_total{table="t"}'] == 2
        assert found['skep_stream_rounds_total{outcome="committed",table="t"}'] == 1
        assert found['skep_stream_rounds_total{outcome="failed",table="t"}'] == 0
        assert found['skep_stream_lag_seconds{table="t"}'] == 0
        assert found['skep_stream_last_commit_timestamp_seconds{table="t"}'] >= begin
        for part in ("round", "fetch", "write"):
            assert found[f'skep_stream_{part}_seconds_count{{table="t"}}'] >= 1
        assert found['skep_stream_round_seconds_sum{table="t"}'] >= found['skep_stream_write_seconds_sum{table="t"}']
        until(address, 'skep_stream_rounds_total{outcome="unchanged",table="t"}', 2)
        for name in ("c", "d"):
            job.put(f"{name}.json", row(name, 1), at=int(begin) - 100)
        until(address, 'skep_stream_rows_total{table="t"}', 4)


def test_a_failure_of_one_of_many_tables_is_scraped_while_the_other_goes_on(job: Job) -> None:
    job.put("a.json", row("a", 1))
    flags = many(job, ["one", "bad"], bad=f"hoodie.streamer.source.dfs.root={job.work}/none")
    with continuous(job, *flags, "--metrics-port", "0") as (_, address):
        until(address, 'skep_stream_rounds_total{outcome="failed",table="default.bad"}', 1)
        until(address, 'skep_stream_rounds_total{outcome="unchanged",table="default.one"}', 2)
        found = until(address, 'skep_stream_rows_total{table="default.one"}', 1)
    assert found['skep_stream_rows_total{table="default.bad"}'] == 0


def test_hudis_options_of_prometheus_are_honoured_by_the_command(job: Job) -> None:
    job.put("a.json", row("a", 1))
    keys = ("hoodie.metrics.on=true", "hoodie.metrics.reporter.type=PROMETHEUS", "hoodie.metrics.prometheus.port=0")
    given = [word for key in keys for word in ("--hoodie-conf", key)]
    done = command(job, *given)
    assert done.returncode == 0
    assert done.stderr.startswith("metrics: http://127.0.0.1:")
    assert "no effect" not in done.stderr
    other = command(job, *given, "--hoodie-conf", "hoodie.metrics.reporter.type=JMX")
    assert other.returncode == 1
    assert other.stderr.startswith("error: option hoodie.metrics.reporter.type: JMX is not built")


def test_a_port_that_is_taken_is_an_error(job: Job) -> None:
    from skep.flows.stream_metrics import metrics_servers

    ports: list[str] = []
    with metrics_servers(ports.append) as servers:
        assert servers(0) is servers(0)
        port = ports[0].partition("127.0.0.1:")[2].partition("/")[0]
        with pytest.raises(InputError, match=f"metrics can't be served on 127.0.0.1:{port}"):
            servers(int(port))
        done = command(job, "--metrics-port", port)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: metrics can't be served on 127.0.0.1:{port}")


def test_the_tables_of_streams_have_hudis_metrics_at_the_same_endpoint(job: Job) -> None:
    from skep.flows.stream_metrics import metrics_servers
    from skep_table.metrics.channels import end_metrics

    job.put("a.json", row("a", 1))
    ports: list[str] = []
    given = {"hoodie.metrics.on": "true", "hoodie.metrics.reporter.type": "PROMETHEUS"}
    try:
        with metrics_servers(ports.append) as servers:
            list(job.streamer({**given, "hoodie.metrics.prometheus.port": "0"}, metrics=servers).run())
            found = scraped(ports[0])
    finally:
        end_metrics()
    assert found['skep_stream_rows_total{table="t"}'] == found["t_commit_totalRecordsWritten"] == 1


def test_in_python_the_flag_has_no_effect(job: Job) -> None:
    with pytest.warns(UserWarning, match="--metrics-port has no effect here"):
        job.streamer(metrics_port=0)


def metrics() -> tuple[Any, Any]:
    from skep.flows.stream_metrics import StreamMetrics

    registry = prometheus_client.CollectorRegistry()
    return StreamMetrics(registry), registry.get_sample_value


def test_failed_rounds_and_records_that_are_left_out_are_counted(job: Job) -> None:
    listener, value = metrics()
    job.put("a.json", row("a", 1))
    (job.source / "bad.json").write_text('{"id": 1}\n{\n')
    for conf, failed, rejected in (({}, 1, 0), ({"hoodie.streamer.source.json.skip.invalid.records": "true"}, 1, 2)):
        streamer = job.streamer(conf)
        streamer.stream.events.listen(listener)
        if rejected:
            streamer.run_once()
        else:
            with pytest.raises(InputError):
                streamer.run_once()
        assert value("skep_stream_rounds_total", {"table": "t", "outcome": "failed"}) == failed
        assert value("skep_stream_rejected_records_total", {"table": "t"}) == rejected
    assert value("skep_stream_rows_total", {"table": "t"}) == 1
    assert value("skep_stream_round_seconds_count", {"table": "t"}) == 1  # of those that ended well


def test_the_lag_is_the_age_of_the_oldest_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    listener, value = metrics()

    def lag(**facts: object) -> float | None:
        listener(Event("stream.lag", {"table": "t", **facts}))
        return value("skep_stream_lag_seconds", {"table": "t"})

    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert lag(waiting_messages=3) is None  # the source knows no times
    assert lag(waiting_messages=3, waiting_since=990_000) == 10
    monkeypatch.setattr(time, "time", lambda: 1005.0)
    assert value("skep_stream_lag_seconds", {"table": "t"}) == 15  # without a measurement
    assert lag(waiting_messages=0, waiting_since=None) == 0
    assert lag(waiting_messages=1, waiting_since=1_006_000) == 0  # a clock that is ahead
    assert math.isnan(lag(waiting_messages=1, waiting_since=None) or 0)
    assert value("skep_stream_waiting_messages", {"table": "t"}) == 1
    assert lag(waiting_messages=1, waiting_since=None, held_by="x", last_commit=999_000) is not None
    assert value("skep_stream_last_commit_timestamp_seconds", {"table": "t"}) == 999


def test_a_lag_that_can_not_be_measured_fails_no_round(job: Job) -> None:
    """And one that takes for ever holds none up."""
    from skep.flows.stream_metrics import metrics_servers

    asked, ended = threading.Event(), threading.Event()

    class Hanging:
        def fetch(self, last: Position, limit: int) -> Batch:
            return Batch(None, "1")

        def waiting(self, last: Position) -> dict[str, object]:
            asked.set()
            ended.wait(60)
            raise StorageError("the broker is away", call="list", path="t")

    seen: list[Event] = []
    with metrics_servers(lambda _: None) as servers:
        streamer = job.streamer(source_class=Hanging(), metrics=servers, metrics_port=0)
        streamer.stream.events.listen(seen.append)
        for done in streamer.run():
            assert done.result is not None
            assert asked.wait(30)
    assert not [event for event in seen if event.name.startswith("stream.lag")]
    ended.set()


def test_the_lag_is_measured_again_and_again_also_after_a_failure() -> None:
    seen: list[Event] = []
    three = threading.Event()

    def measure() -> dict[str, object]:
        if len(seen) == 1:
            raise StorageError("away", call="list", path="t")
        return {"waiting_files": len(seen)}

    def listen(event: Event) -> None:
        seen.append(event)
        if len(seen) == 3:
            three.set()

    with lag_watch(measure, Events(listen), "t", 0.01):
        assert three.wait(30)
    assert [event.name for event in seen[:3]] == ["stream.lag", "stream.lag.failed", "stream.lag"]
    assert all(event.facts["table"] == "t" for event in seen)
