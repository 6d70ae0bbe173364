"""A key stays in the file group that first took it, whatever is written afterwards: Hudi's readers rely on it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
# Files of a few rows, so that new ones are opened and small ones filled up all the time.
TINY = {
    "hoodie.parquet.max.file.size": "6000",
    "hoodie.parquet.small.file.limit": "5500",
    "hoodie.index.bloom.num_entries": "20",
    "hoodie.bucket.index.num.buckets": "3",
}
KEYS = st.sampled_from([f"k{number}" for number in range(12)])
BATCH = st.lists(st.tuples(KEYS, st.sampled_from(["p", "q"]), st.integers(0, 5)), min_size=1, max_size=12)
STEP = st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), BATCH)


@pytest.mark.parametrize("index", ["BLOOM", "SIMPLE", "BUCKET"])
@pytest.mark.parametrize("kind", list(TableType))
@settings(max_examples=5, deadline=None)
@given(steps=st.lists(STEP, min_size=2, max_size=5))
def test_a_key_never_changes_its_group(
    tmp_path_factory: Any, kind: TableType, index: str, steps: list[tuple[str, list[Any]]]
) -> None:
    folder = str(tmp_path_factory.mktemp("groups") / "t")
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    table = create_table(LocalStorage(folder), spec)
    setting = {"runner": ThreadRunner(1), "options": Options({**TINY, "hoodie.index.type": index})}
    home: dict[tuple[str, str], str] = {}
    for operation, batch in steps:
        rows = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in batch], SCHEMA)
        frame = rows.select(["id", "part"]) if operation == "delete" else rows
        getattr(LocalWriter(table.with_context(**setting)), operation)(frame)
        if kind is TableType.MERGE_ON_READ:
            compact(table.with_context(**setting))  # rows of logs do not contain their group
        now = groups(folder)
        stayed = home.keys() & now.keys()
        assert {key: now[key] for key in stayed} == {key: home[key] for key in stayed}
        home = now


def groups(folder: str) -> dict[tuple[str, str], str]:
    columns = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
    found = read(HudiTable.open(folder), ReadRequest(columns=columns)).to_arrow().to_pylist()
    assert len({(row[columns[1]], row[columns[0]]) for row in found}) == len(found), "a key twice"
    return {(row[columns[1]], row[columns[0]]): row[columns[2]].partition("_")[0] for row in found}
