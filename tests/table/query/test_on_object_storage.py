"""Tables that Hudi wrote, read from an object store: logs, metadata tables, archives and indexes come by ranges too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skep_format.json_text import json_lines
from skep_format.storage import Storage
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable


def lines(table: HudiTable, request: ReadRequest) -> list[bytes]:
    return sorted(b"".join(bytes(json_lines(batch)) for batch in read(table, request).to_batches()).splitlines())


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("0.15.0/mor_upsert", {}),
        ("0.15.0/mor_compaction", {"query": "read_optimized"}),
        ("0.15.0/cow_column_stats", {"where": "qty > 50000"}),
        ("1.0.2/mor_partial_update", {}),
        ("1.1.1/cow_archive", {"query": "incremental"}),
        ("1.1.1/cow_record_index", {"where": "order_id = 'ord-000577'"}),
        ("1.1.1/cow_cdc", {"query": "cdc"}),
        ("1.1.1/cow_special_chars_urlencode_hive", {}),
    ],
)
def test_answers_are_those_of_the_same_table_on_disk(
    name: str, asked: dict[str, Any], golden: Path, s3_folder: Callable[[], Storage], s3_options: dict[str, str]
) -> None:
    folder, storage = golden / name / "table", s3_folder()
    for file in filter(Path.is_file, folder.rglob("*")):
        storage.replace_atomic(str(file.relative_to(folder)), file.read_bytes())
    request = ReadRequest(**asked)
    found = lines(HudiTable.open(storage.root, s3_options), request)
    assert found == lines(HudiTable.open(folder), request)
    assert found
