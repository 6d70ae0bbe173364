"""Tables with all indexes in their metadata table: what writers are given, and what holds of the indexes."""

from __future__ import annotations

from skep_table.query import ReadRequest, read
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable

INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.compact.max.delta.commits": "5",
    "hoodie.parquet.small.file.limit": "0",  # many file groups in a partition: writes overlap and do not conflict
    "hoodie.cleaner.commits.retained": 6,
    "hoodie.keep.min.commits": 8,
    "hoodie.keep.max.commits": 12,
}
NAMES = {"files", "column_stats", "bloom_filters", "record_index"}


def indexes_are_right(table: HudiTable) -> None:
    """All of them are there, and state what the files hold."""
    now = table.reload()
    wanted = NAMES | ({"partition_stats"} if now.format.metadata.defines_indexes else set())
    assert set(now.config.metadata_partitions) >= wanted
    looks(now)


def looks(table: HudiTable) -> int:
    """The number of rows. Whatever indexes are there state what the files hold, and rows are the same with them."""
    now = table.reload()
    if now.config.metadata_partitions:
        assert check_metadata_table(now).differences == ()
    rows, same = (read(now, ReadRequest(metadata=metadata)).to_arrow().sort_by("id") for metadata in (True, False))
    assert rows.equals(same)
    return rows.num_rows
