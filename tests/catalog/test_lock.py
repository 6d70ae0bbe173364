"""The metastore's lock: turns in order, heartbeats, time-outs, lost answers, and locks of older clients beside it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ttypes

from skep_catalog.client import Metastore
from skep_catalog.entities import LockAnswer, LockState
from skep_catalog.lock import HmsLock, describe, facts_of
from skep_format.errors import LeaseLostError, LockError, LockTimeoutError, MetastoreUnreachableError
from skep_table.lock import Lock, held

pytestmark = pytest.mark.metastore


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.nodeid)) % 10**9}"


@pytest.fixture
def no_locks_left(metastore: Metastore, name: str) -> Iterator[None]:
    yield
    assert metastore.locks("d", name) == []


@pytest.mark.usefixtures("no_locks_left")
class TestTurns:
    def test_it_is_a_lock(self, metastore: Metastore, name: str) -> None:
        lock = HmsLock(metastore, "d", name, purpose="20260101000000000")
        assert isinstance(lock, Lock)
        with held(lock, 5) as lock_id:
            lock.ensure_held()
            (found,) = metastore.locks("d", name)
            assert (str(found.lock_id), found.state) == (lock_id, LockState.ACQUIRED)
            assert facts_of(found)["purpose"] == "20260101000000000"
            assert "20260101000000000" in describe(found)
        with pytest.raises(LeaseLostError):
            lock.ensure_held()
        lock.release()

    def test_turns_are_taken_in_order(self, metastore: Metastore, name: str) -> None:
        order: list[int] = []
        first = HmsLock(metastore, "d", name)
        first.acquire(5)

        def contend(number: int) -> None:
            with held(HmsLock(metastore, "d", name), 20):
                order.append(number)

        threads = []
        for number in range(4):
            threads.append(threading.Thread(target=contend, args=(number,)))
            threads[-1].start()
            while len(metastore.locks("d", name)) < number + 2:
                time.sleep(0.01)
        assert [lock.state for lock in metastore.locks("d", name)] == [LockState.ACQUIRED, *[LockState.WAITING] * 4]
        first.release()
        for thread in threads:
            thread.join()
        assert order == [0, 1, 2, 3]

    def test_ids_rise(self, metastore: Metastore, name: str) -> None:
        ids = []
        for _ in range(3):
            with held(HmsLock(metastore, "d", name), 5) as lock_id:
                ids.append(int(lock_id))
        assert ids == sorted(set(ids))

    def test_a_time_out_names_the_holder_and_leaves_the_queue(self, metastore: Metastore, name: str) -> None:
        with held(HmsLock(metastore, "d", name, purpose="the holder"), 5) as lock_id:
            with pytest.raises(LockTimeoutError, match="the holder") as error:
                HmsLock(metastore, "d", name).acquire(0.3)
            assert error.value.fields["lock_id"] == int(lock_id)
            assert len(metastore.locks("d", name)) == 1

    def test_it_is_released_when_the_block_fails(self, metastore: Metastore, name: str) -> None:
        with pytest.raises(KeyboardInterrupt), held(HmsLock(metastore, "d", name), 5):
            raise KeyboardInterrupt

    def test_partitions_do_not_exclude_each_other_but_the_table_does(self, metastore: Metastore, name: str) -> None:
        one, two = (HmsLock(metastore, "d", name, partition=p) for p in ("p=1", "p=2"))
        with held(one, 5), held(two, 5), pytest.raises(LockTimeoutError):
            HmsLock(metastore, "d", name).acquire(0.2)

    def test_twice_by_one_lock_is_refused(self, metastore: Metastore, name: str) -> None:
        lock = HmsLock(metastore, "d", name)
        with held(lock, 5), pytest.raises(LockError, match="held already"):
            lock.acquire(1)


@pytest.mark.usefixtures("no_locks_left")
class TestLosses:
    def test_a_broken_lock_is_noticed(self, metastore: Metastore, name: str) -> None:
        lost: list[LeaseLostError] = []
        lock = HmsLock(metastore, "d", name, heartbeat_seconds=0.1, on_lost=lost.append)
        lock_id = lock.acquire(5)
        metastore.unlock(int(lock_id))
        with pytest.raises(LeaseLostError, match=f"lock {lock_id} on d.{name} is lost"):
            lock.ensure_held()
        deadline = time.monotonic() + 5
        while not lost and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lost
        assert lost[0].fields["lock_id"] == int(lock_id)
        lock.release()

    def test_heartbeats_are_sent_while_waiting_and_holding(self, metastore: Metastore, name: str) -> None:
        first, second = (HmsLock(metastore, "d", name, heartbeat_seconds=0.1) for _ in range(2))
        first.acquire(5)
        waiting = threading.Thread(target=second.acquire, args=(10,))
        waiting.start()
        time.sleep(0.3)
        before = {lock.lock_id: lock.last_heartbeat_ms for lock in metastore.locks("d", name)}
        time.sleep(0.5)
        after = {lock.lock_id: lock.last_heartbeat_ms for lock in metastore.locks("d", name)}
        assert len(before) == 2
        assert all(after[lock_id] > before[lock_id] for lock_id in before)
        first.release()
        waiting.join()
        second.release()

    def test_a_lost_answer_is_adopted(self, metastore: Metastore, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        granted: list[LockAnswer] = []
        ask = metastore.lock

        def lose_the_answer(*args: Any, **kwargs: Any) -> LockAnswer:
            granted.append(ask(*args, **kwargs))
            raise MetastoreUnreachableError("the line was cut after the question", call="lock")

        monkeypatch.setattr(metastore, "lock", lose_the_answer)
        with held(HmsLock(metastore, "d", name), 5) as lock_id:
            assert lock_id == str(granted[0].lock_id)
            assert len(metastore.locks("d", name)) == 1
            with pytest.raises(LockTimeoutError):  # adopted as it is: one that waits
                HmsLock(metastore, "d", name).acquire(0.1)

    def test_a_lost_answer_to_a_release_is_no_error(
        self, metastore: Metastore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = HmsLock(metastore, "d", name)
        lock.acquire(5)
        unlock = metastore.unlock

        def lose_the_answer(lock_id: int) -> None:
            unlock(lock_id)
            raise MetastoreUnreachableError("the line was cut after the question", call="unlock")

        monkeypatch.setattr(metastore, "unlock", lose_the_answer)
        lock.release()

    def test_a_lock_that_could_not_be_given_up_is_given_up_later(
        self, metastore: Metastore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The process lives on, so nobody else may take the lock for left: it looks after that itself."""
        lock = HmsLock(metastore, "d", name)
        lock.acquire(5)
        monkeypatch.setattr(metastore, "unlock", _unreachable)
        lock.release()
        _until(lambda: metastore.locks("d", name) == [])

    def test_a_lock_that_this_process_meets_before_gives_it_up_with_the_reason(
        self, metastore: Metastore, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        lock = HmsLock(metastore, "d", name, purpose="the first")
        lock.acquire(5)
        nowhere = Metastore.connect("thrift://127.0.0.1:1", attempts=1)
        with monkeypatch.context() as patched:
            patched.setattr(metastore, "unlock", _unreachable)
            patched.setattr(metastore, "own_connection", lambda: nowhere)
            lock.release()
        with held(HmsLock(metastore, "d", name), 10):
            pass
        assert "was broken: this process has done with it and could not give it up" in caplog.text
        assert "its process has ended" not in caplog.text

    def test_a_forgotten_lock_is_released(
        self, metastore: Metastore, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        HmsLock(metastore, "d", name, heartbeat_seconds=0.05).acquire(5)
        gc.collect()
        assert metastore.locks("d", name) == []
        assert "was forgotten by its owner" in caplog.text

    def test_a_time_out_explains_how_to_break_the_lock(self, metastore: Metastore, name: str) -> None:
        with held(HmsLock(metastore, "d", name), 5) as lock_id:
            with pytest.raises(LockTimeoutError) as error:
                HmsLock(metastore, "d", name).acquire(0.3)
            assert f"--lock-id {lock_id}" in (error.value.hint or "")


def _unreachable(lock_id: int) -> None:
    raise MetastoreUnreachableError("the metastore restarts", call="unlock")


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert true()


@pytest.mark.usefixtures("no_locks_left")
class TestOthers:
    """Hudi's own provider sends requests without an operation type."""

    def test_an_unset_operation_type_is_granted_and_excludes(self, metastore: Metastore, name: str) -> None:
        component = ttypes.LockComponent(
            type=ttypes.LockType.EXCLUSIVE,
            level=ttypes.LockLevel.TABLE,
            dbname="d",
            tablename=name,
            operationType=None,
            isAcid=None,
            isDynamicPartitionWrite=None,
        )
        request = ttypes.LockRequest(component=[component], user="jvm", hostname="host")
        answer = metastore._connections.call("lock", lambda client: client.lock(request))
        assert answer.state == LockState.ACQUIRED.value
        with pytest.raises(LockTimeoutError, match="jvm@host"):
            HmsLock(metastore, "d", name).acquire(0.2)
        metastore.unlock(answer.lockid)
        with held(HmsLock(metastore, "d", name), 5):
            assert (
                metastore._connections.call("lock", lambda client: client.lock(request)).state
                == LockState.WAITING.value
            )
            (mine, theirs) = metastore.locks("d", name)
            assert theirs.blocked_by == mine.lock_id
            metastore.unlock(theirs.lock_id)
