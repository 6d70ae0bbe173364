"""Log entries and the base rows they may touch, on disk in parts by the hash of the record key.

Equal keys lie in one part, in their order of arrival, so parts can be merged one after the other. Only base rows whose
key hash is among the entries' go to disk; all others pass through.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_table.bloom import HashKind, KeyHashes
from skep_table.errors import StorageError
from skep_table.schema.types import RECORD_KEY
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


def spill_folder(prefix: str, parent: str | None) -> Path:
    """A new temporary folder in `parent`, which is made when missing; None is the system's place for them."""
    with spilling(parent or tempfile.gettempdir()):
        if parent is not None:
            Path(parent).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


class Spill:
    """A context manager: its folder, below `folder` or the system's temporary one, is gone in the end.

    `level` counts how often the rows were divided before: each level divides by another share of the hash.
    """

    MOST_LEVELS: Final = 9

    def __init__(self, folder: str, level: int = 0) -> None:
        self._parent = folder or None
        self._shift = np.uint64(_PART_BITS * level)
        self._entries: list[_Part] = []
        self._base: list[_Part] = []
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._known: npt.NDArray[np.uint64] | None = None

    def __enter__(self) -> Spill:
        self._folder = spill_folder("skep-spill-", self._parent)
        self._entries = [_Part(self._folder / f"entries-{number}.arrow") for number in range(_PARTS)]
        self._base = [_Part(self._folder / f"base-{number}.arrow") for number in range(_PARTS)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in (*self._entries, *self._base):
            with suppress(OSError):  # the files go anyway
                part.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_entries(self, rows: pa.RecordBatch) -> None:
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
        return sum(part.bytes for part in self._entries)

    def parts(self) -> Iterator[SpilledPart]:
        """The parts that have entries."""
        for entries, base in zip(self._entries, self._base, strict=True):
            if entries.bytes:
                yield SpilledPart(entries, base)


class SpilledPart:
    """Entries with all base rows that they may touch; each can be read once or more often."""

    def __init__(self, entries: _Part, base: _Part) -> None:
        self._entries, self._base = entries, base

    @property
    def entries_bytes(self) -> int:
        return self._entries.bytes

    def entries(self) -> Iterator[pa.RecordBatch]:
        return self._entries.batches()

    def base(self) -> Iterator[pa.RecordBatch]:
        return self._base.batches()


class _Part:
    """One file of Arrow batches, opened with the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bytes = 0
        self._file: pa.NativeFile | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        with spilling(self._path.parent):
            if self._writer is None:
                self._file = pa.OSFile(str(self._path), "wb")
                self._writer = pa.ipc.new_stream(self._file, rows.schema)
            self._writer.write_batch(rows)
        self.bytes += rows.nbytes

    def close(self) -> None:
        writer, file, self._writer, self._file = self._writer, self._file, None, None
        if writer is not None and file is not None:
            with spilling(self._path.parent), file:
                writer.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.close()
        if not self._path.exists():
            return
        with pa.OSFile(str(self._path), "rb") as file:
            yield from pa.ipc.open_stream(file)


def _hashes(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    hashes = KeyHashes(rows.column(RECORD_KEY))
    low, high = hashes.round(HashKind.MURMUR, 0), hashes.round(HashKind.MURMUR, 1)
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def _distribute(rows: pa.RecordBatch, hashes: npt.NDArray[np.uint64], parts: list[_Part]) -> None:
    loose = pa.schema([field.with_nullable(True) for field in rows.schema])
    rows = pa.RecordBatch.from_arrays(rows.columns, schema=loose)
    numbers = (hashes % np.uint64(len(parts))).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(parts) + 1))
    sorted_rows = rows.take(pa.array(order))
    for number, part in enumerate(parts):
        low, high = int(bounds[number]), int(bounds[number + 1])
        if low < high:
            part.write(sorted_rows.slice(low, high - low))
