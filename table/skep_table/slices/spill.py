"""Log entries and the base rows they may touch, on disk in parts by the hash of the record key.

Equal keys lie in one part, in their order of arrival, so parts can be merged one after the other. Only base rows whose
key hash is among the entries' go to disk; all others pass through.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.bloom import HashKind, KeyHashes
from skep_format.errors import StorageError
from skep_format.schema.types import RECORD_KEY
from skep_table.merge.rows import loose
from skep_table.slices.options import SPILL_FOLDER

_PART_BITS: Final = 6
_PARTS: Final = 1 << _PART_BITS


@contextmanager
def spilling(folder: object) -> Iterator[None]:
    """Failures to write temporary files in `folder` as StorageError, which names the option of that folder."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"can't spill to {folder}: {error.strerror or error}",
            hint=f"{SPILL_FOLDER.key} names a folder with more room",
            path=str(folder),
            option=SPILL_FOLDER.key,
        ) from error


class SpillRange(NamedTuple):
    """Where one record batch lies in a SpillFile: offset and length in bytes."""

    offset: int
    length: int


class SpillFile:
    """Record batches of one schema in a temporary file, each read by its place.

    The file has no name, so that it is deleted whatever ends the process; `close` frees its room at once. It is made
    with the first batch, in `folder` (created when missing) or the system's temporary folder. Threads may append and
    read at the same time. StorageError when the folder can't be written to.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder or tempfile.gettempdir()
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None

    def append(self, rows: pa.RecordBatch) -> SpillRange:
        """Writes a batch; its columns are those of the first one."""
        with self._lock, spilling(self._folder):
            if self._file is None:
                Path(self._folder).mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(prefix="skep-spill-", dir=self._folder)  # noqa: SIM115 - see close
                self._schema = rows.schema
                self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), rows.schema)
                self._writer.write_batch(rows.slice(0, 0))  # the schema comes before the first batch
            assert self._writer is not None
            start = self._file.tell()
            self._writer.write_batch(rows)
            return SpillRange(start, self._file.tell() - start)

    def read(self, place: SpillRange) -> pa.RecordBatch:
        """The batch at a place that `append` returned."""
        assert self._file is not None
        assert self._schema is not None
        data = pa.allocate_buffer(place.length)
        view, done = memoryview(data), 0
        with spilling(self._folder):
            with self._lock:
                self._file.flush()
            while done < place.length:
                read = os.preadv(self._file.fileno(), [view[done:]], place.offset + done)
                if not read:
                    raise OSError(f"{place.length - done} bytes are missing at the end")
                done += read
        return pa.ipc.read_record_batch(data, self._schema)

    def mapped(self, places: Sequence[SpillRange]) -> list[pa.RecordBatch]:
        """The batches at these places without a copy: the system loads and drops their pages. Nothing may follow."""
        assert self._file is not None
        with spilling(self._folder):
            self._file.flush()
            whole = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        return [pa.ipc.read_record_batch(whole.slice(*place), self._schema) for place in places]

    def close(self) -> None:
        """Deletes the file."""
        file, self._file, self._writer = self._file, None, None
        if file is not None:
            with suppress(OSError):  # what was buffered can't be written any more, and is not needed
                file.close()


def rows_at(
    batches: Sequence[pa.RecordBatch], starts: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> pa.Table:
    """Rows by their position in all batches together. Each batch is read once."""
    if len(batches) == 1:
        return pa.Table.from_batches([batches[0].take(pa.array(wanted))])
    numbers = np.searchsorted(starts, wanted, side="right") - 1
    by_batch = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[by_batch], np.arange(len(batches) + 1))
    parts = [
        batch.take(pa.array(wanted[by_batch[low:high]] - starts[number]))
        for number, batch in enumerate(batches)
        if (low := bounds[number]) < (high := bounds[number + 1])
    ]
    back = np.empty(len(wanted), np.int64)
    back[by_batch] = np.arange(len(wanted))
    return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back))


class Spill:
    """A context manager: its temporary file, in `folder` or the system's temporary folder, is deleted in the end.

    `level` counts how often the rows were divided before: each level divides by another share of the hash.
    """

    MOST_LEVELS: Final = 9

    def __init__(self, folder: str, level: int = 0) -> None:
        self._files = SpillFile(folder), SpillFile(folder)
        self._shift = np.uint64(_PART_BITS * level)
        self._entries = [SpilledPart(self._files[0]) for _ in range(_PARTS)]
        self._base = [SpilledPart(self._files[1]) for _ in range(_PARTS)]
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._known: npt.NDArray[np.uint64] | None = None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add_entries(self, rows: pa.RecordBatch) -> None:
        """Adds rows of log files, in the order in which they apply."""
        hashes = _hashes(rows)
        self._hashes.append(np.unique(hashes))
        _distribute(rows, hashes >> self._shift, self._entries)

    def add_base(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keeps the rows that an entry may touch; gives back the others. All entries have to be there already."""
        if self._known is None:
            self._known = np.unique(np.concatenate(self._hashes)) if self._hashes else np.zeros(0, np.uint64)
            self._hashes = []
        hashes = _hashes(rows)
        at = np.searchsorted(self._known, hashes)
        at[at == len(self._known)] = 0
        touched = self._known[at] == hashes if len(self._known) else np.zeros(len(hashes), np.bool_)
        if not touched.any():
            return rows
        _distribute(rows.filter(pa.array(touched)), hashes[touched] >> self._shift, self._base)
        return rows.filter(pa.array(~touched))

    @property
    def entries_bytes(self) -> int:
        """Arrow data of the entries, in bytes."""
        return sum(part.bytes for part in self._entries)

    def parts(self) -> Iterator[tuple[SpilledPart, SpilledPart]]:
        """Entries with all base rows that they may touch, for each part that has entries."""
        return (each for each in zip(self._entries, self._base, strict=True) if each[0].bytes)


class SpilledPart:
    """The batches of one part, in the order in which they came. `bytes` of Arrow data."""

    def __init__(self, file: SpillFile) -> None:
        self._file = file
        self._places: list[SpillRange] = []
        self.bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Appends a batch."""
        self._places.append(self._file.append(rows))
        self.bytes += rows.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of them, once or more often."""
        return map(self._file.read, self._places)


def _hashes(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    hashes = KeyHashes(rows.column(RECORD_KEY))
    low, high = hashes.round(HashKind.MURMUR, 0), hashes.round(HashKind.MURMUR, 1)
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def _distribute(rows: pa.RecordBatch, hashes: npt.NDArray[np.uint64], parts: list[SpilledPart]) -> None:
    rows = pa.RecordBatch.from_arrays(rows.columns, schema=loose(rows.schema))
    numbers = (hashes % np.uint64(len(parts))).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(parts) + 1))
    sorted_rows = rows.take(pa.array(order))
    for number, part in enumerate(parts):
        low, high = int(bounds[number]), int(bounds[number + 1])
        if low < high:
            part.write(sorted_rows.slice(low, high - low))
