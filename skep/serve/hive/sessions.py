"""Sessions of clients: each with its database, settings and views, and its operations, which run one by one."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skep.base import audit
from skep.handles.statements import LakeSession, StatementResult
from skep.query.sail import stoppable
from skep.query.spark import SparkJobs, gathered
from skep.serve.hive.dialect import as_hive_rows
from skep.serve.hive.operations import CallError, Handle, HiveOperation, OperationState
from skep.serve.hive.results import Results
from skep.serve.hive.rights import answers_rows, changes_nothing, check_right, shown
from skep.serve.hive.users import User
from skep_format.errors import InputError
from skep_sql.parsing.statements import Name, SetOption, Statement, Use
from skep_sql.protocols import TableCatalog

if TYPE_CHECKING:
    from skep.lake import Lake
    from skep.query.result import SqlResult
    from skep.serve.hive.settings import Limits, SqlServerSettings

log = logging.getLogger("skep.serve.sql")

EXECUTE: Final = 0  # the protocol's number of statements among kinds of operations


@dataclass(eq=False)
class Client:
    """A connection, or a request over HTTP: whose it is, and the sessions that end with it."""

    address: str
    user: User | None
    name: str = ""  # without users: what the client calls itself
    has_left: Callable[[], bool] = lambda: False
    keeps_sessions: bool = False
    handles: list[Handle] = field(default_factory=list)


class SqlSession:
    """One client's statements over the lake."""

    def __init__(self, lake: Lake, user: User, address: str, protocol: int, hub: SqlHub) -> None:
        self.handle = Handle.new()
        self.user, self.address, self.protocol = user, address, protocol
        self.lake = lake.for_client()
        self.last_used = time.monotonic()
        self.operations: dict[bytes, HiveOperation] = {}
        self._sql = LakeSession(self.lake)
        self._sql.session.user = user.name or "anonymous"
        self._hub = hub
        self._waiting: deque[HiveOperation] = deque()
        self._runs = self._closed = False
        self._guard = threading.Lock()

    @property
    def views(self) -> list[str]:
        """The names of its temporary views."""
        return sorted(self._sql.session.views)

    def configure(self, configuration: Mapping[str, str]) -> None:
        """What a client asks for when it opens the session: `use:database`, `set:hiveconf:KEY`, plain keys."""
        for key, value in configuration.items():
            kind, colon, name = key.removeprefix("set:").partition(":")
            if key.startswith("use:"):
                if key != "use:database":
                    raise InputError(f"{key} is no setting of a session", found=key)
                self._sql.carry_out(Use(Name((value,))))
            elif not key.startswith("set:") or (colon and kind in ("hiveconf", "metaconf")):
                self._sql.session.settings.set(name if key.startswith("set:") else key, value)
            else:
                raise InputError(f"{key}: variables are not supported", hint="write the value itself", found=key)

    def execute(self, text: str, overlay: Mapping[str, str], seconds: float | None) -> HiveOperation:
        """Starts a statement; errors of its text and rights come now."""
        if self._hub.is_ending:
            raise CallError("the server ends", "08004")
        try:
            statement = self._sql.session.parse(text)
            check_right(statement, self.user.name, self.user.may_write, self.views)
        except Exception as error:
            self._audit(shown(text), "refused", type(error).__name__, 0.0)
            raise
        words, stop, jobs = shown(text, statement), threading.Event(), SparkJobs()

        def work(operation: HiveOperation) -> Results | None:
            operation.note(f"running for {self.user.name or 'anonymous'}")
            with self._overlaid(overlay), gathered(jobs), stoppable(stop):
                answer = self._sql.carry_out(statement)
                if isinstance(answer, StatementResult) and answer.writes:
                    operation.changed = sum(answer.counts.values())
                for write in getattr(answer, "writes", ()):
                    operation.note(str(write))
                with _reader(statement, answer, self._sql.session.catalog) as reader:
                    batches = _until_cancelled(reader, operation)
                    results = Results(reader.schema, batches, self._hub.limits.result_bytes)
            operation.note(f"finished in {time.time() - operation.began:.3f} s, {results.num_rows} rows")
            return results

        def interrupt() -> None:
            stop.set()
            jobs.cancel()

        def ended(operation: HiveOperation) -> None:
            error = None if operation.failure is None else operation.failure.sql_state
            self._audit(words, operation.state.name.lower(), error, operation.completed - operation.began)

        operation = HiveOperation(
            EXECUTE,
            work,
            has_rows=answers_rows(statement),
            keeps_state=changes_nothing(statement, self.views) and not _is_of_session(statement),
            interrupt=interrupt,
            seconds=seconds,
            ended=ended,
        )
        self.add(operation)
        self._enqueue(operation)
        return operation

    def _audit(self, statement: str, state: str, error: str | None, seconds: float) -> None:
        facts: dict[str, object] = {"user": self.user.name, "client": self.address, "session": self.handle.guid.hex()}
        try:
            audit.note("sql", **facts, statement=statement, state=state, error=error, seconds=round(seconds, 3))
        except OSError as failed:
            log.warning("the audit file can't be written: %s; %s, %s: %s", failed, facts, state, statement)

    @contextmanager
    def _overlaid(self, overlay: Mapping[str, str]) -> Iterator[None]:
        """With settings that one statement brings."""
        settings = self._sql.session.settings
        before = {key: settings.get(key) for key in overlay}
        for key, value in overlay.items():
            settings.set(key, value)
        try:
            yield
        finally:
            for key, earlier in before.items():
                settings.reset(key)
                if earlier is not None:
                    settings.set(key, earlier)

    # -- operations

    def add(self, operation: HiveOperation) -> None:
        """CallError for one too many, or after the end of the session."""
        with self._guard:
            if self._closed:
                raise CallError("the session is closed")
            if len(self.operations) >= self._hub.limits.operations:
                raise CallError(f"the session has {len(self.operations)} operations open: close some", "54000")
            self.operations[operation.handle.guid] = operation

    def _enqueue(self, operation: HiveOperation) -> None:
        with self._guard:
            self._waiting.append(operation)
            if self._runs:
                return
            self._runs = True
        self._hub.pool.submit(self._run_next)

    def _run_next(self) -> None:
        """One operation; the next one queues behind those of other sessions."""
        with self._guard:
            operation = self._waiting.popleft()
        with self._hub.busy(operation):
            operation.run()
        with self._guard:
            self._runs = bool(self._waiting)
        if self._runs:
            try:
                self._hub.pool.submit(self._run_next)
            except RuntimeError:  # the server ends
                self.close()

    def close_operation(self, operation: HiveOperation) -> None:
        """Cancels it and forgets it."""
        with self._guard:
            self.operations.pop(operation.handle.guid, None)
        operation.close()

    @property
    def is_busy(self) -> bool:
        """Whether a statement runs or waits."""
        return any(not operation.state.is_final for operation in self._listed())

    def _listed(self) -> list[HiveOperation]:
        with self._guard:
            return list(self.operations.values())

    def sweep(self, idle_operation_seconds: float) -> None:
        """Ends statements that took too long, and operations that nobody reads."""
        now = time.monotonic()
        for operation in self._listed():
            if operation.is_overdue:
                operation.cancel(OperationState.TIMED_OUT)
            if operation.state.is_final and now - operation.last_used > idle_operation_seconds:
                self.close_operation(operation)

    def close(self) -> None:
        """Cancels and frees all operations."""
        with self._guard:
            self._closed = True
            listed, self.operations = self.operations, {}
        for operation in listed.values():
            operation.close()


