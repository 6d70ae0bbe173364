"""How large the partitions of a metadata table are: for people, and as Hudi's metrics of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skep_table.metadata_write.own import building_partitions
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """A partition of the metadata table. `state`: ready, or building while another process fills it."""

    name: str
    state: str
    file_groups: int
    base_files: int
    log_files: int
    base_bytes: int
    log_bytes: int


def partition_sizes(table: HudiTable, own: HudiTable) -> Iterator[MetadataPartition]:
    """Of the partitions that the settings of a table name; `own` is a snapshot of its metadata table."""
    view = own.view(metadata=False)
    ready = table.config.metadata_partitions
    for name in (*ready, *building_partitions(table.config)):
        slices = view.slices(name)
        bases = [each.base_file for each in slices if each.base_file is not None]
        logs = [log for each in slices for log in each.log_files]
        sizes = sum(base.size_bytes for base in bases), sum(log.size_bytes for log in logs)
        state = "ready" if name in ready else "building"
        yield MetadataPartition(name, state, len(slices), len(bases), len(logs), *sizes)


def size_metrics(table: HudiTable, own: HudiTable) -> dict[str, int]:
    """The sizes by the names that Hudi has for them (HoodieMetadataMetrics), of partitions that are ready."""
    return {
        f"{each.name}.{name}": value
        for each in partition_sizes(table, own)
        if each.state == "ready"
        for name, value in (
            ("totalBaseFileSizeInBytes", each.base_bytes),
            ("totalLogFileSizeInBytes", each.log_bytes),
            ("baseFileCount", each.base_files),
            ("logFileCount", each.log_files),
        )
    }
