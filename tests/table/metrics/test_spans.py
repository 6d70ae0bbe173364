"""Steps as spans of OpenTelemetry: nested as steps are, with facts and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError, EnvironmentMissingError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.events import Event, Events
from skep_table.lock import InProcessLock
from skep_table.metrics import observed, traced
from skep_table.metrics.observing import spans
from skep_table.metrics.spans import Spans
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore
from skep_table.write.local import LocalWriter

ROWS = pa.table({"id": ["a", "b"]})


@pytest.fixture
def sdk() -> tuple[Spans, Any]:
    """A listener, and the exporter that keeps its spans."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = trace.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    return Spans(provider.get_tracer("skep")), exporter


def test_the_steps_of_a_write_are_nested(tmp_path: Path, sdk: tuple[Spans, Any]) -> None:
    listener, exporter = sdk
    table = create_table(LocalStorage(str(tmp_path)), TableSpec(name="t", schema=ROWS.schema, record_key=("id",)))
    table = table.with_context(events=Events(listener), lock=InProcessLock(str(tmp_path)))
    LocalWriter(table).upsert(ROWS)
    found = {span.name: span for span in exporter.get_finished_spans()}
    write = found["skep.write"]
    assert write.parent is None
    assert write.attributes["skep.table"] == "t"
    assert write.attributes["skep.inserted"] == 2
    for name, parent in {
        "write.tag": "write",
        "write.files": "write",
        "write.commit": "write",
        "lock.wait": "write.commit",
        "commit.finalize": "write.commit",
        "commit.conflicts": "lock.hold",
    }.items():
        assert found[f"skep.{name}"].parent.span_id == found[f"skep.{parent}"].context.span_id
    assert "skep.commit.transition" in {event.name for event in found["skep.write.commit"].events}
    assert {span.context.trace_id for span in found.values()} == {write.context.trace_id}


def test_savepoints_and_restores_are_steps(tmp_path: Path, sdk: tuple[Spans, Any]) -> None:
    listener, exporter = sdk
    table = create_table(LocalStorage(str(tmp_path)), TableSpec(name="t", schema=ROWS.schema, record_key=("id",)))
    table = table.with_context(events=Events(listener), lock=InProcessLock(str(tmp_path)))
    time = LocalWriter(table).upsert(ROWS).instant.requested_time
    create_savepoint(table.reload(), time)
    LocalWriter(table.reload()).upsert(ROWS)
    done = restore(table.reload(), time)
    delete_savepoint(table.reload(), time)
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert done is not None
    assert found["skep.restore"].attributes["skep.savepoint"] == time
    assert found["skep.restore"].attributes["skep.instants"] == 1
    assert found["skep.savepoint"].attributes["skep.instant"] == time
    assert found["skep.savepoint.delete"].attributes["skep.instant"] == time


def test_a_step_that_fails_has_its_error(tmp_path: Path, sdk: tuple[Spans, Any]) -> None:
    from opentelemetry.trace import StatusCode

    listener, exporter = sdk

    def lost(_: Any) -> None:
        raise CommitConflictError("another write came first")

    table = create_table(LocalStorage(str(tmp_path)), TableSpec(name="t", schema=ROWS.schema, record_key=("id",)))
    with pytest.raises(CommitConflictError):
        LocalWriter(table.with_context(events=Events(listener), conflict_check=lost)).upsert(ROWS)
    found = {span.name: span for span in exporter.get_finished_spans()}
    for name in ("commit.conflicts", "write.commit", "write"):
        span = found[f"skep.{name}"]
        assert span.status.status_code is StatusCode.ERROR
        (recorded,) = [event for event in span.events if event.name == "exception"]
        assert recorded.attributes["exception.message"] == "another write came first"
    assert found["skep.write.tag"].status.status_code is StatusCode.UNSET


class Recorder:
    """A tracer that keeps what it is called with, and is the span and the context of it, too."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def start_as_current_span(self, name: str, attributes: dict[str, Any]) -> Recorder:
        self.calls.append(("start", name, attributes))
        return self

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: object, error: object, _: object) -> None:
        self.calls.append(("end", repr(error) if error else None))

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self.calls.append(("facts", attributes))

    def add_event(self, name: str, attributes: dict[str, Any]) -> None:
        self.calls.append(("event", name, attributes))


def test_events_and_facts_reach_the_tracer() -> None:
    tracer = Recorder()
    events = Events(Spans(tracer))  # type: ignore[arg-type] # has what is called of one
    events.emit("alone", n=1)

    def fails() -> None:
        with events.step("outer", table="t", plan={"a": 1}) as found:
            events.emit("within", names=("x", 2), nothing=None)
            events.progress("within", 1, 2)
            found["rows"] = 3
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        fails()
    assert tracer.calls == [
        ("start", "skep.outer", {"skep.table": "t"}),
        ("event", "skep.within", {"skep.names": ["x", "2"]}),
        ("facts", {"skep.table": "t", "skep.rows": 3, "skep.error": "ValueError('bad')"}),
        ("end", "ValueError('bad')"),
    ]


def test_a_step_whose_end_was_lost_ends_with_the_one_around_it() -> None:
    tracer = Recorder()
    listener = Spans(tracer)  # type: ignore[arg-type] # as above
    for name, seconds in (("outer.start", None), ("inner.start", None), ("outer", 1.0), ("other", 1.0)):
        listener(Event(name, seconds=seconds))
    assert [call[:2] for call in tracer.calls] == [
        ("start", "skep.outer"),
        ("start", "skep.inner"),
        ("end", None),
        ("facts", {}),
        ("end", None),
    ]


def test_the_option_adds_one_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Recorder()
    monkeypatch.setattr("skep_table.metrics.observing.spans", lambda: listener)
    listener = Spans(tracer)  # type: ignore[arg-type] # as above
    options = Options({"skep.tracing": True})
    with traced(Events(), options).step("sync"):
        pass
    base = traced(traced(Events(), options), options)
    with observed(base, options, "t").step("write"):
        pass
    assert [call[1] for call in tracer.calls if call[0] == "start"] == ["skep.sync", "skep.write"]
    with observed(observed(Events(), options, "t"), options, "t").step("clean"):
        pass
    assert [call[1] for call in tracer.calls if call[0] == "start"][2:] == ["skep.clean"]


def test_without_the_package_the_option_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    spans.cache_clear()  # type: ignore[attr-defined] # of functools
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(EnvironmentMissingError, match="tracing needs the package opentelemetry"):
        observed(Events(), Options({"skep.tracing": True}), "t")
