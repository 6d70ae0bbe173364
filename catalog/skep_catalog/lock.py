"""The metastore's lock as the lock of a table's writers.

A request that has to wait keeps its place in the server's queue, and heartbeats from then on; so turns are taken in
order. It excludes Hudi's own writers that use HiveMetastoreBasedLockProvider on the same database and table.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.client import Metastore
from skep_catalog.entities import LockAnswer, LockInfo, LockState
from skep_format.clock import SYSTEM_CLOCK, retried, within
from skep_format.errors import (
    CatalogError,
    LeaseLostError,
    LockError,
    MetastoreUnreachableError,
    NoSuchLockError,
    UnsupportedError,
)
from skep_table.locks.holders import agent_facts, agent_text, has_ended
from skep_table.locks.holders import describe as describe_facts
from skep_table.locks.lease import LeasedLock, LockTerms, Queue
from skep_table.locks.options import LOCK_PROVIDER

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("skep.lock")

# A metastore that restarts is waited for so long; it keeps its locks across the restart.
_PATIENCE_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 10.0
_KEPT_SECONDS: Final = 900.0  # longer than servers keep locks that send no heartbeats (300 s by default)
_AGENT_CHARACTERS: Final = 128  # the width of the column in the metastore's database

PARTITIONS_SUFFIX: Final = "__partitions"
"""After a table's name: the one on which locks of its partitions are."""

_abandoned: set[str] = set()  # agent texts of locks of this process that could not be given up


class _Turns:
    """Locks that were given up by threads of this process, counted for those that wait for the same one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended: Counter[str] = Counter()

    def end(self, resource: str) -> None:
        with self._changed:
            self._ended[resource] += 1
            self._changed.notify_all()

    def wait(self, resource: str, seen: int, seconds: float = 0) -> int:
        """Until more than `seen` have ended, at most so long; returns how many have."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended[resource] != seen, seconds)
            return self._ended[resource]


_turns = _Turns()


def client_with_locks(catalog: EntryCatalog) -> Metastore:
    """The client of a catalog that grants locks. UnsupportedError for AWS Glue, which grants none."""
    if isinstance(catalog, Metastore):
        return catalog
    raise UnsupportedError(
        f"AWS Glue ({catalog.uri}) has no locks",
        hint=f"{LOCK_PROVIDER.key} names what all writers share: storage needs no server; dynamodb, zookeeper",
        option=LOCK_PROVIDER.key,
        uri=catalog.uri,
    )


