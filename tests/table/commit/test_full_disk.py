"""A disk that is full, from any call of a write on: the error is skep's, and the table is as before, with no rest."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import StorageError
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.row_order import RowSpool
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]


class FullDisk(LocalStorage):
    """From the call `at` on that needs room, none has any. Deleting and reading go on as ever.

    The errors are the system's, as those of a storage that does not map them.
    """

    def __init__(self, root: str, at: int = sys.maxsize) -> None:
        super().__init__(root)
        self.at, self.calls = at, 0

    def _take_room(self, path: str) -> None:
        self.calls += 1
        if self.calls >= self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        self._take_room(path)
        with super().open_write(path) as file:
            yield file
            self._take_room(path)

    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        self._take_room(path)
        super().create_exclusive(path, data, **how)

    def replace_atomic(self, path: str, data: bytes, **how: Any) -> None:
        self._take_room(path)
        super().replace_atomic(path, data, **how)

    def rename(self, source: str, target: str) -> None:
        self._take_room(target)
        super().rename(source, target)


def content(folder: Path) -> list[tuple[str, int]]:
    return sorted(
        (row["id"], row["ts"]) for row in read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist()
    )


def data_files(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and ".hoodie" not in file.parts
    }


def writer(storage: Storage | str) -> LocalWriter:
    return LocalWriter(HudiTable.open(storage).with_context(runner=ThreadRunner(1)))


CHANGES: dict[str, Callable[[LocalWriter, Rows], Any]] = {
    "bulk_insert": lambda w, rows: w.bulk_insert(pa.concat_tables([rows(["x"]), rows(["y"], part="new")])),
    "upsert": lambda w, rows: w.upsert(pa.concat_tables([rows(["a"], ts=2), rows(["y"], part="new")])),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", TableType, ids=["cow", "mor"])
def test_full_at_any_call_the_write_fails_and_is_taken_back(
    kind: TableType, change: str, tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    seeded, folder = tmp_path / "seeded", tmp_path / "run"
    spec = TableSpec(
        name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind
    )
    create_table(LocalStorage(str(seeded)), spec)
    writer(str(seeded)).upsert(rows(["a", "b"]))
    before, at = content(seeded), 1
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage = FullDisk(str(folder), at)
        failed: StorageError | None = None
        try:
            CHANGES[change](writer(storage), rows)
        except StorageError as error:
            failed = error
        if failed is not None:
            assert failed.errno == errno.ENOSPC
            assert "free some space" in str(failed)
            assert content(folder) == before, at
            assert not HudiTable.open(str(folder)).timeline.pending().instants, at
            assert data_files(folder) == data_files(seeded), at
            assert not [file for file in (folder / ".hoodie/.temp").rglob("*") if file.is_file()], at
        else:
            assert content(folder) != before, at
            if storage.calls < at:
                break
        at += 1
    assert at > 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def large(count: int) -> pa.Table:
    values = random.Random(1)
    return pa.table({"id": [str(n) for n in range(count)], "v": [values.randbytes(60).hex() for _ in range(count)]})


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
@pytest.mark.parametrize("kind", TableType, ids=["cow", "mor"])
def test_on_a_disk_that_is_really_full(kind: TableType, operation: str, small_disk: Path) -> None:
    folder = small_disk / "t"
    spec = TableSpec(name="t", schema=large(1).schema, record_key=("id",), type=kind)
    create_table(LocalStorage(str(folder)), spec)
    writer(str(folder)).upsert(large(10))
    files = data_files(folder)
    with pytest.raises(StorageError, match="No space left on device") as raised:
        getattr(writer(str(folder)), operation)(large(40_000))
    assert raised.value.errno == errno.ENOSPC
    assert data_files(folder) == files
    table = HudiTable.open(str(folder))
    assert not table.timeline.pending().instants
    assert read(table, ReadRequest()).count() == 10
    writer(str(folder)).upsert(large(20))  # there is room again
    assert read(HudiTable.open(str(folder)), ReadRequest()).count() == 20


def test_rows_that_are_sorted_beside_memory_and_find_no_room(small_disk: Path) -> None:
    rows = large(40_000).combine_chunks().to_batches()[0]
    with (
        pytest.raises(StorageError, match=r"can't spill to .*No space left") as raised,
        RowSpool(["id"], limit_bytes=1000, folder=str(small_disk)) as spool,
    ):
        spool.add(rows)
    assert raised.value.fields["option"] == "hoodie.memory.spillable.map.path"
    assert not list(small_disk.iterdir())


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
sys.argv = ["skep", *sys.argv[1:]]
from skep.cli.main import main
main()
"""


def test_the_command_line_reports_it_in_a_sentence(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: it needs no rights."""
    folder = tmp_path / "t"
    create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=large(1).schema, record_key=("id",)))
    writer(str(folder)).upsert(large(10))
    pq.write_table(large(20_000), tmp_path / "rows.parquet")
    command = [sys.executable, "-c", LIMITED, "write", str(folder), str(tmp_path / "rows.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
    assert "File too large" in done.stderr
    assert "rolled back" in done.stderr
    assert not HudiTable.open(str(folder)).timeline.pending().instants
    assert len(content_keys(folder)) == 10


@pytest.mark.parametrize("output", ["table", "jsonl", "parquet"])
def test_output_that_finds_no_room_is_an_error(output: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=large(1).schema, record_key=("id",)))
    writer(str(folder)).upsert(large(10))
    main = "from skep.cli.main import main; main()"
    command = [sys.executable, "-c", main, "--output", output, "read", str(folder)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "error: [Errno 28] No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def content_keys(folder: Path) -> list[str]:
    return read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().column("id").to_pylist()
