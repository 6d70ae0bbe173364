"""One Spark session for the suite: two cores, four attempts a task, so that retries are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable

collect_ignore = ["test_stream_changes.py" if metadata.version("pyspark").split(".")[0] >= "4" else "test_source.py"]


@pytest.fixture(autouse=True)
def rows_held_by_spark() -> Iterator[None]:
    """The frames of tests are small; what large ones go through is what these tests are about."""
    from skep_table.write.planning.options import COLLECTED_BYTES

    default = COLLECTED_BYTES.default
    object.__setattr__(COLLECTED_BYTES, "default", 0)  # of the very option, which settings refer to
    yield
    object.__setattr__(COLLECTED_BYTES, "default", default)


Rows = dict[str, dict[str, Any]]


@pytest.fixture
def snapshot() -> Callable[[HudiTable], Rows]:
    """The live rows by record key, read with pyarrow alone; a key twice is a failure."""

    def read(table: HudiTable) -> Rows:
        table = table.reload()
        view = table.view()
        found: Rows = {}
        for partition in view.partitions():
            for slice_ in view.slices(partition):
                assert slice_.base_file is not None
                path = Path(table.storage.root) / slice_.base_file.path
                for row in pq.ParquetFile(path).read().to_pylist():
                    assert row["_hoodie_file_name"] == path.name
                    assert row["_hoodie_partition_path"] == partition
                    assert row["_hoodie_record_key"] not in found, "a key twice"
                    found[row["_hoodie_record_key"]] = row
        return found

    return read


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., HudiTable]:
    def make(schema: pa.Schema, **spec: Any) -> HudiTable:
        settings: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        folder = tmp_path / f"table{len(list(tmp_path.iterdir()))}"
        return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=schema, **settings))

    return make


@pytest.fixture
def all_files() -> Callable[[HudiTable], set[str]]:
    def read(table: HudiTable) -> set[str]:
        root = Path(table.storage.root)
        return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}

    return read
