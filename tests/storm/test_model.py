"""Writers as a state machine: each storage call of a writer is one step, time is simulated, any step may be the last.

Every write reads the latest value of one file group and writes the next one. So the value that readers see must be the
number of completed commits at any moment, and an acknowledged commit must stay: the table is linearizable.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import IO, Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep_format.errors import AlreadyExistsError, SkepError, StorageError
from skep_format.names import Marker, MarkerType
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import FileStatus, FolderListing, StorageFlags
from skep_format.storage.versioned import Versioned
from skep_format.timeline.instant import Action, State
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_format.versions import known_versions
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.parts.markers import create_marker
from skep_table.commit.transaction import Transaction
from skep_table.locks.storage import StorageLock
from skep_table.table import HudiTable

GROUP = "group-0"
WRITERS = 3


class Killed(BaseException):
    """The writer has ended: no clean-up has any effect."""


class Clock:
    """Time advances only where the test advances it, and where a writer sleeps."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float) -> None:
        gate()
        self.time += timedelta(seconds=max(seconds, 0.01))


@dataclass
class Writer:
    """A thread that takes one step on request."""

    work: Callable[[], None]
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    at: str = ""  # the call that is next
    fate: str = ""  # what happens to it: dies, fails, or its answer is lost
    ended: bool = False
    error: BaseException | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self.back.acquire()

    def step(self) -> None:
        if not self.ended:
            self.turn.release()
            assert self.back.acquire(timeout=60), "a step does not end"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        running.writer = self
        try:
            gate()
            self.work()
        except (Killed, SkepError):
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self.back.release()


running = threading.local()


def gate(call: str = "") -> str:
    """The end of a step. Returns what is to happen to the call that follows."""
    writer: Writer | None = getattr(running, "writer", None)
    if writer is None:
        return ""
    writer.at = call
    writer.back.release()
    writer.turn.acquire()
    if writer.fate == "dies":
        raise Killed
    fate, writer.fate = writer.fate, ""
    return fate


