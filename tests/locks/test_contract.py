"""What every leased lock promises, for each provider: metastore, storage, lock file, ZooKeeper, DynamoDB."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_format.errors import LeaseLostError, LockError, LockTimeoutError, UnsupportedError
from skep_format.storage import LocalStorage, Storage
from skep_table.events import Event, Events
from skep_table.lock import InProcessLock, Lock, held
from skep_table.locks.dynamodb import DynamoDbLock
from skep_table.locks.filesystem import FileSystemLock
from skep_table.locks.holders import agent_facts
from skep_table.locks.lease import LeasedLock
from skep_table.locks.storage import LOCK_FILE, Lease, StorageLock
from skep_table.locks.zookeeper import ZooKeeperLock

HOLDER = """
import os, signal, sys, time
from skep_table.lock import held
from skep_table.runtime.signals import exit_on_sigterm
{imports}
exit_on_sigterm()
lock = {code}
lock.acquire(10)
print("held", flush=True)
{then}
"""


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def swap(storage: Any, path: str, data: bytes | None) -> None:
    """Changes a file whatever its holder does to it at the same time."""
    until(lambda: storage.swap(path, data, storage.read_versioned(path)))


class Contract(ABC):
    """`name` is a lock's own for each test."""

    @pytest.fixture
    def name(self) -> str:
        return f"t{uuid.uuid4().hex[:12]}"

    @pytest.fixture(autouse=True)
    @abstractmethod
    def place(self, *args: Any) -> None:
        """Whatever `make` needs, kept on self."""

    @abstractmethod
    def make(self, name: str, **more: Any) -> LeasedLock: ...

    @abstractmethod
    def code(self, name: str) -> tuple[str, str]:
        """Imports and an expression that make the same lock in another process."""

    @abstractmethod
    def take_away(self, name: str, lock: LeasedLock) -> None:
        """What becomes of a lock that expires, or that somebody breaks."""

    beats = True  # whether the interval of heartbeats can be chosen

    def other_process(self, name: str, then: str) -> subprocess.Popen[str]:
        imports, code = self.code(name)
        script = HOLDER.format(imports=imports, code=code, then=then)
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    def test_it_is_a_lock(self, name: str) -> None:
        lock = self.make(name)
        assert isinstance(lock, Lock)
        assert lock.leased
        with held(lock, 5) as lock_id:
            assert lock_id == str(lock.lock_id)
            lock.ensure_held()
        assert lock.lock_id is None
        with pytest.raises(LeaseLostError):
            lock.ensure_held()
        lock.release()
        with held(lock, 5) as again:
            assert again != lock_id

    def test_twice_by_one_lock_is_refused(self, name: str) -> None:
        lock = self.make(name)
        with held(lock, 5), pytest.raises(LockError, match="held already"):
            lock.acquire(1)

    def test_a_time_out_names_the_holder_and_the_wait_is_reported(self, name: str) -> None:
        heard: list[Event] = []
        with held(self.make(name, purpose="the nightly job"), 5):
            waiting = self.make(name, events=Events(heard.append))
            with pytest.raises(LockTimeoutError, match="the nightly job") as raised:
                waiting.acquire(0.4)
            for fact in (
                f"{socket.gethostname()}, process {os.getpid()}",
                f"since {datetime.now(timezone.utc):%Y-%m-%d}",
                f"`skep lock break {waiting.target} ",
                f"--lock-id {raised.value.fields['lock_id']}`",
            ):
                assert fact in str(raised.value)
            assert waiting.lock_id is None
        progress = next(event for event in heard if event.name == "lock.waiting")
        assert "the nightly job" in str(progress.facts["holder"])
        with held(self.make(name), 5):
            pass

    def test_it_is_given_up_when_the_block_fails(self, name: str) -> None:
        with pytest.raises(KeyboardInterrupt), held(self.make(name), 5):
            raise KeyboardInterrupt
        with held(self.make(name), 2):
            pass

    def test_one_at_a_time(self, name: str) -> None:
        inside, most, done = 0, 0, 0

        def work() -> None:
            nonlocal inside, most, done
            for _ in range(3):
                lock = self.make(name)
                with held(lock, 60):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.002)
                    lock.ensure_held()
                    inside -= 1
                    done += 1

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (most, done) == (1, 9)

    def test_a_lock_that_was_taken_away_is_not_held(self, name: str) -> None:
        lock = self.make(name)
        lock.acquire(5)
        self.take_away(name, lock)
        with pytest.raises(LeaseLostError):
            lock.ensure_held()
        with held(self.make(name), 5) as other_id:
            lock.release()  # never another one's
            with pytest.raises(LockTimeoutError):
                self.make(name).acquire(0.1)
            assert other_id

    def test_the_heart_shows_of_the_loss(self, name: str) -> None:
        lost: list[LeaseLostError] = []
        lock = self.make(name, on_lost=lost.append, beat=0.1)
        lock.acquire(5)
        time.sleep(0.3)  # beats do no harm
        lock.ensure_held()
        self.take_away(name, lock)
        until(lambda: lost)
        assert "lost" in lost[0].message
        lock.release()

    def test_signal_handlers_stay_as_they_are(self, name: str) -> None:
        """A library installs none behind its user's back: the command line does, or `exit_on_sigterm` on request."""
        before = {number: signal.getsignal(number) for number in signal.valid_signals()}
        lock = self.make(name)
        with held(lock, 5):
            assert {number: signal.getsignal(number) for number in before} == before
        assert {number: signal.getsignal(number) for number in before} == before

    def test_a_killed_holder_is_not_waited_for(self, name: str) -> None:
        self.other_process(name, "os._exit(9)").wait()
        with held(self.make(name), 30):
            pass

    def test_a_terminated_holder_gives_it_up(self, name: str) -> None:
        process = self.other_process(name, "time.sleep(60)")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
        with held(self.make(name), 5):
            pass


