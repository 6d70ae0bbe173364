"""A read of a slice whose file is lost is an error with the file's name, whichever way it comes to the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SkepError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "1",
}
PLAIN = {"hoodie.metadata.enable": "false"}


def rows(v: int, *ids: str) -> pa.Table:
    return pa.table([list(ids), ["p" if each < "c" else "q" for each in ids], [v] * len(ids)], schema=SCHEMA)


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def kind(request: pytest.FixtureRequest) -> TableType:
    kind: TableType = request.param
    return kind


@pytest.fixture(params=[True, False], ids=["indexed", "listed"])
def table(request: pytest.FixtureRequest, kind: TableType, tmp_path: Path) -> HudiTable:
    """Two rows in each of two partitions, all of them updated; with change data."""
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        record_key=("id",),
        partition_by=("part",),
        type=kind,
        properties={"hoodie.table.cdc.enabled": "true"},
    )
    made = create_table(LocalStorage(str(tmp_path / "t")), spec, INDEXED if request.param else PLAIN)
    LocalWriter(made).insert(rows(1, "a", "b", "c", "d"))
    LocalWriter(made.reload()).upsert(rows(2, "a", "b", "c", "d"))
    assert (made.reload().metadata_table() is not None) is request.param
    return made.reload()


def opened(table: HudiTable) -> HudiTable:
    """As another process finds it: none of its commits is in memory."""
    return HudiTable.open(table.storage.root, dict(table.options))


def rows_of(**request: Any) -> Callable[[HudiTable], object]:
    return lambda table: read(table, ReadRequest(**request)).to_arrow()


def count_of(**request: Any) -> Callable[[HudiTable], object]:
    return lambda table: read(table, ReadRequest(**request)).count()


WAYS: dict[str, Callable[[HudiTable], object]] = {
    "snapshot": rows_of(),
    "snapshot without metadata": rows_of(metadata=False),
    "a key": rows_of(where="id = 'a'"),
    "a key without skipping": rows_of(where="id = 'a'", data_skipping=False),
    "a value": rows_of(where="v = 2"),
    "a partition": rows_of(where="part = 'p'"),
    "some columns": rows_of(columns=("v",)),
    "no columns": rows_of(columns=()),
    "incremental": rows_of(query="incremental"),
    "count": count_of(),
    "count without metadata": count_of(metadata=False),
    "count of a value": count_of(where="v = 2"),
    "count of a key": count_of(where="id = 'a'"),
    "count of a range": count_of(query="incremental"),
    "time travel": lambda table: rows_of(as_of=str(table.timeline.data().completed().last().requested_time))(table),
    "changes": rows_of(query="cdc"),
    "upsert": lambda table: LocalWriter(table).upsert(rows(3, "a", "b", "c", "d")),
    "delete": lambda table: LocalWriter(table).delete(rows(3, "a").select(["id", "part"])),
    "compact": lambda table: compact(table) if table.config.is_mor else rows_of()(table),
    "cluster": lambda table: cluster(table),
}


def needed(table: HudiTable, way: str) -> list[str]:
    """The files of `p` that the read needs: the newest slice, or what the changes of its commits are read from."""
    (found,) = table.view(metadata=False).slices("p")
    if way == "changes":
        stats = (table.commit_metadata(instant).stats for instant in table.timeline.data().completed())
        of_p = [stat for each in stats for stat in each if stat.partition_path == "p"]
        return [*(of_p[-1].cdc_stats or [of_p[-1].path]), of_p[0].path]
    return [*([found.base_file.path] if found.base_file else []), *(log.path for log in found.log_files)]


@pytest.mark.parametrize("way", WAYS)
def test_each_file_of_a_slice(table: HudiTable, way: str) -> None:
    for lost in needed(table, way):
        path = Path(table.storage.root) / lost
        kept = path.with_name(f"kept-{path.name}")
        path.rename(kept)
        with pytest.raises(SkepError, match=re.escape(path.name)):
            WAYS[way](opened(table))
        kept.rename(path)
    WAYS[way](opened(table))
