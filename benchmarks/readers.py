"""The process behind `ours.Reader`: skep, hudi-rs or pyarrow reading a table without a JVM."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import hudi  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402

from benchmarks.peers.spelling import spell  # noqa: E402
from benchmarks.peers.worker import serve  # noqa: E402
from skep_format.storage import LocalStorage  # noqa: E402
from skep_table.query import ReadRequest, read  # noqa: E402
from skep_table.table import HudiTable  # noqa: E402

Json = dict[str, Any]


class CountingStorage(LocalStorage):
    """Remembers which files were opened as a whole."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened: set[str] = set()

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        self.opened.add(path)
        return super().open_input(path, size=size)


class Skep:
    def count_and_sum(self, *, path: str, column: str) -> Json:
        """As every reader's: the number of rows and the sum of one column, from batches as they come."""
        return totals(self._batches(path, columns=(column,)), column)

    def scan(self, *, path: str) -> Json:
        """Every column of every row."""
        return counted(self._batches(path))

    def look_up(self, *, path: str, key: str) -> Json:
        """The row of a key; `opened` counts the files that were opened for rows, not only for their footer."""
        storage = CountingStorage(path)
        rows = sum(len(batch) for batch in self._batches(storage, where=f"_hoodie_record_key = '{key}'"))
        return {"rows": rows, "opened": len(storage.opened)}

    def _batches(self, table: str | LocalStorage, **request: Any) -> Iterable[pa.RecordBatch]:
        return read(HudiTable.open(table), ReadRequest(**request)).to_batches()


class HudiRs:
    def count_and_sum(self, *, path: str, column: str) -> Json:
        options = hudi.HudiReadOptions(projection=[column])
        return totals((pa.record_batch(batch) for batch in hudi.HudiTable(path).read(options)), column)

    def scan(self, *, path: str) -> Json:
        return counted(pa.record_batch(batch) for batch in hudi.HudiTable(path).read())


class Dataset:
    """pyarrow's own scan of the files that are the table's latest; what a copy-on-write scan could cost at best."""

    def scan(self, *, path: str) -> Json:
        return counted(ds.dataset(latest(Path(path)), format="parquet").to_batches())

    def count_and_sum(self, *, path: str, column: str) -> Json:
        batches = ds.dataset(latest(Path(path)), format="parquet").to_batches(columns=[column])
        return totals(batches, column)


def latest(table: Path) -> list[str]:
    """Base files of the newest instant of each file group; right for tables without replaced or pending ones."""
    newest: dict[tuple[Path, str], Path] = {}
    for file in table.rglob("*.parquet"):
        group = file.parent, file.name.partition("_")[0]
        if group not in newest or instant(file) > instant(newest[group]):
            newest[group] = file
    return sorted(map(str, newest.values()))


def instant(file: Path) -> str:
    return file.stem.rpartition("_")[2]


def totals(batches: Iterable[pa.RecordBatch], column: str) -> Json:
    rows, total = 0, None
    for batch in batches:
        rows += len(batch)
        part = pc.sum(batch.column(column)).as_py()
        total = part if total is None else total if part is None else total + part
    return {"rows": rows, "total": spell(total)}


def counted(batches: Iterable[pa.RecordBatch]) -> Json:
    rows = count = 0
    for batch in batches:
        rows, count = rows + len(batch), count + 1
    return {"rows": rows, "batches": count}


KINDS = {"skep": Skep, "hudi-rs": HudiRs, "pyarrow": Dataset}


def main() -> None:
    pa.set_cpu_count(2)
    pa.set_io_thread_count(2)
    serve(KINDS[sys.argv[2]])


if __name__ == "__main__":
    main()