class TestStorageLock(Contract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def storage(self, name: str) -> LocalStorage:
        return LocalStorage(str(self.folder / name))

    def make(self, name: str, beat: float = 30, **more: Any) -> LeasedLock:
        return StorageLock(self.storage(name), heartbeat_seconds=beat, **more)

    def code(self, name: str) -> tuple[str, str]:
        imports = "from skep_table.locks.storage import StorageLock; from skep_format.storage import LocalStorage"
        return imports, f"StorageLock(LocalStorage({str(self.folder / name)!r}))"

    def take_away(self, name: str, lock: LeasedLock) -> None:
        swap(self.storage(name), LOCK_FILE, Lease("somebody", 0, True).encode())

    def test_the_file_is_hudis(self, name: str) -> None:
        with held(self.make(name), 5):
            text = self.storage(name).read(LOCK_FILE).decode()
            assert text.startswith('{"expired": false, "validUntil": 1')
            assert agent_facts(Lease.parse(text.encode(), LOCK_FILE).owner)["pid"]
        assert Lease.parse(self.storage(name).read(LOCK_FILE), LOCK_FILE).expired

    @pytest.mark.parametrize("end", ["sys.exit(3)", "raise ValueError", "pass"])
    def test_it_is_given_up_at_the_end_of_the_interpreter(self, end: str, name: str) -> None:
        self.other_process(name, end).wait()
        assert Lease.parse(self.storage(name).read(LOCK_FILE), LOCK_FILE).expired

    def test_a_foreign_lease_is_respected_until_it_is_over(self, name: str) -> None:
        now = int(time.time() * 1000)
        self.storage(name).replace_atomic(LOCK_FILE, Lease("hudi-uuid", now + 400).encode())
        with pytest.raises(LockTimeoutError, match="hudi-uuid"):
            self.make(name).acquire(0.1)
        with held(self.make(name), 10):
            assert time.time() * 1000 > now + 900

    def test_a_lease_that_was_not_renewed_is_not_held(self, name: str) -> None:
        lock = self.make(name, validity_seconds=0.8)
        lock.acquire(5)
        time.sleep(0.5)
        with pytest.raises(LeaseLostError):
            lock.ensure_held()
        lock.release()


class TestStorageLockOnS3:
    """The same, decided by the server: writes on condition of the object's tag."""

    def test_one_at_a_time(self, s3_folder: Callable[[], Storage]) -> None:
        storage = s3_folder()
        order: list[int] = []

        def work(number: int) -> None:
            for _ in range(3):
                with held(StorageLock(storage), 60):
                    order.append(number)
                    time.sleep(0.002)
                    order.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(order) == 18
        assert order[::2] == order[1::2]

    def test_a_lost_lease_is_noticed(self, s3_folder: Callable[[], Storage]) -> None:
        storage = s3_folder()
        lock = StorageLock(storage, heartbeat_seconds=0.1)
        lock.acquire(5)
        time.sleep(0.3)
        lock.ensure_held()
        swap(storage, LOCK_FILE, Lease("somebody", 0, True).encode())
        with pytest.raises(LeaseLostError):
            lock.ensure_held()

    def test_a_lock_file_is_refused(self, s3_folder: Callable[[], Storage]) -> None:
        with pytest.raises(UnsupportedError, match="use the provider storage"):
            FileSystemLock(s3_folder())


class TestFileSystemLock(Contract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, name: str, beat: float = 30, **more: Any) -> LeasedLock:
        return FileSystemLock(LocalStorage(str(self.folder / name)), heartbeat_seconds=beat, **more)

    def code(self, name: str) -> tuple[str, str]:
        imports = "from skep_table.locks.filesystem import FileSystemLock; from skep_format.storage import LocalStorage"
        return imports, f"FileSystemLock(LocalStorage({str(self.folder / name)!r}))"

    def take_away(self, name: str, lock: LeasedLock) -> None:
        swap(LocalStorage(str(self.folder / name)), ".hoodie/lock", None)

    def test_a_file_of_hudis_excludes_and_goes_when_it_is_old_enough(self, name: str) -> None:
        folder = self.folder / name
        file = folder / ".hoodie/lock"
        file.parent.mkdir(parents=True)
        file.write_text('{"lockCreateTime": "2026-01-02 03:04:05", "lockThreadName": "main"}')
        with pytest.raises(LockTimeoutError, match=r"another client, thread main, since 2026-01-02 03:04:05 by"):
            self.make(name).acquire(0.2)
        file.write_text("")
        with pytest.raises(LockTimeoutError, match="another client"):
            self.make(name).acquire(0.2)
        with held(self.make(name, expire_seconds=0.5), 10):
            assert file.read_bytes()
        assert not file.exists()

    def test_an_active_holder_does_not_expire(self, name: str) -> None:
        with held(self.make(name, expire_seconds=0.4, beat=0.05), 5), pytest.raises(LockTimeoutError):
            self.make(name, expire_seconds=0.4).acquire(0.8)


class TestZooKeeperLock(Contract):
    @pytest.fixture(autouse=True)
    def place(self, zookeeper: str) -> None:
        self.hosts = zookeeper

    def make(self, name: str, beat: float = 0.5, **more: Any) -> LeasedLock:
        return ZooKeeperLock(self.hosts, f"/locks/{name}", session_seconds=max(1.0, 4 * beat), **more)

    def code(self, name: str) -> tuple[str, str]:
        imports = "from skep_table.locks.zookeeper import ZooKeeperLock"
        return imports, f"ZooKeeperLock({self.hosts!r}, '/locks/{name}', session_seconds=1)"

    def take_away(self, name: str, lock: LeasedLock) -> None:
        from kazoo.client import KazooClient

        client = KazooClient(self.hosts)
        client.start()
        client.delete(f"/locks/{name}/{lock.lock_id}")
        client.stop()
        client.close()

    def test_it_takes_turns_with_curator(self, name: str) -> None:
        """Nodes as Curator makes them, whose number alone gives the order."""
        from kazoo.client import KazooClient

        curator = KazooClient(self.hosts)
        curator.start()
        node = f"/locks/{name}/_c_ffffffff-0000-0000-0000-000000000000-lock-"
        first = curator.create(node, b"10.0.0.7", ephemeral=True, sequence=True, makepath=True)
        with pytest.raises(LockTimeoutError, match=r"10\.0\.0\.7"):
            self.make(name).acquire(0.3)
        curator.delete(first)
        with held(self.make(name), 5) as lock_id:
            second = curator.create(node, b"", ephemeral=True, sequence=True)
            own, other = (name.rpartition("lock-")[2] for name in (lock_id, second))
            assert own < other
        curator.stop()
        curator.close()


@pytest.mark.slow
class TestDynamoDbLock(Contract):
    @pytest.fixture(autouse=True)
    def place(self, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.endpoint = s3_options["fs.s3a.endpoint"]
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(key, "test")

    def make(self, name: str, beat: float = 5, **more: Any) -> LeasedLock:
        return DynamoDbLock("locks", name, endpoint_url=self.endpoint, lease_seconds=4 * beat, **more)

    def code(self, name: str) -> tuple[str, str]:
        imports = "from skep_table.locks.dynamodb import DynamoDbLock"
        return imports, f"DynamoDbLock('locks', {name!r}, endpoint_url={self.endpoint!r})"

    def client(self) -> Any:
        import boto3

        return boto3.client("dynamodb", region_name="us-east-1", endpoint_url=self.endpoint)

    def take_away(self, name: str, lock: LeasedLock) -> None:
        self.client().delete_item(TableName="locks", Key={"key": {"S": name}})

    def test_an_item_of_amazons_client_is_taken_over_after_its_lease(self, name: str) -> None:
        with held(self.make("makes-the-table"), 5):
            pass
        item = {"key": {"S": name}, "ownerName": {"S": "jvm-host"}, "leaseDuration": {"S": "800"}}
        self.client().put_item(TableName="locks", Item={**item, "recordVersionNumber": {"S": "1"}})
        start = time.monotonic()
        with pytest.raises(LockTimeoutError, match="jvm-host"):
            self.make(name).acquire(0.3)
        with held(self.make(name), 10):
            assert time.monotonic() - start > 0.8


@pytest.mark.metastore
class TestMetastoreLock(Contract):
    @pytest.fixture(autouse=True)
    def place(self, metastore: Metastore) -> None:
        self.metastore = metastore

    def make(self, name: str, beat: float = 15, **more: Any) -> LeasedLock:
        return HmsLock(self.metastore, "d", name, heartbeat_seconds=beat, **more)

    def code(self, name: str) -> tuple[str, str]:
        imports = "from skep_catalog.client import Metastore; from skep_catalog.lock import HmsLock"
        return imports, f"HmsLock(Metastore.connect({self.metastore.uri!r}), 'd', {name!r})"

    def take_away(self, name: str, lock: LeasedLock) -> None:
        assert isinstance(lock, HmsLock)
        assert lock.lock_id is not None
        self.metastore.unlock(lock.lock_id)


def test_between_threads_the_holder_is_named_too() -> None:
    with held(InProcessLock("/a/table"), 1), pytest.raises(LockTimeoutError, match=r"MainThread, since \d{4}-.* UTC"):
        InProcessLock("/a/table").acquire(0.05)


def test_nobody_is_not_named_as_the_holder() -> None:
    """No server answers, so nobody knows who has the lock."""
    nowhere = Metastore.connect("thrift://127.0.0.1:1", attempts=1)
    with pytest.raises(LockTimeoutError, match=r"the metastore does not answer: .*127\.0\.0\.1:1") as raised:
        HmsLock(nowhere, "d", "t").acquire(0.3)
    assert "None" not in str(raised.value)
