"""Events as people and programs read them on stderr: lines with -v, JSON lines where asked for, a bar on a terminal."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from skep_table.events import Event, Listener


@contextmanager
def told(what: str, *, as_json: bool = False) -> Iterator[Listener]:
    """A listener for the time of a command. `what` is what a bar on a terminal says is being done."""
    from skep.cli import progress

    if as_json:
        progress.stop()
        yield lambda event: typer.echo(json.dumps(_record(event), default=str), err=True)
    elif logging.getLogger("skep").isEnabledFor(logging.INFO):
        yield _print
    elif progress.is_wanted():
        with progress.shown(what, delay=0) as display:
            yield display.listen
    else:
        yield lambda _: None


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