class HmsLock(LeasedLock):
    """The exclusive lock of `database.table` in a Hive Metastore, or of one partition of it (`k=v/…`).

    `purpose` (the instant, for example) is shown in the lock's agent text. A waiting writer releases the lock of a
    process that certainly ended: not every metastore does that by itself.
    """

    provider = "metastore"
    _in_turns = True

    def __init__(
        self,
        metastore: Metastore,
        database: str,
        table: str,
        *,
        partition: str | None = None,
        heartbeat_seconds: float = 15.0,
        **terms: Unpack[LockTerms],
    ) -> None:
        self._database, self._table, self._partition = database.lower(), table.lower(), partition
        name = f"{self._database}.{self._table}" + (f"/{partition}" if partition else "")
        super().__init__(name, heartbeat_seconds=heartbeat_seconds, **terms)
        self._metastore = metastore
        self._lock_id: int | None = None
        self._agent = ""
        self._beating: Metastore | None = None
        self._unreachable_since: float | None = None
        self._turns_seen = 0

    @property
    def target(self) -> str:
        return f"{self._database}.{self._table}"

    @property
    def metastore(self) -> Metastore:
        """The client that the lock uses."""
        return self._metastore

    def of_partition(self, partition_path: str, on_lost: Callable[[LeaseLostError], None]) -> HmsLock:
        """The lock of one partition, for as long as a write takes.

        It is one on another name than the table's: the server would let it exclude the table's own, short locks.
        """
        return HmsLock(
            self._metastore,
            self._database,
            self._table + PARTITIONS_SUFFIX,
            partition=partition_path,
            purpose=self._purpose,
            heartbeat_seconds=self._heartbeat_seconds,
            clock=self._clock,
            events=self._events,
            on_lost=on_lost,
        )

    @property
    def lock_id(self) -> int | None:
        """It only rises from lock to lock."""
        return self._lock_id

    def _enter(self) -> bool:
        self._unreachable_since = None
        self._turns_seen = _turns.wait(self._resource, -1)
        return self._request()

    @property
    def _resource(self) -> str:
        return f"{self._metastore.uri}/{self.name}"

    def _request(self) -> bool:
        """Asks once. When the answer is lost, the request is looked for by its agent text: found, it is ours."""
        self._agent = agent_text(self._purpose, most=_AGENT_CHARACTERS)
        try:
            answer = self._metastore.lock(
                self._database,
                self._table,
                partition=self._partition,
                agent_info=self._agent,
                user=self._metastore.user,
                host=socket.gethostname(),
            )
        except MetastoreUnreachableError as error:
            found = self._adopted(self._agent)
            if found is None:
                return self._bear_with(error)
            answer = LockAnswer(found.lock_id, found.state)
        self._lock_id = answer.lock_id
        return answer.state is LockState.ACQUIRED

    def _adopted(self, agent: str) -> LockInfo | None:
        try:
            found = next((lock for lock in self.locks() if lock.agent_info == agent), None)
        except MetastoreUnreachableError:
            self._abandon(agent)  # it may be there
            return None
        if found is not None:
            log.info("the answer to a lock request on %s was lost; lock %s is ours", self.name, found.lock_id)
        return found

    def _bear_with(self, error: MetastoreUnreachableError) -> bool:
        """A metastore that does not answer: not granted yet, and for how long is that true?"""
        now = self._clock.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
            log.warning("waiting for the lock on %s: %s", self.name, error.message)
        if now - self._unreachable_since > _PATIENCE_SECONDS:
            raise error
        return False

    def _poll(self) -> bool:
        if self._lock_id is None:
            return self._request()
        try:
            state = self._metastore.check_lock(self._lock_id).state
        except NoSuchLockError as error:
            raise LockError(
                f"the place in the queue for the lock on {self.name} (id {self._lock_id}) expired or was broken",
                lock_id=self._lock_id,
            ) from error
        except MetastoreUnreachableError as error:
            return self._bear_with(error)
        self._unreachable_since = None
        return state is LockState.ACQUIRED

    def _pause(self, seconds: float) -> int:
        """Turns that end in this process are known here at once."""
        if self._clock is not SYSTEM_CLOCK:
            return super()._pause(seconds)
        before, self._turns_seen = self._turns_seen, _turns.wait(self._resource, self._turns_seen, seconds)
        return self._turns_seen - before

    def _leave(self) -> None:
        try:
            self._give_up()
        finally:
            _turns.end(self._resource)

    def _give_up(self) -> None:
        lock_id, self._lock_id = self._lock_id, None
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.close()
        assert lock_id is not None
        try:
            try:
                self._metastore.unlock(lock_id)
            except MetastoreUnreachableError:
                with suppress(NoSuchLockError):  # the first try may have come through, its answer lost
                    self._metastore.unlock(lock_id)
        except NoSuchLockError as error:
            raise LeaseLostError(f"lock {lock_id} on {self.name} no longer exists", lock_id=lock_id) from error
        except MetastoreUnreachableError:
            self._abandon(self._agent)
            raise

    def _abandon(self, agent: str) -> None:
        """A lock that could not be given up would exclude others as long as its server keeps it: it is given up when
        the metastore answers again, or by the first caller in this process that finds it before that."""
        _abandoned.add(agent)
        arguments = (self._metastore.own_connection(), self._database, self._table, agent)
        threading.Thread(target=_give_up_later, args=arguments, name="lock-abandoned", daemon=True).start()

    def _look(self) -> None:
        assert self._lock_id is not None
        look = partial(self._metastore.check_lock, self._lock_id)
        pauses = within(_PATIENCE_SECONDS, _RETRY_SECONDS, self._clock)
        try:
            answer = retried(look, MetastoreUnreachableError, pauses, self._clock)
        except NoSuchLockError as error:
            raise self.lease_lost() from error
        if answer.state is not LockState.ACQUIRED:
            raise self.lease_lost()

    def _beat(self) -> None:
        """On a connection of its own: calls of the writer may take long."""
        lock_id = self._lock_id
        if lock_id is None:
            return
        if self._beating is None:
            self._beating = self._metastore.own_connection()
        try:
            self._beating.heartbeat(lock_id)
        except NoSuchLockError as error:
            raise self.lease_lost() from error

    def _queue(self) -> Queue:
        try:
            locks = self.locks()
        except MetastoreUnreachableError as error:
            return Queue(unknown=f"the metastore does not answer: {error.message}")
        ours = self._lock_id
        if ours is None:
            return Queue(unknown="the metastore has not answered the request for it")
        ahead = [lock for lock in locks if lock.lock_id < ours and self._excludes(lock)]
        for lock in ahead:
            if lock.agent_info in _abandoned:
                self._break(lock, "this process has done with it and could not give it up")
            elif has_ended(lock.agent_info):
                self._break(lock, "its process has ended")
        blocked_by = next((lock.blocked_by for lock in locks if lock.lock_id == ours), None)
        held = [lock for lock in ahead if lock.state is LockState.ACQUIRED]
        holder = next((lock for lock in held if lock.lock_id == blocked_by), held[0] if held else None)
        if holder is None:
            first = f", {describe(ahead[0])} first" if ahead else ""
            return Queue(None, max(1, len(ahead)), unknown=f"nobody holds it, {len(ahead)} wait before us{first}")
        return Queue(describe(holder), max(1, len(ahead)), holder.lock_id)

    def _excludes(self, lock: LockInfo) -> bool:
        if self._partition is None or lock.partition is None:
            return True
        return self._partition.lower() == lock.partition.lower()

    def _break(self, lock: LockInfo, why: str) -> None:
        with suppress(NoSuchLockError):
            self._metastore.unlock(lock.lock_id)
        _abandoned.discard(lock.agent_info or "")
        log.warning("lock %s on %s was broken: %s: %s", lock.lock_id, self.name, why, describe(lock))
        self._events.emit("lock.broken", lock=self.name, lock_id=lock.lock_id, holder=describe(lock))

    def locks(self) -> list[LockInfo]:
        """Who has the lock, and who waits for it: the oldest first."""
        return self._metastore.locks(self._database, self._table)


