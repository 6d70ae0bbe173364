"""hudi-rs, an independent reader, agrees on the snapshots that it can read rightly."""

from __future__ import annotations

import golden_archives as archives
import hudi
import pyarrow as pa

from skep_format.json_text import json_lines
from skep_table.query import read
from skep_table.table import HudiTable


def test_snapshot_agrees_with_hudi_rs(case_for_hudi_rs: archives.Case) -> None:
    case = case_for_hudi_rs
    theirs = [pa.record_batch(batch) for batch in hudi.HudiTable(str(case.table)).read()]
    ours = read(HudiTable.open(case.table)).to_arrow()
    assert text_of(ours.to_batches(), ours.schema.names) == text_of(theirs, ours.schema.names)


def text_of(batches: list[pa.RecordBatch], columns: list[str]) -> list[bytes]:
    lines: list[bytes] = []
    for batch in batches:
        lines += bytes(json_lines(batch.select(columns))).splitlines(keepends=True)
    return sorted(lines)
