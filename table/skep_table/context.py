"""What a table works with: storage, options, lock, clock, runner and listeners, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import LeaseLostError, LockError
from skep_format.options import Options
from skep_format.runner import Runner, ThreadRunner
from skep_format.storage import Storage
from skep_table.encryption import with_keys
from skep_table.events import NO_EVENTS, Events
from skep_table.lock import Lock, NoLock, held
from skep_table.locks.options import LOCK_RETRIES, LOCK_TIMEOUT_SECONDS, LOCK_WAIT_MILLISECONDS
from skep_table.metrics import observed, unobserved

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack


# A query in Spark's dialect, and the rows that its names mean → the rows of the answer.
Queries = Callable[[str, Mapping[str, Any]], "pa.Table"]


class ContextChanges(TypedDict, total=False):
    """The fields of a TableContext that `HudiTable.with_context` can replace."""

    options: Mapping[str, object]
    lock: Lock
    clock: Clock
    events: Events
    runner: Runner
    conflict_check: Callable[[Any], None] | None
    on_lost: Callable[[LeaseLostError], None]
    queries: Queries | None


@dataclass(frozen=True, slots=True)
class TableContext:
    """The surroundings of one opened table, shared by its reads, writes and services.

    `runner` runs the tasks of writes and services. `conflict_check` replaces the conflict strategy that the options
    name; it receives a `commit.conflict.CommitCandidate`. `on_lost` is called from another thread when the heartbeat
    of a write was lost, so that tasks which still run for it can be stopped. `queries` answers the SQL of validators.
    The storage has the keys of base files that the options have.

    In another process (a pickled table) only storage and options are the same: tasks read, the driver commits. A lock
    does not travel either; acquiring it there is a LockError.
    """

    storage: Storage
    options: Options = field(default_factory=Options)
    lock: Lock = field(default_factory=NoLock)
    clock: Clock = SYSTEM_CLOCK
    events: Events = NO_EVENTS
    runner: Runner = field(default_factory=ThreadRunner)
    conflict_check: Callable[[Any], None] | None = None
    on_lost: Callable[[LeaseLostError], None] = lambda _error: None
    queries: Queries | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage", with_keys(self.storage, self.options))

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self.storage, dict(unobserved(self.options)), isinstance(self.lock, NoLock))

    def with_changes(self, **changes: Unpack[ContextChanges]) -> TableContext:
        """A copy with these fields replaced. `with_options` adds options and keeps the others."""
        if "options" in changes and not isinstance(changes["options"], Options):
            changes["options"] = Options(changes["options"])
        return replace(self, **changes)  # type: ignore[arg-type] # options are Options now

    def with_options(self, more: Mapping[str, object]) -> TableContext:
        """A copy with further options, which win over those of the same key."""
        return replace(self, options=self.options.with_values(more)) if more else self

    @property
    def threads(self) -> ThreadRunner:
        """Threads of this process, for calls that only wait for storage, whatever runs the tasks."""
        return self.runner if isinstance(self.runner, ThreadRunner) else ThreadRunner()

    @property
    def lock_timeout_seconds(self) -> float:
        """How long to wait for the lock: skep's option, else Hudi's wait time and its retries, else the default."""
        options = self.options
        if not options.is_set(LOCK_TIMEOUT_SECONDS) and (
            options.is_set(LOCK_WAIT_MILLISECONDS) or options.is_set(LOCK_RETRIES)
        ):
            return options.value(LOCK_WAIT_MILLISECONDS) / 1000 * (1 + options.value(LOCK_RETRIES))
        return options.value(LOCK_TIMEOUT_SECONDS)

    def of_table(self, name: str) -> TableContext:
        """The context for the table of this name: with listeners that only its options ask for."""
        events = observed(self.events, self.options, name)
        return self if events is self.events else replace(self, events=events)

    @contextmanager
    def locked(self, timeout_seconds: float | None = None) -> Iterator[str]:
        """Holds the lock for a block and yields the lock's id. LockTimeoutError when it is not granted in time."""
        lock, wait = self.lock, self.lock_timeout_seconds if timeout_seconds is None else timeout_seconds
        if isinstance(lock, NoLock):
            yield lock.acquire(wait)
            return
        with ExitStack() as stack:
            with self.events.step("lock.wait"):
                lock_id = stack.enter_context(held(lock, wait))
            with self.events.step("lock.hold"), stack.pop_all():
                yield lock_id


class _LockElsewhere:
    """Stands for the lock of a table that was pickled: committing without the lock would not exclude other writers."""

    leased = False

    def acquire(self, timeout_seconds: float) -> str:  # noqa: ARG002 - the protocol's signature
        raise LockError(
            "the table was opened in another process, and its lock can't be used here",
            hint="open the table in this process, or give it a lock: table.with_context(lock=…)",
        )

    def release(self) -> None: ...

    def ensure_held(self) -> None:
        self.acquire(0)


def _unpickled(storage: Storage, options: dict[str, str], unlocked: bool) -> TableContext:
    return TableContext(storage, Options(options), NoLock() if unlocked else _LockElsewhere())
