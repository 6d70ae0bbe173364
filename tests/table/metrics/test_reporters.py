"""Where metrics arrive: at receivers on loopback, which take what Hudi's reporters send."""

from __future__ import annotations

import io
import json
import logging
import queue
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import EnvironmentMissingError, OptionError, UnsupportedError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.metrics import reporters
from skep_table.metrics.channels import channel_of, end_metrics, flush_metrics, metrics
from skep_table.metrics.endpoints import acquire, release
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ROWS = pa.table({"id": ["a", "b"]})
Requests = queue.Queue[tuple[str, str, dict[str, str], bytes]]


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    end_metrics()
    yield
    end_metrics()


def written(tmp_path: Path, reporter: str, **options: Any) -> HudiTable:
    """A table with one commit; `options` are those of metrics."""
    named = {f"hoodie.metrics.{name.replace('__', '.')}": value for name, value in options.items()}
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",))
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    table = table.with_options({"hoodie.metrics.on": True, "hoodie.metrics.reporter.type": reporter, **named})
    LocalWriter(table).insert(ROWS)
    return table


@contextmanager
def http(status: int = 200) -> Iterator[tuple[int, Requests]]:
    """A server's port, and what it has received: method, path, headers, body."""
    got: Requests = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            got.put((self.command, self.path, {key.lower(): text for key, text in self.headers.items()}, body))
            self.send_response(status)
            self.end_headers()

        do_POST = do_PUT = do_DELETE = take

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Receiver) as server, serving(server):
        yield server.server_port, got


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def test_prometheus_scrapes_the_port_that_a_process_shares(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    endpoint = acquire(0)  # as a stream would
    try:
        written(tmp_path, "PROMETHEUS", prometheus__port=0, pushgateway__report__labels="team:sales, at:x")
        with urllib.request.urlopen(endpoint.url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        assert 't_commit_totalRecordsWritten{at="x",team="sales"} 2.0' in lines
        assert "# TYPE t_commit_totalRecordsWritten gauge" in lines
        end_metrics()
        with urllib.request.urlopen(endpoint.url, timeout=10) as page:
            assert page.read() == b""
    finally:
        release(endpoint)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(endpoint.url, timeout=10)


def test_the_pushgateway_gets_job_and_labels_and_forgets_them_with_the_process(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with http() as (port, got):
        address = {"pushgateway__host": "127.0.0.1", "pushgateway__port": port}
        given = {"job__name": "etl", "random__job__name__suffix": False, "report__labels": "team:sales"}
        written(tmp_path, "PROMETHEUS_PUSHGATEWAY", **address, **{f"pushgateway__{k}": v for k, v in given.items()})
        flush_metrics()
        method, path, _, body = got.get(timeout=10)
        assert (method, path) == ("POST", "/metrics/job/etl/team/sales")
        assert b"t_commit_totalRecordsWritten 2.0\n" in body
        end_metrics()
        assert [got.get(timeout=10)[:2] for _ in range(2)] == [("POST", path), ("DELETE", path)]


def test_the_pushgateway_keeps_what_the_option_leaves_there_under_a_job_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with http() as (port, got):
        address = {"pushgateway__host": "127.0.0.1", "pushgateway__port": port}
        written(
            tmp_path,
            "PROMETHEUS_PUSHGATEWAY",
            **address,
            pushgateway__job__name="etl",
            pushgateway__delete__on__shutdown=False,
        )
        end_metrics()
        method, path, _, _ = got.get(timeout=10)
        assert method == "POST"
        assert path.removeprefix("/metrics/job/etl").isdigit()
        assert got.empty()


def test_graphite_gets_lines_with_prefix_and_time(tmp_path: Path) -> None:
    got: queue.Queue[bytes] = queue.Queue()

    class Receiver(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            got.put(self.rfile.read())

    with socketserver.TCPServer(("127.0.0.1", 0), Receiver) as server, serving(server):
        port = server.server_address[1]
        written(
            tmp_path,
            "GRAPHITE",
            graphite__host="127.0.0.1",
            graphite__port=port,
            graphite__metric__prefix="lake",
            reporter__metricsname__prefix="my table",
        )
        flush_metrics()
        lines = [line.split(" ") for line in got.get(timeout=10).decode().splitlines()]
    found = {name: value for name, value, _ in lines}
    assert found["lake.my-table.commit.totalRecordsWritten"] == "2"
    assert found["lake.my-table.conflict_resolution.success.counter.count"] == "1"
    assert all(int(time) > 1_700_000_000 for _, _, time in lines)


def test_datadog_gets_series_with_key_host_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "api__site": "EU",
        "api__key": "s3cret",
        "metric__prefix": "lake",
        "metric__host": "h",
        "metric__tags": "a,b:c",
    }
    with http() as (port, got):
        monkeypatch.setattr(reporters, "_DATADOG_URL", f"http://127.0.0.1:{port}/{{domain}}")
        table = written(tmp_path, "DATADOG", **{f"datadog__{name}": value for name, value in keys.items()})
        flush_metrics()
        method, path, headers, body = got.get(timeout=10)
    assert (method, path, headers["dd-api-key"]) == ("POST", "/eu/api/v1/series", "s3cret")
    assert "s3cret" not in repr(table.options)
    assert "s3cret" not in repr(reporters.reporter_of(table.options))
    series = {each["metric"]: each for each in json.loads(body)["series"]}
    found = series["lake.t.commit.totalRecordsWritten"]
    assert (found["points"][0][1], found["host"], found["tags"]) == (2, "h", ["a", "b:c"])
    assert not [name for name in series if name.endswith("counter")]


def test_the_console_is_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "CONSOLE")
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    flush_metrics()
    lines = err.getvalue().splitlines()
    assert lines[0] == "-- Gauges"
    assert "t.commit.totalRecordsWritten = 2" in lines
    assert lines.index("-- Counters") < lines.index("t.conflict_resolution.success.counter = 1")


def test_the_last_values_are_reported_when_the_process_ends(tmp_path: Path) -> None:
    code = f"""
import pyarrow, skep
options = {{"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}}
options |= {{"hoodie.metrics.on": "true", "hoodie.metrics.reporter.type": "CONSOLE"}}
skep.write(pyarrow.table({{"id": [1, 2]}})).options(**options).mode("append").save({str(tmp_path / "t")!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "t.commit.totalRecordsWritten = 2\n" in done.stderr


def test_slf4j_is_the_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, "SLF4J")
    with caplog.at_level(logging.INFO, "skep.metrics"):
        flush_metrics()
    assert "type=GAUGE, name=t.commit.totalRecordsWritten, value=2" in caplog.messages
    assert "type=COUNTER, name=t.conflict_resolution.success.counter, count=1" in caplog.messages


def test_values_are_sent_every_period_also_after_a_failure() -> None:
    sent: queue.Queue[reporters.ReportedValues] = queue.Queue()

    class FailsFirst(reporters.Reporter):
        def send(self, values: reporters.ReportedValues) -> None:
            sent.put(values)
            if sent.qsize() == 1:
                raise OSError("down")

    channel = channel_of(FailsFirst(period_seconds=0.01, address="here"))
    channel.add({"t.commit.duration": 5}, [])
    while not sent.get(timeout=10).gauges:
        pass
    assert sent.get(timeout=10).gauges == {"t.commit.duration": 5}


def test_a_reporter_that_fails_is_logged_once_and_the_commits_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("prometheus_client")
    with http() as (port, _):
        table = written(tmp_path, "PROMETHEUS", prometheus__port=port)
        LocalWriter(table.reload()).insert(pa.table({"id": ["c"]}))
    assert len(table.reload().timeline.completed()) == 2
    (line,) = [line for line in caplog.messages if "metrics" in line]
    assert line.startswith(f"metrics can't be reported to Prometheus at 127.0.0.1:{port}")
    caplog.clear()
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        port = server.server_address[1]
    LocalWriter(
        table.reload().with_options(
            {
                "hoodie.metrics.reporter.type": "GRAPHITE",
                "hoodie.metrics.graphite.host": "127.0.0.1",
                "hoodie.metrics.graphite.port": port,
            }
        )
    ).insert(pa.table({"id": ["d"]}))
    flush_metrics()
    flush_metrics()
    (line,) = caplog.messages
    assert line.startswith(f"metrics can't be reported to Graphite at 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("key", "value"),
    [("type", "JMX"), ("type", "CLOUDWATCH"), ("type", "M3"), ("class", "org.example.Reporter")],
)
def test_reporters_that_are_not_built_are_refused_by_name(tmp_path: Path, key: str, value: str) -> None:
    table = written(tmp_path, "INMEMORY")
    wanted = {f"hoodie.metrics.reporter.{key}": value}
    with pytest.raises(UnsupportedError, match=f"hoodie.metrics.reporter.{key}: {value} is not built"):
        table.with_options(wanted)
    new = LocalStorage(str(tmp_path / "new"))
    options = {"hoodie.metrics.on": True, **wanted}
    with pytest.raises(UnsupportedError, match="is not built"):
        create_table(new, TableSpec(name="t", schema=ROWS.schema, record_key=("id",)), options)
    with pytest.raises(UnsupportedError, match="is not built"):
        Options(options).check()
    assert not (tmp_path / "new").exists()
    off = table.with_options({**wanted, "hoodie.metrics.on": False})
    LocalWriter(off.reload()).insert(pa.table({"id": ["c"]}))


def test_options_that_lack_something_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tmp_path, "INMEMORY")
    with pytest.raises(OptionError, match=r"DATADOG need the option hoodie\.metrics\.datadog\.api\.key"):
        table.with_options({"hoodie.metrics.reporter.type": "DATADOG", "hoodie.metrics.datadog.api.site": "US"})
    labels = {"hoodie.metrics.reporter.type": "PROMETHEUS", "hoodie.metrics.pushgateway.report.labels": ":x"}
    with pytest.raises(OptionError, match="':x' is not name:value"):
        table.with_options(labels)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(EnvironmentMissingError, match="metrics need the package prometheus_client"):
        table.with_options({"hoodie.metrics.reporter.type": "PROMETHEUS"})


def test_tasks_in_other_processes_report_nothing(tmp_path: Path) -> None:
    import pickle

    table = written(tmp_path, "INMEMORY")
    there = pickle.loads(pickle.dumps(table))
    before = metrics()
    there.context.events.emit("compact.start")
    assert metrics() == before