def _reader(statement: Statement, answer: SqlResult | StatementResult, catalog: TableCatalog) -> pa.RecordBatchReader:
    """Queries stream; other statements have few rows."""
    if isinstance(answer, StatementResult):
        return as_hive_rows(statement, answer.to_arrow(), catalog).to_reader()
    return answer.to_reader()


def _until_cancelled(reader: pa.RecordBatchReader, operation: HiveOperation) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if operation.state.is_final:
            raise CallError("the statement was cancelled", "57014")
        yield batch


def _is_of_session(statement: Statement) -> bool:
    """Settings, views and the database of a session change at once: they are not cancelled half-way."""
    return not answers_rows(statement) or isinstance(statement, SetOption)


class SqlHub:
    """All sessions, and the threads that carry out their statements."""

    def __init__(self, lake: Lake, settings: SqlServerSettings) -> None:
        self.lake = lake
        self.settings = settings
        self.limits: Limits = settings.limits
        self.pool = ThreadPoolExecutor(self.limits.statements, thread_name_prefix="skep-sql")
        self._sessions: dict[bytes, SqlSession] = {}
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._running: set[HiveOperation] = set()
        self._idle = threading.Condition()
        self._sweeper = threading.Thread(target=self._sweep, name="skep-sql-sweeper", daemon=True)
        self._sweeper.start()

    @property
    def sessions(self) -> list[SqlSession]:
        """Those that are open."""
        with self._guard:
            return list(self._sessions.values())

    def open(self, client: Client, protocol: int, configuration: Mapping[str, str], name: str) -> SqlSession:
        """A session of a client that has proved who it is, where that is asked."""
        user = client.user
        if user is None:
            if self.settings.users is not None:
                raise CallError("a user and password are needed (SASL PLAIN, or Basic over HTTP)", "28000")
            user = User(client.name or name, self.settings.anonymous_writes)
        session = SqlSession(self.lake, user, client.address, protocol, self)
        session.configure(configuration)
        with self._guard:
            if self._ended.is_set():
                raise CallError("the server ends", "08004")
            if len(self._sessions) >= self.limits.sessions:
                raise CallError(f"the server has {len(self._sessions)} sessions open, which is its limit", "08004")
            self._sessions[session.handle.guid] = session
        if not client.keeps_sessions:
            client.handles.append(session.handle)
        return session

    def session(self, client: Client, guid: bytes, secret: bytes) -> SqlSession:
        """CallError for a handle that is unknown, or another user's."""
        with self._guard:
            found = self._sessions.get(guid)
        if found is None or not hmac.compare_digest(found.handle.secret, secret) or not _is_same(found, client):
            raise CallError("Invalid SessionHandle: there is no such session (any more)")
        found.last_used = time.monotonic()
        return found

    def operation(self, client: Client, guid: bytes, secret: bytes) -> tuple[SqlSession, HiveOperation]:
        """The same for operations."""
        for session in self.sessions:
            found = session.operations.get(guid)
            if found is not None and hmac.compare_digest(found.handle.secret, secret) and _is_same(session, client):
                session.last_used = time.monotonic()
                found.used()
                return session, found
        raise CallError("Invalid OperationHandle: there is no such operation (any more)")

    def close_session(self, session: SqlSession) -> None:
        """Cancels what it runs."""
        with self._guard:
            self._sessions.pop(session.handle.guid, None)
        session.close()

    def left(self, client: Client) -> None:
        """The client's connection is closed: so are its sessions."""
        for handle in client.handles:
            with self._guard:
                session = self._sessions.get(handle.guid)
            if session is not None:
                self.close_session(session)

    @contextmanager
    def busy(self, operation: HiveOperation) -> Iterator[None]:
        """Around the work of a statement, which may go on after it was cancelled."""
        with self._idle:
            self._running.add(operation)
        try:
            yield
        finally:
            with self._idle:
                self._running.discard(operation)
                self._idle.notify_all()

    def _sweep(self) -> None:
        while not self._ended.wait(0.25):
            now = time.monotonic()
            with self._idle:
                running = list(self._running)
            for operation in running:
                try:
                    operation.insist()
                except Exception:
                    log.exception("a statement could not be stopped")
            for session in self.sessions:
                try:
                    session.sweep(self.limits.idle_operation_seconds)
                    if now - session.last_used > self.limits.idle_session_seconds and not session.is_busy:
                        self.close_session(session)
                except Exception:
                    log.exception("a session could not be swept")

    @property
    def is_ending(self) -> bool:
        """Nothing new is taken."""
        return self._ended.is_set()

    def drain(self, seconds: float) -> None:
        """Nothing new is taken; statements under way may end in so many seconds."""
        with self._guard:
            self._ended.set()
        until = time.monotonic() + seconds
        for session in self.sessions:
            for operation in list(session.operations.values()):
                operation.wait(max(0.0, until - time.monotonic()))

    def close(self) -> bool:
        """Cancels what runs; whether it has ended."""
        with self._guard:
            self._ended.set()
        for session in self.sessions:
            self.close_session(session)
        self.pool.shutdown(wait=False, cancel_futures=True)
        self._sweeper.join()
        with self._idle:  # engines that are asked to stop take a moment
            return self._idle.wait_for(lambda: not self._running, 2.0)


def _is_same(session: SqlSession, client: Client) -> bool:
    return client.user is None or client.user.name == session.user.name
