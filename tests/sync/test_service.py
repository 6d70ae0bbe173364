"""The service over its queue: in order a table, each target by itself, again after failures, nothing lost at a kill."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_format.errors import CatalogError, MetastoreUnreachableError, SkepError
from skep_format.storage import open_storage
from skep_sync.following import service as service_module
from skep_sync.following.queue import Backoff, Pending, SyncQueue
from skep_sync.following.service import SyncService
from skep_sync.options import RELOCATE
from skep_sync.planning.locations import same_location
from skep_sync.sync import SyncReport, plan_sync
from skep_sync.targets import Clients, Target, targets_of
from skep_table.events import Event, Events
from skep_table.table import HudiTable

NOBODY = "thrift://127.0.0.1:1"
WAIT = 60.0
Write = Callable[..., HudiTable]


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def queue(tmp_path: Path) -> SyncQueue:
    return SyncQueue(open_storage(tmp_path / "queue"), backoff=Backoff(0.05, 0.2))


Start = Callable[..., SyncService]


@pytest.fixture
def start(queue: SyncQueue, heard: list[Event]) -> Iterator[Start]:
    """Starts services over the queue; they are stopped at the end."""
    started: list[SyncService] = []

    def make(targets: tuple[Target, ...], clients: Clients | None = None, **more: object) -> SyncService:
        service = SyncService(targets, clients or Clients(), queue, events=Events(heard.append), **more)  # type: ignore[arg-type]
        service.start()
        started.append(service)
        return service

    yield make
    for service in started:
        service.stop()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def idle(service: SyncService, queue: SyncQueue) -> bool:
    """Nothing is running, due, or not known yet: what is left waits for its next try."""
    stored = {(one.target, one.key) for one in queue.pending()}
    left = service.pending()
    now = datetime.now(timezone.utc)
    waiting = (one.failure is not None and datetime.fromisoformat(one.failure.retry_at) > now for one in left)
    return stored <= {(one.target, one.key) for one in left} and all(waiting)


def names(heard: list[Event], name: str) -> list[str]:
    return [str(event.facts["table"]) for event in heard if event.name == name]


@pytest.mark.metastore
class TestOnAMetastore:
    def test_a_submitted_table_is_synced_and_done(
        self, write: Write, metastore: Metastore, database: str, start: Start, queue: SyncQueue
    ) -> None:
        table = write("t", 1)
        service = start(targets_of({}), Clients(metastore))
        service.submit(table.storage.root, "t", "1", entry=f"{database}.t")
        until(lambda: idle(service, queue))
        assert not plan_sync(table, metastore, database, "t")
        assert queue.pending() == []
        assert service.pending() == []

    @pytest.mark.parametrize("relocate", [None, "true"])
    def test_another_table_of_the_name_takes_no_entry(
        self,
        write: Write,
        metastore: Metastore,
        database: str,
        start: Start,
        queue: SyncQueue,
        caplog: pytest.LogCaptureFixture,
        relocate: str | None,
    ) -> None:
        """Unless that is asked for: readers of the name would get other rows."""
        table, other = write("t", 1, day="2026-01-01"), write("elsewhere/t", 2, day="2026-01-02")
        service = start(targets_of({RELOCATE.key: relocate} if relocate else {}), Clients(metastore))
        for each in (table, other):
            service.submit(each.storage.root, "t", "1", entry=f"{database}.t")
            until(lambda: idle(service, queue))
        entry = metastore.table(database, "t")
        expected = other if relocate else table
        assert same_location(entry.storage.location, expected.storage.root)
        days = [each.values for each in metastore.partitions(database, "t")]
        assert (("2026-01-02",) in days) is bool(relocate)
        if not relocate:
            (left,) = queue.pending()
            assert left.failure is not None
            assert f"{table.storage.root}, and the table at" in caplog.text
            assert days == [("2026-01-01",)]

    def test_what_a_killed_service_left_is_done_by_the_next(
        self, write: Write, metastore: Metastore, database: str, start: Start, queue: SyncQueue
    ) -> None:
        """Only the files outlive a kill: a queue without a service is what it leaves."""
        queue.add("main", write("t", 1).storage.root, "t", "1", f"{database}.t")
        service = start(targets_of({}), Clients(metastore))
        until(lambda: idle(service, queue))
        assert metastore.tables(database) == ["t"]

    def test_a_target_that_is_down_holds_up_no_other_and_is_tried_again(
        self, write: Write, metastore: Metastore, database: str, start: Start, queue: SyncQueue, heard: list[Event]
    ) -> None:
        targets = targets_of({"skep.sync.targets": "down", "skep.sync.target.down.uris": NOBODY})
        clients = Clients(metastore)
        service = start(targets, clients, workers=1)
        tables = [write(f"t{number}", 1) for number in range(3)]
        for number, table in enumerate(tables):
            service.submit(table.storage.root, f"t{number}", "1", entry=f"{database}.t{number}")
        until(lambda: len(names(heard, "service.synced")) == 3)
        until(lambda: len(names(heard, "service.failed")) >= 4)
        left = queue.pending()
        assert {one.target for one in left} == {"down"}
        clients._known["down"] = metastore  # it is up again, under another name
        until(lambda: queue.pending() == [])


def stub(monkeypatch: pytest.MonkeyPatch, sync: Callable[..., SyncReport | None]) -> None:
    """Another sync than the real one, to see what the service does around it."""
    monkeypatch.setattr(service_module, "sync_target", sync)


TWO = {"skep.sync.targets": "b", "skep.sync.target.b.uris": NOBODY}


class TestAroundTheSync:
    def test_one_table_is_never_synced_twice_at_once(
        self, monkeypatch: pytest.MonkeyPatch, start: Start, queue: SyncQueue, heard: list[Event]
    ) -> None:
        running: dict[str, int] = {}
        rounds: list[str] = []
        guard = threading.Lock()

        def sync(target: Target, clients: Clients, path: str, entry: str | None, **_: object) -> None:
            with guard:
                running[path] = running.get(path, 0) + 1
                assert running[path] == 1
            time.sleep(0.02)
            with guard:
                running[path] -= 1
                rounds.append(path)

        stub(monkeypatch, sync)
        service = start(targets_of({}), workers=8)
        for number in range(40):
            service.submit(f"/t/{number % 4}", str(number % 4), str(number))
        until(lambda: idle(service, queue))
        assert set(rounds) == {f"/t/{number}" for number in range(4)}
        assert len(rounds) < 40, "commits that came together are one sync"
        assert names(heard, "service.failed") == []
        assert queue.pending() == []

    def test_a_commit_during_a_sync_is_one_more_sync(
        self, monkeypatch: pytest.MonkeyPatch, start: Start, queue: SyncQueue
    ) -> None:
        began, go_on = threading.Event(), threading.Event()
        count = 0

        def sync(*_: object, **__: object) -> None:
            nonlocal count
            count += 1
            began.set()
            assert go_on.wait(WAIT)

        stub(monkeypatch, sync)
        service = start(targets_of({}))
        service.submit("/t", "t", "1")
        assert began.wait(WAIT)
        service.submit("/t", "t", "2")
        service.submit("/t", "t", "3")
        go_on.set()
        until(lambda: idle(service, queue))
        assert count == 2

    def test_a_target_that_answers_again_receives_all_it_missed(
        self, monkeypatch: pytest.MonkeyPatch, queue: SyncQueue, heard: list[Event], tmp_path: Path
    ) -> None:
        """Its tables don't wait for their own time."""
        slow = SyncQueue(open_storage(tmp_path / "slow"), backoff=Backoff(3600, 3600))
        down = True

        def sync(target: Target, clients: Clients, path: str, entry: str | None, **_: object) -> None:
            if down:
                raise MetastoreUnreachableError("down")

        stub(monkeypatch, sync)
        with SyncService(targets_of({}), Clients(), slow, events=Events(heard.append)) as service:
            for number in range(3):
                service.submit(f"/t/{number}", str(number), "1")
            until(lambda: len(names(heard, "service.failed")) == 3)
            down = False
            service.submit("/t/new", "new", "1")
            until(lambda: len(names(heard, "service.synced")) == 4)

    def test_refused_tables_wait_for_their_own_time(
        self, monkeypatch: pytest.MonkeyPatch, heard: list[Event], tmp_path: Path
    ) -> None:
        slow = SyncQueue(open_storage(tmp_path / "slow"), backoff=Backoff(3600, 3600))

        def sync(target: Target, clients: Clients, path: str, entry: str | None, **_: object) -> None:
            if path == "/t/bad":
                raise CatalogError("refused")

        stub(monkeypatch, sync)
        with SyncService(targets_of({}), Clients(), slow, events=Events(heard.append)) as service:
            service.submit("/t/bad", "bad", "1")
            until(lambda: names(heard, "service.failed") == ["bad"])
            service.submit("/t/good", "good", "1")
            until(lambda: names(heard, "service.synced") == ["good"])
            until(lambda: idle(service, slow))
            (left,) = service.pending()
        assert left.failure is not None
        assert left.failure.error == "refused"
        assert datetime.fromisoformat(left.failure.retry_at) > datetime.now(timezone.utc)
        assert slow.pending() == [left]

    def test_a_fault_of_ours_is_a_failure_like_others(
        self, monkeypatch: pytest.MonkeyPatch, start: Start, heard: list[Event], queue: SyncQueue
    ) -> None:
        tries = iter([ZeroDivisionError("oops")])

        def sync(*_: object, **__: object) -> None:
            for error in tries:
                raise error

        stub(monkeypatch, sync)
        service = start(targets_of({}))
        service.submit("/t", "t", "1")
        until(lambda: names(heard, "service.synced") == ["t"])
        assert names(heard, "service.failed") == ["t"]
        until(lambda: queue.pending() == [])

    def test_stopping_waits_for_what_runs_and_leaves_the_rest(
        self, monkeypatch: pytest.MonkeyPatch, queue: SyncQueue
    ) -> None:
        began, go_on = threading.Event(), threading.Event()

        def sync(*_: object, **__: object) -> None:
            began.set()
            assert go_on.wait(WAIT)

        stub(monkeypatch, sync)
        service = SyncService(targets_of({}), Clients(), queue, workers=1)
        service.start()
        service.submit("/a", "a", "1")
        assert began.wait(WAIT)
        service.submit("/b", "b", "1")
        assert service.stop(0.05) is False, "what runs did not end in time"
        assert not service.is_working
        go_on.set()
        assert service.stop(WAIT) is True
        assert [one.latest.table for one in queue.pending()] == ["b"]

    def test_stopping_waits_for_what_follows_a_commit(self, monkeypatch: pytest.MonkeyPatch, queue: SyncQueue) -> None:
        """Table services use the metastore's client, which their caller closes after the stop."""
        began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

        def follow(*_: object) -> None:
            began.set()
            assert go_on.wait(WAIT)
            ended.set()

        stub(monkeypatch, lambda *_, **__: None)
        service = SyncService(targets_of({}), Clients(), queue, after=follow)
        service.start()
        service.submit("/t", "t", "1")
        assert began.wait(WAIT)
        until(lambda: idle(service, queue))
        service.submit("/other", "other", "1")
        until(lambda: idle(service, queue))  # syncs do not wait for what follows others
        assert service.stop(0.05) is False
        go_on.set()
        assert service.stop(WAIT) is True
        assert ended.is_set()

    def test_two_services_share_a_queue(
        self, monkeypatch: pytest.MonkeyPatch, start: Start, queue: SyncQueue, heard: list[Event]
    ) -> None:
        """What one process adds another one finds, and what one did the other forgets."""

        def sync(*_: object, **__: object) -> None:
            pass

        stub(monkeypatch, sync)
        service = start(targets_of({}), rescan_seconds=0.05)
        queue.add("main", "/t", "t", "1")
        until(lambda: names(heard, "service.synced") == ["t"])
        until(lambda: queue.pending() == [])
        until(lambda: idle(service, queue))

    def test_a_queue_that_can_not_be_read_is_tried_again(
        self, monkeypatch: pytest.MonkeyPatch, start: Start, queue: SyncQueue, heard: list[Event]
    ) -> None:
        plain = queue.pending
        broken = [True]

        def pending() -> list[Pending]:
            if broken:
                broken.pop()
                raise SkepError("storage is away")
            return plain()

        monkeypatch.setattr(queue, "pending", pending)
        stub(monkeypatch, lambda *_, **__: None)
        queue.add("main", "/t", "t", "1")
        start(targets_of({}), rescan_seconds=0.05)
        until(lambda: names(heard, "service.synced") == ["t"])
        assert next(event.name for event in heard) == "service.queue_failed"

    def test_what_follows_a_commit_follows_the_first_target_only_and_may_fail(
        self, monkeypatch: pytest.MonkeyPatch, start: Start, queue: SyncQueue, heard: list[Event]
    ) -> None:
        after: list[tuple[str, str]] = []

        def follow(pending: Pending, _: SyncReport) -> None:
            after.append((pending.target, pending.latest.table))
            raise CatalogError("no cleaning today")

        stub(monkeypatch, lambda *_, **__: None)
        service = start(targets_of(TWO), after=follow)
        service.submit("/t", "t", "1")
        until(lambda: names(heard, "service.after_failed") == ["t"])
        assert after == [("main", "t")]
        until(lambda: idle(service, queue))
