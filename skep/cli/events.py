"""Events as people and programs read them on stderr: lines with -v, JSON lines where asked for, a bar on a terminal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from skep_table.events import Event, Listener


@contextmanager
def told(what: str, *, as_json: bool = False) -> Iterator[Listener]:
    """A listener for the time of a command. `what` is what a bar on a terminal says is being done."""
    if as_json:
        yield lambda event: typer.echo(json.dumps(_record(event), default=str), err=True)
    elif logging.getLogger("skep").isEnabledFor(logging.INFO):
        yield _print
    elif sys.stderr.isatty():
        with _bar(what) as listener:
            yield listener
    else:
        yield lambda _: None


@contextmanager
def _bar(what: str) -> Iterator[Listener]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)

        def listen(event: Event) -> None:
            if event.name.endswith(".start"):
                bars.update(task, description=f"{what}: {event.name.removesuffix('.start')}")
            elif event.name.startswith("lock."):
                bars.update(task, description=escape(f"{what}: {_of_lock(event)}"))
            if event.total is not None:
                bars.update(task, completed=event.done, total=event.total)

        yield listen


def _of_lock(event: Event) -> str:
    """For whom a writer waits; nobody any more after the wait."""
    if event.name != "lock.waiting":
        return event.name
    before = f", {event.facts['ahead']} before us" if event.facts.get("ahead") else ""
    return f"waiting for the lock of {event.facts.get('holder') or 'nobody yet'}{before}"


def _print(event: Event) -> None:
    if event.name.endswith(".start"):
        return
    facts = " ".join(f"{name}={value}" for name, value in event.facts.items())
    seconds = f" {event.seconds:.2f} s" if event.seconds is not None else ""
    typer.echo(f"{event.name}{seconds} {facts}".rstrip(), err=True)


def _record(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = {"event": event.name, **event.facts}
    for name in ("seconds", "done", "total"):
        value = getattr(event, name)
        if value is not None:
            record[name] = value
    return record
