"""The bar of a command on a terminal: what is being done, how much of it, since when.

Every command that may take longer than a moment has one, put around it where commands are registered. It is drawn on
stderr once the command has taken a second, and goes when the command prints its answer. There is none with --quiet,
with -v (steps are printed instead), and where stderr is no terminal.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from skep_table.events import Event

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
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        # What is printed on stdout is a program's input more often than not: it is never led elsewhere.
        self.bars = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._what = escape(what)
        self._task = self.bars.add_task(self._what, total=None)
        self._lock = threading.Lock()
        self._ended = False
        self._timer = threading.Timer(delay, self._start)
        self._timer.daemon = True
        if delay > 0:
            self._timer.start()
        else:
            self._start()

    def name(self, what: str) -> None:
        from rich.markup import escape

        self._what = escape(what)
        self.bars.update(self._task, description=self._what)

    def listen(self, event: Event) -> None:
        from rich.markup import escape

        if event.name.endswith(".start"):
            self.bars.update(self._task, description=f"{self._what}: {event.name.removesuffix('.start')}", total=None)
        elif event.name.startswith("lock."):
            self.bars.update(self._task, description=escape(f"{self._what}: {_of_lock(event)}"))
        if event.total is not None:
            self.bars.update(self._task, completed=event.done, total=event.total)

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


def is_wanted() -> bool:
    """Whether a bar may be drawn: on a terminal, and where neither silence nor lines of text were asked for."""
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
    """Before an answer is printed: the bar goes where that is printed on the terminal, too."""
    if sys.stdout.isatty():
        stop()


def with_bar(command: Any, path: str) -> None:
    """Puts a bar around a command, or around all commands of a group."""
    for name, one in getattr(command, "commands", {}).items():
        with_bar(one, f"{path} {name}")
    if hasattr(command, "commands") or path in WITHOUT:
        return
    command.callback = _BarAround(command.callback, path)


class _BarAround:
    """A command's function with a bar for the time of a call."""

    def __init__(self, run: Callable[..., Any], path: str) -> None:
        functools.update_wrapper(self, run)
        self.run = run
        self._path = path

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if not is_wanted():
            return self.run(*arguments, **options)
        with shown(f"skep {self._path}"):
            return self.run(*arguments, **options)


def _of_lock(event: Event) -> str:
    """For whom a writer waits; nobody any more after the wait."""
    if event.name != "lock.waiting":
        return event.name
    before = f", {event.facts['ahead']} before us" if event.facts.get("ahead") else ""
    return f"waiting for the lock of {event.facts.get('holder') or 'nobody yet'}{before}"