class Files:
    """A storage in memory, whose every call is a step of the writer that makes it."""

    flags = StorageFlags(atomic_rename=True)
    root = "memory://table"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.files: dict[str, tuple[bytes, int]] = {}

    def _do(self, call: Callable[[], Any], name: str = "") -> Any:
        fate = gate(name)
        if fate == "fails":
            raise StorageError("injected")
        answer = call()
        if fate == "loses":
            raise StorageError("injected, after the fact")
        return answer

    def _put(self, path: str, data: bytes) -> None:
        self.files[path] = data, int(self.clock.now().timestamp() * 1000)

    def _create(self, path: str, data: bytes) -> None:
        if path in self.files:
            raise AlreadyExistsError(path, path=path)
        self._put(path, data)

    def _get(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def _move(self, source: str, target: str) -> None:
        self._create(target, self._get(source))
        del self.files[source]

    def _list(self, path: str, recursive: bool) -> list[FileStatus]:
        prefix = path + "/" if path else ""
        found = [name for name in self.files if name.startswith(prefix)]
        if not recursive:
            found = [name for name in found if "/" not in name[len(prefix) :]]
        return [FileStatus(name, len(self.files[name][0]), self.files[name][1]) for name in sorted(found)]

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        return self._do(lambda: self._list(path, recursive))

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:
        prefix = path + "/" if path else ""

        def found() -> FolderListing:
            names = [name[len(prefix) :] for name in self.files if name.startswith(prefix)]
            return FolderListing(
                self._list(path, False), sorted({name.partition("/")[0] for name in names if "/" in name})
            )

        return self._do(found)

    def exists(self, path: str) -> bool:
        return self._do(lambda: path in self.files or any(name.startswith(path + "/") for name in self.files))

    def size(self, path: str) -> int:
        return self._do(lambda: len(self._get(path)))

    def read(self, path: str) -> bytes:
        return self._do(lambda: self._get(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._do(lambda: self._get(path)[offset:][:length])

    def read_suffix(self, path: str, length: int) -> bytes:
        return self._do(lambda: self._get(path)[-length:])

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        return self._do(lambda: pa.BufferReader(self._get(path)))

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        out = io.BytesIO()
        yield out
        self._do(lambda: self._put(path, out.getvalue()))

    def sync(self, paths: Collection[str]) -> None:
        self._do(lambda: None)

    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        self._do(lambda: self._create(path, data))

    def replace_atomic(self, path: str, data: bytes, **how: Any) -> None:
        self._do(lambda: self._put(path, data))

    def rename(self, source: str, target: str) -> None:
        self._do(lambda: self._move(source, target), "rename")

    def delete(self, path: str, **how: Any) -> None:
        self._do(lambda: self.files.pop(path, None))

    def delete_many(self, paths: Collection[str], **how: Any) -> None:
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: str, **how: Any) -> None:
        def call() -> None:
            for name in [name for name in self.files if name.startswith(path + "/")]:
                del self.files[name]

        self._do(call)

    def read_versioned(self, path: str) -> Versioned | None:
        return self._do(lambda: Versioned(self.files[path][0], str(self.files[path])) if path in self.files else None)

    def swap(self, path: str, data: bytes | None, seen: Versioned | None) -> bool:
        def call() -> bool:
            now = Versioned(self.files[path][0], str(self.files[path])) if path in self.files else None
            if now != seen:
                return False
            if data is None:
                self.files.pop(path)
            else:
                self._put(path, data)
            return True

        return self._do(call, "swap")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What writers log while they are killed is of no use to anybody."""
    logger = logging.getLogger("skep")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def slices(table: HudiTable) -> list[Any]:
    return [each for each in table.view(metadata=False).slices("") if each.base_file is not None]


class Lake(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.files = Files(self.clock)
        self.acknowledged: list[str] = []
        self.writers: dict[int, Writer] = {}

    @initialize(version=st.sampled_from(known_versions()))
    def make(self, version: int) -> None:
        spec = TableSpec(name="t", schema=pa.schema([("id", pa.string())]), record_key=("id",), version=version)
        self.table = create_table(self.files, spec)

    def setting(self) -> dict[str, Any]:
        lock = StorageLock(self.files, clock=self.clock)
        options = Options({"hoodie.write.concurrency.mode": "optimistic_concurrency_control"})
        return {"lock": lock, "clock": self.clock, "runner": ThreadRunner(1), "options": options}

    def write(self) -> None:
        with Transaction.begin(self.table.with_context(**self.setting()), Action.COMMIT) as transaction:
            time = transaction.instant.requested_time
            transaction.inflight(CommitMetadata())
            latest = slices(transaction.table)
            value = int(self.files.read(latest[0].base_file.path)) if latest else 0
            name = f"{GROUP}_0-0-0_{time}.parquet"
            create_marker(self.files, Marker(time, "", name, MarkerType.MERGE))
            self.files.create_exclusive(name, str(value + 1).encode())
            base = latest[0].base_instant if latest else "null"
            stat = WriteStat(file_id=GROUP, path=name, partition_path="", prev_commit=base)
            transaction.complete(CommitMetadata(partition_to_write_stats={"": (stat,)}))
        self.acknowledged.append(time)

    # -- what happens

    @rule(number=st.integers(0, WRITERS - 1))
    def begin(self, number: int) -> None:
        if number not in self.writers or self.writers[number].ended:
            self.writers[number] = Writer(self.write)
            self.writers[number].start()

    def running(self) -> list[Writer]:
        return [writer for writer in self.writers.values() if not writer.ended]

    @precondition(running)
    @rule(data=st.data(), steps=st.integers(1, 40))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        writer = data.draw(st.sampled_from(self.running()))
        for _ in range(steps):
            writer.step()

    @precondition(running)
    @rule(data=st.data(), call=st.sampled_from(["rename", "swap"]))
    def go_on_until(self, data: st.DataObject, call: str) -> None:
        """To just before the commit point, or a change of the lock."""
        writer = data.draw(st.sampled_from(self.running()))
        for _ in range(1000):
            writer.step()
            if writer.ended or writer.at == call:
                break

    @precondition(running)
    @rule(data=st.data())
    def come_to_an_end(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from(self.running()))
        for _ in range(3000):
            writer.step()

    @precondition(running)
    @rule(data=st.data(), fate=st.sampled_from(["dies", "fails", "loses"]))
    def misfortune(self, data: st.DataObject, fate: str) -> None:
        writer = data.draw(st.sampled_from(self.running()))
        writer.fate = fate
        writer.step()

    @rule(seconds=st.sampled_from([1, 130, 400]))
    def time_passes(self, seconds: int) -> None:
        """Longer than a heartbeat, or a lease, may be missing."""
        self.clock.time += timedelta(seconds=seconds)

    # -- what must be true

    @invariant()
    def readers_see_every_commit_once(self) -> None:
        if not hasattr(self, "table"):
            return
        table = self.table.reload()
        completed = [instant.requested_time for instant in table.timeline.completed().data()]
        latest = slices(table)
        value = int(self.files.read(latest[0].base_file.path)) if latest else 0
        assert value == len(completed), f"{len(completed)} commits, and the value is {value}"
        assert set(self.acknowledged) <= set(completed)

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for _ in range(5000):
            for writer in self.running():
                writer.step()
        assert not self.running(), "a writer does not end"
        self.readers_see_every_commit_once()
        self.clock.time += timedelta(seconds=1000)
        self.write()
        self.readers_see_every_commit_once()
        table = self.table.reload()
        assert not table.timeline.pending().instants
        kept = {f"{GROUP}_0-0-0_{i.requested_time}.parquet" for i in table.timeline.completed().data()}
        for path in self.files.files:
            assert path in kept or path.startswith(".hoodie/") or self.came_after_its_rollback(path), f"{path} is left"
            assert not path.startswith((".hoodie/.temp", ".hoodie/.heartbeat", ".hoodie/.stages")), path

    def came_after_its_rollback(self, path: str) -> bool:
        """A writer that was taken for dead, woke up to write one file, and died: no record names that file."""
        time = path.rpartition("_")[2].removesuffix(".parquet")
        started = [
            self.files.files[self.table.layout.path(replace(rollback, state=State.REQUESTED))][1]
            for rollback in self.table.reload().timeline.completed().of(Action.ROLLBACK)
            if time in self.table.plan(rollback).commits_rollback
        ]
        return bool(started) and min(started) <= self.files.files[path][1]


TestLake = Lake.TestCase
TestLake.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.slow
class TestLakeLonger(Lake.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
