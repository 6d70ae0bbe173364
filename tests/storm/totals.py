"""The check after a storm: the table holds what the journals of the writers record, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from skep_format.names import BaseFileName
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_table.commit.parts.batches import BATCH_ID
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

Row = tuple[int, str]  # ts, batch


def journal_lines(folder: Path, files: str = "*.journal") -> list[dict[str, Any]]:
    """A line that a killed writer did not finish counts for nothing."""
    lines = []
    for file in sorted(folder.glob(files)):
        for text in file.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
    return lines


def conflicts(journals: Path) -> list[str]:
    """The errors of writes that lost against another one."""
    return [line["failed"] for line in journal_lines(journals) if "ConflictError" in line.get("failed", "")]


def check(table: HudiTable, journals: Path) -> Counter[str]:
    """Asserts that every acknowledged batch is committed once, and that the rows are those of the committed batches.

    Batches that were neither acknowledged nor rolled back before their writer died may be there, as a whole.
    """
    lines = journal_lines(journals)
    written = {line["batch"]: line for line in lines if "rows" in line}
    acknowledged = {line["batch"]: line["acknowledged"] for line in lines if "acknowledged" in line}
    table = table.reload()
    committed: dict[str, str] = {}
    for instant in completed_writes(table):
        batch = table.commit_metadata(instant).extra_metadata.get(BATCH_ID)
        if batch in written:
            assert batch not in committed, f"batch {batch} was committed twice: {committed[batch]}, {instant}"
            committed[batch] = instant.requested_time
    lost = {batch: time for batch, time in acknowledged.items() if committed.get(batch) != time}
    assert not lost, f"acknowledged, and not in the timeline: {lost}"
    expected = rows_of(written[batch] for batch in written if batch in committed)
    found = read(table, ReadRequest(columns=("id", "ts", "batch"))).to_arrow()
    keys = Counter(found["id"].to_pylist())
    twice = [key for key, count in keys.items() if count > 1]
    assert not twice, f"keys that are there more than once: {twice[:5]}"
    rows = {row["id"]: (row["ts"], row["batch"]) for row in found.to_pylist() if row["batch"] in written}
    wrong = {
        key: (rows.get(key), expected.get(key)) for key in {*rows, *expected} if rows.get(key) != expected.get(key)
    }
    assert not wrong, f"{len(wrong)} keys differ (found, expected): {dict(list(wrong.items())[:5])}"
    return Counter(
        batches=len(written),
        acknowledged=len(acknowledged),
        committed=len(committed),
        failures=sum("failed" in line for line in lines),
    )


def completed_writes(table: HudiTable) -> list[Instant]:
    """Those that are archived, too."""
    archived = [each for each in table.timeline.archived() if each.action in DATA_ACTIONS]
    return [*archived, *table.timeline.completed().data().instants]


def rows_of(batches: Iterable[dict[str, Any]]) -> dict[str, Row]:
    """The greatest `ts` of a key wins. Only the writer of a key deletes it, after it was written, and for good."""
    rows: dict[str, Row] = {}
    deleted_keys: set[str] = set()
    for batch in batches:
        for row in batch["rows"]:
            if batch["operation"] == "delete":
                deleted_keys.add(row["id"])
            elif row["id"] not in rows or rows[row["id"]][0] < row["ts"]:
                rows[row["id"]] = row["ts"], row["batch"]
    return {key: row for key, row in rows.items() if key not in deleted_keys}


def check_clean(table: HudiTable) -> None:
    """Nothing is left of writes that did not come through."""
    table = table.reload()
    assert not table.timeline.pending().instants
    folder = Path(table.storage.root)
    for left in (".hoodie/.temp", ".hoodie/.heartbeat", ".hoodie/.stages"):
        assert not [file for file in (folder / left).rglob("*") if file.is_file()], f"files in {left}"
    completed = {instant.requested_time for instant in completed_writes(table)}
    for file in folder.rglob("*.parquet"):
        if ".hoodie" in file.relative_to(folder).parts:
            continue
        name = BaseFileName.parse(file.name)
        assert name is not None
        assert name.instant_time in completed, f"{file} was left behind"
