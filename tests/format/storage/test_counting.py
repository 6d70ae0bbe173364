"""The counts that other tests state costs with are themselves right."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from counting_storage import METHODS, Calls, CountingStorage, Requests

from skep_format.storage import LocalStorage, Storage, open_storage
from skep_format.storage.versioned import VersionedStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter


def test_each_call_is_counted_once_with_its_paths(tmp_path: Path) -> None:
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    storage.replace_atomic("a/f", b"1")
    storage.replace_atomic("g", b"2")
    assert storage.read("g") == b"2"
    with storage.open_write("h") as out:
        out.write(b"3")
    storage.sync(["a/f", "g"])
    assert [file.path for file in storage.list_prefix("", recursive=True)] == ["a/f", "g", "h"]
    assert storage.calls.counts() == {"replace_atomic": 2, "read": 1, "open_write": 1, "sync": 1, "list_prefix": 1}
    assert storage.calls.paths("sync", "replace_atomic", suffix="f") == ["a/f", "a/f"]
    storage.calls.clear()
    assert len(storage.calls) == 0


def test_it_is_a_storage_with_every_method_counted(tmp_path: Path) -> None:
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    assert isinstance(storage, Storage)
    assert isinstance(storage, VersionedStorage)
    assert {"list_prefix", "open_input", "delete_folder", "sync"} < set(METHODS)


def test_calls_of_copies_in_other_processes_are_counted_with_a_file(tmp_path: Path) -> None:
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")), Calls(tmp_path / "calls"))
    pickle.loads(pickle.dumps(storage)).replace_atomic("f", b"1")
    assert storage.read("f") == b"1"
    assert storage.calls.counts() == {"replace_atomic": 1, "read": 1}


def test_storages_opened_by_path_are_counted_too(tmp_path: Path, storage_calls: Calls) -> None:
    spec = TableSpec(name="t", schema=pa.schema([("id", pa.string())]), record_key=("id",))
    LocalWriter(create_table(open_storage(tmp_path), spec)).insert(pa.table({"id": ["a"]}))
    storage_calls.clear()
    HudiTable.open(tmp_path)
    assert storage_calls.times_opened() == 1
    assert storage_calls.timeline_listings() == 1
    storage_calls.clear()
    assert LocalStorage(str(tmp_path)).swap("lock", b"1", None)
    assert storage_calls.counts() == {"swap": 1}, "what a method calls itself is no call of the storage"


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda storage: storage.read("f"), "GET"),
        (lambda storage: storage.size("f"), "HEAD"),
        (lambda storage: storage.list_prefix(""), "LIST"),
        (lambda storage: storage.replace_atomic("f", b"2"), "PUT"),
    ],
)
def test_requests_are_counted_by_kind(
    call: Callable[[Storage], object], kind: str, s3_folder: Callable[[], Storage], s3_requests: Requests
) -> None:
    storage = s3_folder()
    storage.replace_atomic("f", b"1")
    s3_requests.clear()
    call(storage)
    assert s3_requests.counts() == {kind: 1}
