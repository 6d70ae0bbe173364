"""The progress of a command on stderr: a bar on a terminal, lines with -v, JSON lines on request.

Every command that may take longer than a moment has a bar, added where commands are registered. It is drawn on stderr
once the command has taken a second, and removed when the command prints its result. There is none with --quiet, with -v
(steps are printed instead), and where stderr is no terminal.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import typer

from skep_table.events import Event, Listener

DELAY_SECONDS = 1.0
WITHOUT: Final = {
    "demo": "draws its own",
    "metastore": "serves until it is interrupted",
    "serve": "serves until it is interrupted",
    "sync watch": "runs until it is interrupted, and prints what it does",
    "lock wait": "prints who holds the lock",
    "config": "prints settings that are here",
}
"""Commands that have no bar, and why."""

_current: Display | None = None


class Display:
    """A bar that is drawn when it has waited for a while; `bars` may get more of them."""

    def __init__(self, what: str, delay: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        # stdout is often the input of another program: it is never redirected.
        self.bars = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._task = self.bars.add_task("", total=None)
        self.name(what)
        self._lock = threading.Lock()
        self._ended = False
        self._timer = threading.Timer(delay, self._start)
        self._timer.daemon = True
        if delay > 0:
            self._timer.start()
        else:
            self._start()

    def name(self, what: str) -> None:
        """Changes what the bar shows as being done."""
        self._what = what
        self._describe(what)

    def listen(self, event: Event) -> None:
        """Updates the bar by an event."""
        if event.name.endswith(".start"):
            self._describe(f"{self._what}: {event.name.removesuffix('.start')}", total=None)
        elif event.name.startswith("lock."):
            self._describe(f"{self._what}: {_of_lock(event)}")
        elif event.total is not None:
            self._describe(f"{self._what}: {event.name}")
        if event.total is not None:
            self.bars.update(self._task, completed=event.done, total=event.total)

    def _describe(self, text: str, **how: Any) -> None:
        from rich.markup import escape

        self.bars.update(self._task, description=escape(text), **how)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Removed while the block prints to the same terminal, and drawn again."""
        with self._lock:
            is_drawn = not self._ended and self.bars.live.is_started
            if is_drawn:
                self.bars.stop()
            try:
                yield
            finally:
                if is_drawn:
                    self.bars.start()

    def stop(self) -> None:
        """Nothing is drawn any more."""
        self._timer.cancel()
        with self._lock:
            if not self._ended and self.bars.live.is_started:
                self.bars.stop()
            self._ended = True

    def _start(self) -> None:
        with self._lock:
            if not self._ended:
                self.bars.start()


def is_verbose() -> bool:
    """Whether -v was given."""
    return logging.getLogger("skep").isEnabledFor(logging.INFO)


def is_for_people() -> bool:
    """Whether remarks go to stderr: it is a terminal or -v asks for them, and --quiet does not forbid it."""
    return is_verbose() or (sys.stderr.isatty() and logging.getLogger("skep").isEnabledFor(logging.WARNING))


def is_wanted() -> bool:
    """Whether a bar may be drawn: on a terminal, without --quiet and -v."""
    return sys.stderr.isatty() and logging.getLogger("skep").getEffectiveLevel() == logging.WARNING


@contextmanager
def shown(what: str, delay: float | None = None) -> Iterator[Display]:
    """A display for the time of the block; the one of the command where there is one."""
    global _current
    if _current is not None:
        _current.name(what)
        yield _current
        return
    _current = display = Display(what, DELAY_SECONDS if delay is None else delay)
    try:
        yield display
    finally:
        _current = None
        display.stop()


def stop() -> None:
    """Ends the bar of the command that runs."""
    if _current is not None:
        _current.stop()


def make_way() -> None:
    """Before results are printed: removes the bar when these go to the terminal, too."""
    if sys.stdout.isatty():
        stop()


@contextmanager
def aside() -> Iterator[None]:
    """Around a line of results that others follow: the bar leaves the terminal to it, and comes back."""
    if _current is None:
        yield
        return
    with _current.hidden():
        yield


def with_bar(run: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The function of the command `path` with a bar around it; the same where the command shows its own, or none."""
    return run if path in WITHOUT else _BarAround(run, path)


class _BarAround:
    """A command's function with a bar for the time of a call."""

    def __init__(self, run: Callable[..., Any], path: str) -> None:
        functools.update_wrapper(self, run)
        self.run = run
        self._path = path

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with shown(f"skep {self._path}") if is_wanted() else nullcontext():
            return self.run(*arguments, **options)


def _of_lock(event: Event) -> str:
    """The holder that a writer waits for."""
    if event.name != "lock.waiting":
        return event.name
    before = f", {event.facts['ahead']} before us" if event.facts.get("ahead") else ""
    return f"waiting for the lock of {event.facts.get('holder') or 'nobody yet'}{before}"


@contextmanager
def listening(what: str, *, as_json: bool = False) -> Iterator[Listener]:
    """A listener for the time of a command. `what` is the label of a bar on a terminal."""
    if as_json:
        stop()
        yield lambda event: typer.echo(json.dumps(_record(event), default=str), err=True)
    elif is_verbose():
        yield _print
    elif is_wanted():
        with shown(what, delay=0) as display:
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
