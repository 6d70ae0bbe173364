"""What is left to sync: on any storage, shared by processes, lost by none that dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from skep_format.errors import CatalogError, MetastoreUnreachableError, StorageError, SyncError
from skep_format.storage import Storage, open_storage
from skep_format.storage.local import LocalStorage
from skep_sync.following.queue import Backoff, SyncQueue, table_key

TABLE = "s3a://lake/wh/t"


class SetClock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        self.time += timedelta(microseconds=1)
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(tmp_path / "queue")
    make: Callable[[], Storage] = request.getfixturevalue("s3_folder")
    return make()


class TestOnAnyStorage:
    def test_what_was_added_is_found_by_another_process(self, storage: Storage) -> None:
        SyncQueue(storage).add("main", TABLE, "t", "20260101", "d.t")
        (found,) = SyncQueue(storage).pending()
        assert (found.target, found.latest.base_path, found.latest.entry) == ("main", TABLE, "d.t")
        assert found.latest.instant == "20260101"

    def test_commits_of_a_table_are_one_pending_sync_a_target(self, storage: Storage) -> None:
        queue = SyncQueue(storage)
        for instant in ("1", "2", "3"):
            for target in ("main", "other"):
                queue.add(target, TABLE, "t", instant)
        queue.add("main", "s3a://lake/wh/u", "u", "4")
        found = SyncQueue(storage).pending()
        assert [(one.target, one.latest.instant, len(one.events)) for one in found] == [
            ("main", "3", 3),
            ("other", "3", 3),
            ("main", "4", 1),
        ]

    def test_what_arrives_during_a_sync_stays(self, storage: Storage) -> None:
        queue = SyncQueue(storage)
        queue.add("main", TABLE, "t", "1")
        (taken,) = queue.pending()
        queue.add("main", TABLE, "t", "2")
        queue.done(taken)
        (left,) = SyncQueue(storage).pending()
        assert (left.latest.instant, len(left.events)) == ("2", 1)
        queue.done(left)
        assert SyncQueue(storage).pending() == []
        assert storage.list_prefix("", recursive=True) == []

    def test_failures_are_counted_and_reported_to_the_next_process(self, storage: Storage) -> None:
        clock = SetClock()
        queue = SyncQueue(storage, clock=clock, backoff=Backoff(10, 60))
        pending = queue.add("main", TABLE, "t", "1")
        for attempt in (1, 2):
            pending = queue.failed(pending, CatalogError(f"no {attempt}"))
            queue.note(pending)
        (found,) = SyncQueue(storage, clock=clock).pending()
        assert found.failure == pending.failure
        assert found.failure is not None
        assert (found.failure.attempts, found.failure.error, found.failure.unreachable) == (2, "no 2", False)
        waits = datetime.fromisoformat(found.failure.retry_at) - clock.now()
        assert timedelta() < waits <= timedelta(seconds=25)
        queue.done(found)
        assert SyncQueue(storage).pending() == []


class TestRules:
    def test_s3_and_s3a_are_one_table(self) -> None:
        assert table_key("s3://lake/wh/t") == table_key("s3a://lake/wh/t/")
        assert table_key("file:///wh/t") == table_key("/wh/t")
        assert table_key("s3://lake/wh/t") != table_key("gs://lake/wh/t")

    def test_the_wait_doubles_up_to_the_longest(self) -> None:
        backoff = Backoff(10, 100)
        waits = [backoff.after(attempts) for attempts in (1, 2, 3, 20, 10_000)]
        for wait, middle in zip(waits, (10, 20, 40, 100, 100), strict=True):
            assert middle * 0.8 <= wait <= middle * 1.2

    def test_an_unreachable_metastore_is_distinguished_from_a_refusal(self, tmp_path: Path) -> None:
        queue = SyncQueue(open_storage(tmp_path))
        pending = queue.add("main", TABLE, "t", "1")
        try:
            try:
                raise MetastoreUnreachableError("gone")
            except MetastoreUnreachableError as cause:
                raise SyncError("sync failed") from cause
        except SyncError as error:
            failure = queue.failed(pending, error).failure
        assert failure is not None
        assert failure.unreachable

    def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        queue = SyncQueue(open_storage(tmp_path))
        pending = queue.add("main", TABLE, "t", "1")
        file = tmp_path / "main" / pending.key / pending.events[0]
        file.write_text("{")
        with pytest.raises(SyncError, match=pending.events[0]):
            SyncQueue(open_storage(tmp_path)).pending()

    def test_files_of_others_are_passed_over(self, tmp_path: Path) -> None:
        queue = SyncQueue(open_storage(tmp_path))
        queue.add("main", TABLE, "t", "1")
        (tmp_path / "README").write_text("mine")
        (tmp_path / "main" / table_key(TABLE) / ".x.json.tmp").write_text("half")
        assert len(SyncQueue(open_storage(tmp_path)).pending()) == 1

    def test_a_failure_that_a_dying_process_left_alone_goes(self, tmp_path: Path) -> None:
        queue = SyncQueue(open_storage(tmp_path))
        pending = queue.add("main", TABLE, "t", "1")
        queue.note(queue.failed(pending, CatalogError("no")))
        (tmp_path / "main" / pending.key / pending.events[0]).unlink()
        assert queue.pending() == []
        assert list((tmp_path / "main" / pending.key).iterdir()) == []

    @pytest.mark.parametrize("target", ["", "a/b", "..", "a b"])
    def test_names_of_targets_are_plain(self, tmp_path: Path, target: str) -> None:
        with pytest.raises(ValueError, match="no name of a target"):
            SyncQueue(open_storage(tmp_path)).add(target, TABLE, "t", "1")


class Dying(LocalStorage):
    """Dies at the nth call that changes something, and stays dead."""

    def __init__(self, root: str, calls: int) -> None:
        super().__init__(root)
        self.left = calls

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError("dead")

    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        self._live()
        super().create_exclusive(path, data, **how)

    def replace_atomic(self, path: str, data: bytes, **how: Any) -> None:
        self._live()
        super().replace_atomic(path, data, **how)

    def delete(self, path: str, **how: Any) -> None:
        self._live()
        super().delete(path, **how)

    def delete_many(self, paths: Collection[str], **how: Any) -> None:
        for path in paths:
            self._live()
            super().delete_many([path], **how)


@pytest.mark.parametrize("calls", range(8))
def test_killed_at_any_call_nothing_is_lost_that_was_not_done(tmp_path: Path, calls: int) -> None:
    """Two commits, a failure, another commit, then success: until `done` begins the table is pending."""
    queue = SyncQueue(Dying(str(tmp_path), calls))
    added = 0
    finished = False
    try:
        queue.add("main", TABLE, "t", "1")
        added += 1
        pending = queue.add("main", TABLE, "t", "2")
        added += 1
        (pending,) = queue.pending()
        queue.note(queue.failed(pending, CatalogError("no")))
        queue.add("main", TABLE, "t", "3")
        added += 1
        finished = True
        (pending,) = queue.pending()
        queue.done(pending)
    except StorageError:
        pass
    found = SyncQueue(open_storage(tmp_path)).pending()
    if not finished:
        assert sum(len(one.events) for one in found) == added
    for one in found:
        assert one.latest == replace(one.latest, base_path=TABLE)
        json.dumps(one.to_json())
