"""hudi-rs, an independent reader, agrees on the snapshots that it can read rightly."""

from __future__ import annotations

import golden_archives as archives
import pyarrow as pa
import pytest

from skep_table.query import read
from skep_table.query.json_text import json_lines
from skep_table.table import HudiTable

hudi = pytest.importorskip("hudi")

# Where hudi-rs 0.5.0 answers otherwise than Hudi, or refuses.
DIFFERS = {
    "cow_bootstrap_metadata_only": "reads the skeleton files alone",
    "cow_custom_keygen": "does not unescape hoodie.properties, or takes the partition column from the file",
    "cow_drop_partition_columns": "refuses tables that dropped their partition columns",
    "cow_global_index": "takes partition columns from the file",
    "cow_record_index": "takes partition columns from the file",
    "cow_special_chars_urlencode_hive": "takes partition columns from the file: empty text is not null there",
    "mor_schema_evolution": "refuses log records with a narrower schema",
}
DIFFERS_IN_VERSION = {
    ("0.15.0", "cow_timestamp_keygen_date_string"): "takes the partition column from the file",
    ("0.15.0", "mor_compaction"): "does not put the logs of a pending compaction onto the slice before",
}


def test_snapshot_agrees_with_hudi_rs(case: archives.Case) -> None:
    reason = DIFFERS.get(case.name) or DIFFERS_IN_VERSION.get((case.version, case.name))
    if reason:
        pytest.skip(f"hudi-rs {reason}")
    theirs = [pa.record_batch(batch) for batch in hudi.HudiTable(str(case.table)).read()]
    ours = read(HudiTable.open(case.table)).to_arrow()
    assert text_of(ours.to_batches(), ours.schema.names) == text_of(theirs, ours.schema.names)


def text_of(batches: list[pa.RecordBatch], columns: list[str]) -> list[bytes]:
    lines: list[bytes] = []
    for batch in batches:
        lines += bytes(json_lines(batch.select(columns))).splitlines(keepends=True)
    return sorted(lines)
