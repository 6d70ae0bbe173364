"""Steps as spans of OpenTelemetry: a listener of events."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from skep_format.errors import needs
from skep_table.events import Event

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class Spans:
    """Makes a span of each step, in that of the step around it, with the facts as attributes; other events are events
    of the span at hand.

    `tracer` is that of the process where none is given.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        """EnvironmentMissingError without the package of OpenTelemetry's API."""
        if tracer is None:
            with needs("otel", "tracing needs the package %s"):
                from opentelemetry import trace
            tracer = trace.get_tracer("skep")
        self._tracer = tracer
        self._threads = threading.local()

    def __call__(self, event: Event) -> None:
        name, attributes = event.name, _attributes(event.facts)
        open_: list[tuple[str, AbstractContextManager[Any], Any]] = self._threads.__dict__.setdefault("open", [])
        if event.seconds is None and name.endswith(".start"):
            step = name.removesuffix(".start")
            entered = self._tracer.start_as_current_span(f"skep.{step}", attributes=attributes)
            open_.append((step, entered, entered.__enter__()))
            return
        if event.seconds is None:
            if open_ and event.total is None and event.done is None:
                open_[-1][2].add_event(f"skep.{name}", attributes)
            return
        step = name.removesuffix(".failed")
        while any(each == step for each, _, _ in open_):
            found, entered, span = open_.pop()
            if found != step:  # its end was not sent
                entered.__exit__(None, None, None)
                continue
            span.set_attributes(attributes)
            _end(entered, failed=name != step)
            return


def _end(entered: AbstractContextManager[Any], *, failed: bool) -> None:
    """The error of a step that failed is the one at hand; OpenTelemetry records it."""
    if not failed:
        entered.__exit__(None, None, None)
        return
    error = sys.exc_info()[1]
    try:
        entered.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
    except BaseException as raised:
        if raised is not error:
            raise


def _attributes(facts: Mapping[str, object]) -> dict[str, Any]:
    """Plain values as they are, lists of them by their texts, None and what has parts of its own not at all."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, (bool, int, float, str)):
            found[f"skep.{name}"] = value if type(value) in (bool, int, float, str) else str(value)
        elif isinstance(value, (list, tuple)):
            found[f"skep.{name}"] = [str(each) for each in value]
        elif isinstance(value, BaseException):
            found[f"skep.{name}"] = repr(value)
    return found
