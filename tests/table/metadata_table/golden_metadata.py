"""The metadata tables of golden tables."""

from __future__ import annotations

from pathlib import Path

from skep_table.metadata_table import MetadataTable
from skep_table.table import HudiTable

RELEASES = ["0.15.0", "1.0.2", "1.1.1"]


def opened(golden: Path, release: str, case: str) -> tuple[HudiTable, MetadataTable]:
    table = HudiTable.open(golden / release / case / "table")
    metadata = MetadataTable.open(table)
    assert metadata is not None
    return table, metadata
