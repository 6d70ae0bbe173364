"""Storage dies under a write of Spark's, on the driver or in a task: a sample of what runs at each call on threads."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

from skep_format.errors import StorageError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_writer import SparkWriter

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
DDL = "id string, part string, ts long, v string"
Change = Callable[[SparkWriter, Any], Any]


class DyingStorage(LocalStorage):
    """From the call `at` on that would change something, counted over all processes in a file, every one fails."""

    def __init__(self, root: str, counter: str, at: int) -> None:
        super().__init__(root)
        self.counter, self.at = Path(counter), at

    def __reduce__(self) -> tuple[Any, ...]:
        return DyingStorage, (self.root, str(self.counter), self.at)

    def _count(self, name: str, path: str) -> None:
        with self.counter.open("ab") as file:
            file.write(b".")
            file.flush()
            if file.tell() >= self.at:
                raise StorageError(f"injected: {name} {path}", call=name, path=path)

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        self._count("open_write", path)
        with super().open_write(path) as file:
            yield file

    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        self._count("create_exclusive", path)
        super().create_exclusive(path, data, **how)

    def replace_atomic(self, path: str, data: bytes, **how: Any) -> None:
        self._count("replace_atomic", path)
        super().replace_atomic(path, data, **how)

    def rename(self, source: str, target: str) -> None:
        self._count("rename", source)
        super().rename(source, target)

    def delete(self, path: str, **how: Any) -> None:
        self._count("delete", path)
        super().delete(path, **how)

    def delete_many(self, paths: Collection[str], **how: Any) -> None:
        for path in paths:
            self._count("delete_many", path)
            super().delete_many([path], **how)

    def delete_folder(self, path: str, **how: Any) -> None:
        self._count("delete_folder", path)
        super().delete_folder(path, **how)


def frame(spark: Any, *rows: tuple[str, str, int, str]) -> Any:
    return spark.createDataFrame(rows, DDL)


CHANGES: dict[str, Change] = {
    "upsert": lambda writer, spark: writer.upsert(frame(spark, ("a", "x", 2, "2"), ("n", "new", 1, "1"))),
    "bulk_insert": lambda writer, spark: writer.bulk_insert(frame(spark, ("n", "x", 1, "1"), ("m", "new", 1, "1"))),
    "delete": lambda writer, spark: writer.delete(frame(spark, ("a", "x", 2, "")).select("id", "part")),
    "insert_overwrite": lambda writer, spark: writer.insert_overwrite(frame(spark, ("n", "x", 1, "1"))),
}
# Of the calls of a whole write: as its tasks begin, as they end, and at the commit.
WHEN = (0.3, 0.6, 0.85)
QUICK = {(TableType.COPY_ON_WRITE, "upsert", 0.6)}


def cases() -> list[Any]:
    return [
        pytest.param(kind, name, when, marks=[] if (kind, name, when) in QUICK else [pytest.mark.slow])
        for kind in TableType
        for name in CHANGES
        for when in WHEN
    ]


def content(folder: Path) -> list[tuple[str, str, str]]:
    found = read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["v"]) for row in found)


@pytest.mark.parametrize(("kind", "name", "when"), cases())
def test_a_write_whose_storage_dies_leaves_the_table_before_or_after(
    kind: TableType, name: str, when: float, spark: Any, tmp_path: Path
) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    seeded, whole, died = (tmp_path / each for each in ("seeded", "whole", "died"))
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    table = create_table(LocalStorage(str(seeded)), spec)
    SparkWriter(table, spark).upsert(frame(spark, ("a", "x", 1, "1"), ("b", "x", 1, "1"), ("c", "y", 1, "1")))
    before = content(seeded)
    shutil.copytree(seeded, whole)
    calls = tmp_path / "calls"
    CHANGES[name](SparkWriter(HudiTable.open(DyingStorage(str(whole), str(calls), sys.maxsize)), spark), spark)
    after = content(whole)
    assert after != before
    shutil.copytree(seeded, died)
    at = int(calls.stat().st_size * when)
    dying = DyingStorage(str(died), str(tmp_path / "again"), at)
    try:
        CHANGES[name](SparkWriter(HudiTable.open(dying), spark), spark)
    except Exception as error:
        assert "injected" in str(error)  # noqa: PT017 - what follows the commit is not reported
        assert content(died) in (before, after)
    else:
        assert content(died) == after
    found = content(died)
    SparkWriter(HudiTable.open(str(died)), spark).upsert(frame(spark, ("z", "y", 1, "1")))
    assert content(died) == sorted([*found, ("z", "y", "1")])
    timeline = HudiTable.open(str(died)).timeline
    assert not timeline.pending().instants
    known = {instant.requested_time for instant in timeline.completed().data()}
    files = [file for file in died.rglob("*") if file.is_file() and ".hoodie" not in file.parts]
    assert [file.name for file in files if file.suffix == ".parquet" and file.stem.split("_")[-1] not in known] == []
    assert not [file for file in (died / ".hoodie/.temp").rglob("*") if file.is_file()]
