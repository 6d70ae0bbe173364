"""What is in a table after a write that failed or died: its rows, and nothing that the write left behind."""

from __future__ import annotations

from pathlib import Path

from skep_format.names import BaseFileName, LogFileName
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable

Content = list[tuple[str, str, int]]


def content(folder: Path) -> Content:
    """Key, partition path and `ts` of each row."""
    found = read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["_hoodie_partition_path"], row["ts"]) for row in found)


def assert_clean(folder: Path) -> None:
    """No pending instant, no marker, no data file of an instant that is not complete."""
    timeline = HudiTable.open(str(folder)).timeline
    assert not timeline.pending().instants
    assert not [file for file in (folder / ".hoodie").rglob("*") if ".temp" in str(file) and file.is_file()]
    completed = {instant.requested_time for instant in timeline.completed().data()}
    for file in folder.rglob("*"):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is not None and ".hoodie" not in file.parts:
            assert name.instant_time in completed, f"{file} was left behind"
