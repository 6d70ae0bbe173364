"""Operations: one statement or metadata call each, with its state, its log, its rows or its failure."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from skep.serve.hive.dialect import as_hive_words
from skep.serve.hive.results import Results
from skep.serve.hive.rights import RightMissingError
from skep_format.errors import (
    EntryExistsError,
    InputError,
    NoSuchTableError,
    SkepError,
    TableExistsError,
    UnsupportedError,
)

log = logging.getLogger("skep.serve.sql")


class OperationState(IntEnum):
    """The protocol's numbers."""

    INITIALIZED = 0
    RUNNING = 1
    FINISHED = 2
    CANCELED = 3
    CLOSED = 4
    ERROR = 5
    PENDING = 7
    TIMED_OUT = 8

    @property
    def is_final(self) -> bool:
        """Nothing runs any more."""
        return self not in (OperationState.INITIALIZED, OperationState.RUNNING, OperationState.PENDING)


@dataclass(frozen=True, slots=True)
class OperationFailure:
    """An error as clients get it."""

    message: str
    sql_state: str = "08S01"
    code: int = 0


class CallError(SkepError):
    """A call that can't be answered, with the SQLSTATE for it."""

    def __init__(self, message: str, sql_state: str = "08S01", code: int = 0) -> None:
        super().__init__(message)
        self.failure = OperationFailure(message, sql_state, code)

    @classmethod
    def of(cls, failure: OperationFailure) -> CallError:
        """Of an operation that failed."""
        return cls(failure.message, failure.sql_state, failure.code)


_SQL_STATES: tuple[tuple[type[SkepError], str, int], ...] = (
    (NoSuchTableError, "42S02", 10001),
    (TableExistsError, "42S01", 0),
    (EntryExistsError, "42S01", 0),
    (RightMissingError, "42501", 0),
    (InputError, "42000", 40000),
    (UnsupportedError, "0A000", 0),
)


def failure_of(error: BaseException) -> OperationFailure:
    """An error of skep as it is; of others, which are defects, the first line, and the log has the rest."""
    if isinstance(error, CallError):
        return error.failure
    for kind, sql_state, code in _SQL_STATES:
        if isinstance(error, kind):
            return OperationFailure(as_hive_words(error), sql_state, code)
    if isinstance(error, SkepError):
        return OperationFailure(str(error))
    log.error("a call failed", exc_info=error)
    first = str(error).strip().partition("\n")[0]
    return OperationFailure(f"internal error: {type(error).__name__}: {first}", "HY000")


@dataclass(frozen=True, slots=True)
class Handle:
    """What a client names a session or an operation by. Who does not have the secret does not have the handle."""

    guid: bytes
    secret: bytes

    @classmethod
    def new(cls) -> Handle:
        """A random one."""
        return cls(secrets.token_bytes(16), secrets.token_bytes(16))


class HiveOperation:
    """Threads may share it. `interrupt` asks the engine to stop; `keeps_state` marks statements that change nothing,
    whose rows are dropped at once when they are cancelled. Others are cancelled where the engine lets itself be
    stopped, and else finish: a statement that took effect is never reported as cancelled."""

    def __init__(
        self,
        kind: int,
        work: Callable[[HiveOperation], Results | None],
        *,
        has_rows: bool = True,
        keeps_state: bool = True,
        interrupt: Callable[[], None] = lambda: None,
        seconds: float | None = None,
        ended: Callable[[HiveOperation], None] = lambda _: None,
    ) -> None:
        self.handle = Handle.new()
        self.kind = kind
        self.has_rows = has_rows
        self.state = OperationState.PENDING
        self.failure: OperationFailure | None = None
        self.results: Results | None = None
        self.changed: int | None = None  # rows, by a write
        self.began = time.time()
        self.completed = 0.0
        self.last_used = time.monotonic()
        self.reading = threading.Lock()
        self._work, self._interrupt, self._ended = work, interrupt, ended
        self._keeps_state = keeps_state
        self._until = None if not seconds else time.monotonic() + seconds
        self._stop: OperationState | None = None
        self._is_closed = False
        self._lines: list[str] = []
        self._lines_read = 0
        self._changed = threading.Condition()

    def run(self) -> None:
        """Does the work, unless it was cancelled before."""
        with self._changed:
            if self.state is not OperationState.PENDING:
                return
            self.state = OperationState.RUNNING
        try:
            results = self._work(self)
        except BaseException as error:
            self._finish(OperationState.ERROR, failure_of(error), None)
        else:
            self._finish(OperationState.FINISHED, None, results)

    def _finish(self, state: OperationState, failure: OperationFailure | None, results: Results | None) -> None:
        with self._changed:
            if self.state.is_final:  # cancelled meanwhile, or closed
                state = self.state
            elif failure is not None and self._stop is not None:
                state = self._stop
            self._end(state, failure, results)

    def _end(self, state: OperationState, failure: OperationFailure | None, results: Results | None) -> None:
        """Holding the condition."""
        first, self.state = not self.state.is_final, state
        if state is OperationState.FINISHED and not self._is_closed:
            self.results = results
        elif results is not None:
            results.close()
        if state is OperationState.ERROR:
            self.failure = failure
        elif state is OperationState.CANCELED:
            self.failure = OperationFailure("the statement was cancelled", "57014")
        elif state is OperationState.TIMED_OUT:
            self.failure = OperationFailure("the statement took longer than it was given", "HYT00")
        if first:
            self.completed = time.time()
            self._changed.notify_all()
            self._ended(self)

    def cancel(self, state: OperationState = OperationState.CANCELED) -> None:
        """Ends it, where it has not ended."""
        with self._changed:
            if self.state.is_final:
                return
            running, self._stop = self.state is OperationState.RUNNING, state
            if not running or self._keeps_state:
                self._end(state, None, None)
        if running:
            self._interrupt()

    def insist(self) -> None:
        """Asks the engine again, where it was asked to stop: what it begins after it was asked would run on."""
        if self._stop is not None:
            self._interrupt()

    def close(self) -> None:
        """Cancels it and frees its rows."""
        self.cancel()
        with self.reading, self._changed:
            results, self.results = self.results, None
            self._is_closed = True
            if self.state is OperationState.FINISHED:
                self.state = OperationState.CLOSED
            if results is not None:
                results.close()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after so many seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: self.state.is_final, seconds)

    @property
    def is_overdue(self) -> bool:
        """Whether it has run longer than the client gave it."""
        return self._until is not None and not self.state.is_final and time.monotonic() > self._until

    def used(self) -> None:
        """The client has asked for it."""
        self.last_used = time.monotonic()

    def note(self, line: str) -> None:
        """Adds a line to its log."""
        with self._changed:
            self._lines.append(line)

    def lines(self, count: int, *, first: bool = False) -> list[str]:
        """The next lines of its log."""
        with self._changed:
            start = 0 if first else self._lines_read
            found = self._lines[start : start + max(count, 0)]
            self._lines_read = start + len(found)
            return found