def _give_up_later(metastore: Metastore, database: str, table: str, agent: str) -> None:
    """Asks the metastore until it answers, for as long as it may keep a lock without heartbeats."""
    pause, ended = _RETRY_SECONDS, threading.Event()
    deadline = SYSTEM_CLOCK.monotonic() + _KEPT_SECONDS
    with metastore:
        while agent in _abandoned and SYSTEM_CLOCK.monotonic() < deadline:
            ended.wait(pause)
            pause = min(2 * pause, _LONGEST_RETRY_SECONDS)
            try:
                for lock in metastore.locks(database, table):
                    if lock.agent_info == agent:
                        metastore.unlock(lock.lock_id)
                        log.info("lock %s on %s.%s, left over, is given up", lock.lock_id, database, table)
            except MetastoreUnreachableError:
                continue
            except CatalogError as error:  # released meanwhile, or the metastore refuses
                log.info("what is left of a lock on %s.%s: %s", database, table, error.message)
            _abandoned.discard(agent)


def describe(lock: LockInfo) -> str:
    """A lock's holder in words."""
    since = None if lock.acquired_at_ms is None else lock.acquired_at_ms / 1000
    return f"{describe_facts(facts_of(lock), user=lock.user, host=lock.host, since=since)} (lock {lock.lock_id})"


def facts_of(lock: LockInfo) -> dict[str, object]:
    """What a skep holder wrote into the lock's agent text; empty for others."""
    return agent_facts(lock.agent_info)
