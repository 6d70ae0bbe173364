"""An object store's commit: its file is put when every data file is there, with all parts of its upload."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.storage import ObjectStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

PARTS = 12 << 20  # bytes, which is more than one part


def test_a_file_of_several_parts_is_whole_when_it_is_closed(s3_folder: Callable[[], Storage]) -> None:
    storage = s3_folder()
    with storage.open_write("large") as file:
        file.write(bytes(PARTS))
        assert not storage.exists("large")
    assert storage.size("large") == PARTS
    with contextlib.suppress(RuntimeError), storage.open_write("failed") as file:
        file.write(bytes(PARTS))
        raise RuntimeError
    assert not storage.exists("failed")


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("kind", TableType, ids=["cow", "mor"])
def test_a_commit_is_put_behind_its_files(
    kind: TableType, s3_folder: Callable[[], Storage], s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, done = s3_folder(), list[str]()
    rows = pa.table({"id": ["a", "b"], "part": ["p", "q"], "v": [1, 1]})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), type=kind)
    create_table(storage, spec)
    watch(done, monkeypatch)
    table = HudiTable.open(storage.root, s3_options)
    setting = Options({**s3_options, "hoodie.metadata.enable": "true"})
    writer = LocalWriter(table.with_context(options=setting))
    for _ in range(2):
        done.clear()
        instant = writer.upsert(rows).instant
        now = HudiTable.open(storage.root, s3_options)
        last = now.timeline.completed().data().last()
        assert last is not None
        assert last.requested_time == instant.requested_time
        at = done.index(now.layout.path(last))
        named = [path for stat in now.commit_metadata(last).stats for path in stat.paths]
        assert named
        assert set(named) <= set(done[:at])
        behind = [path for path in done[at + 1 :] if not path.startswith(".hoodie/.")]
        assert not behind, "data or metadata came after the commit"


def watch(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds each path once its bytes are in the store."""
    opened, created, replaced = ObjectStorage.open_write, ObjectStorage.create_exclusive, ObjectStorage.replace_atomic

    @contextlib.contextmanager
    def open_write(self: ObjectStorage, path: str) -> Iterator[IO[bytes]]:
        with opened(self, path) as file:
            yield file
        done.append(path)

    def create_exclusive(self: ObjectStorage, path: str, data: bytes, **how: Any) -> None:
        created(self, path, data, **how)
        done.append(path)

    def replace_atomic(self: ObjectStorage, path: str, data: bytes) -> None:
        replaced(self, path, data)
        done.append(path)

    monkeypatch.setattr(ObjectStorage, "open_write", open_write)
    monkeypatch.setattr(ObjectStorage, "create_exclusive", create_exclusive)
    monkeypatch.setattr(ObjectStorage, "replace_atomic", replace_atomic)
