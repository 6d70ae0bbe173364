"""SIGTERM as an exception, for programs that ask for it: skep's command line does. The library installs no handlers."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_callbacks: list[Callable[[], None]] = []


def exit_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit(143) in the main thread, as Ctrl-C raises KeyboardInterrupt.

    Writes in progress are then rolled back and locks released before the process ends. A second SIGTERM ends it at
    once. To be called from the main thread (else ValueError), once, by the program and never by a library: it
    replaces the handler of the process.
    """
    signal.signal(signal.SIGTERM, _exit)


@contextmanager
def before_exit(callback: Callable[[], None]) -> Iterator[None]:
    """While the block runs, SIGTERM calls `callback` before it raises: to end what the main thread waits for.

    It must return at once.
    """
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)


def _exit(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    for callback in _callbacks:
        with suppress(Exception):
            callback()
    sys.exit(128 + number)
