"""A file that is lost ends a scan of Spark with an error that names it, whichever of the scans reads the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import to_spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.engine("spark"),
    pytest.mark.parametrize("table_version", [6, 9], indirect=True),
]
ROWS = pa.table({"id": ["a", "b"], "part": ["p", "q"], "v": [1, 1]})
WAYS: dict[str, Callable[[Any, HudiTable], object]] = {
    "rows": lambda spark, table: to_spark(table, ReadRequest(), spark).collect(),
    "count": lambda spark, table: to_spark(table, ReadRequest(), spark).count(),
    "filter": lambda spark, table: to_spark(table, ReadRequest(), spark).where("id = 'a'").collect(),
    "range": lambda spark, table: to_spark(table, ReadRequest(query="incremental"), spark).collect(),
}


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path, metadata: bool) -> HudiTable:
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), partition_by=("part",), type=request.param)
    options = {"hoodie.metadata.enable": str(metadata).lower()}
    made = create_table(LocalStorage(str(tmp_path / "t")), spec, options)
    LocalWriter(made).insert(ROWS)
    LocalWriter(made.reload()).upsert(ROWS)
    assert (made.reload().metadata_table() is not None) is metadata
    return HudiTable.open(made.storage.root, options)


@pytest.mark.parametrize("metadata", [True, False], ids=["indexed", "listed"])
def test_a_lost_file_is_named(spark: Any, table: HudiTable) -> None:
    (slice_,) = table.view(metadata=False).slices("p")
    path = Path(table.storage.root) / (slice_.log_files[-1].path if slice_.log_files else slice_.base_file.path)
    path.unlink()
    for read in WAYS.values():
        with pytest.raises(Exception, match=re.escape(path.name)):
            read(spark, HudiTable.open(table.storage.root, dict(table.options)))
