"""A snapshot reads storage once: listings that views share, and settings that are read again only when they changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage

from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import update_table_config
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.view import StorageListing, StorageListings, listing
from skep_table.write.local import LocalWriter

ROWS = pa.table({"id": ["a", "b", "c"], "part": ["p", "q", "r"], "ts": [1, 1, 1]})
SPEC = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), partition_by=("part",), ordering="ts")
PROPERTIES = ".hoodie/hoodie.properties"


@pytest.fixture
def storage(tmp_path: Path) -> CountingStorage:
    return CountingStorage(LocalStorage(str(tmp_path / "t")))


@pytest.fixture
def table(storage: CountingStorage) -> HudiTable:
    made = create_table(storage, SPEC)
    LocalWriter(made).insert(ROWS)
    return made.reload()


def test_views_of_a_snapshot_share_their_listings(table: HudiTable, storage: CountingStorage) -> None:
    last = table.timeline.instants[-1].requested_time
    storage.calls.clear()
    for view in (table.view(), table.view(metadata=False), table.with_options({"a": 1}).view(), table.view(as_of=last)):
        assert len(view.slices("p")) == 1
    assert storage.calls.partition_listings() == ["p"]
    storage.calls.clear()
    for view in (table.view(), table.view(as_of=last)):
        assert view.partitions() == ["p", "q", "r"]
        assert [len(view.slices(path)) for path in view.partitions()] == [1, 1, 1]
    assert sorted(storage.calls.partition_listings()) == ["", "p", "q", "r"]


def test_a_reload_is_another_snapshot(table: HudiTable, storage: CountingStorage) -> None:
    (before,) = table.view().slices("p")
    LocalWriter(table).upsert(ROWS)
    assert table.view().slices("p") == [before]
    (after,) = table.reload().view().slices("p")
    assert after.base_instant.is_after(before.base_instant)


def test_threads_list_a_partition_once(storage: CountingStorage, table: HudiTable) -> None:
    listings, together = StorageListings(storage, ThreadRunner(1)), threading.Barrier(8)

    def files(_: int) -> Any:
        together.wait()
        return listings.files("p")

    storage.calls.clear()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(files, range(8)))
    assert storage.calls.partition_listings() == ["p"]
    assert all(each is found[0] for each in found)
    assert table is not None


def test_a_failed_listing_is_not_kept(storage: CountingStorage, table: HudiTable) -> None:
    listings = StorageListings(storage, ThreadRunner(1))
    real, storage.list_prefix = storage.list_prefix, _fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="not now"):
        listings.files("p")
    storage.list_prefix = real  # type: ignore[method-assign]
    assert len(listings.files("p")) == 2
    assert table is not None


def _fails(*_: object, **__: object) -> Any:
    raise OSError("not now")


def test_so_many_files_are_kept(storage: CountingStorage, table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit single partitions are listed again; the whole table stays listed while a view uses it."""
    monkeypatch.setattr(listing, "_KEPT_FILES", 5)
    shared = StorageListings(storage, ThreadRunner(1))
    for path in ("p", "q", "q", "p", "p"):
        shared.files(path)
    storage.calls.clear()
    one, other = StorageListing(shared), StorageListing(shared)
    assert one.partitions() == other.partitions()
    calls = len(storage.calls)
    assert len(other.files("r")) == 2
    assert len(storage.calls) == calls
    del one, other
    StorageListing(shared).partitions()
    assert len(storage.calls) == 2 * calls, "nothing held a listing beyond the limit"
    assert table is not None


def aged(storage: CountingStorage, seconds: float) -> None:
    """Moves the time of the property file back."""
    path = Path(storage.root) / PROPERTIES
    os.utime(path, (path.stat().st_atime - seconds, path.stat().st_mtime - seconds))


def reads(storage: CountingStorage, call: Callable[[], Any]) -> int:
    storage.calls.clear()
    call()
    return storage.calls.times_opened()


def test_settings_are_read_again_only_when_they_changed(table: HudiTable, storage: CountingStorage) -> None:
    aged(storage, 7200)
    opened = HudiTable.open(storage)
    assert reads(storage, opened.reload) == 0, "not written for an hour"
    assert reads(storage, opened.reload().reload) == 0
    update_table_config(storage, {"mine": "1"})
    fresh = opened.reload()
    assert fresh.config.raw["mine"] == "1"
    assert table.reload().config.raw["mine"] == "1"


def test_a_change_in_the_second_of_the_last_one_is_not_missed(table: HudiTable, storage: CountingStorage) -> None:
    """As on a storage that states times to the second: size and time are the same, the text is another."""
    path, opened = Path(storage.root) / PROPERTIES, table
    for number in range(5):
        before = path.stat()
        update_table_config(storage, {"mine": str(number)})
        if number:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        opened = opened.reload()
        assert opened.config.raw["mine"] == str(number)


def test_settings_that_a_later_file_proves_settled_are_not_read_again(
    table: HudiTable, storage: CountingStorage
) -> None:
    aged(storage, 3)
    first = table.reload()
    assert reads(storage, first.reload) == 0
    aged(storage, -3)
    assert reads(storage, first.reload) == 1
