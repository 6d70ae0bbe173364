"""Spark frames of tables that are cleaned meanwhile: all rows, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_table.query import ReadRequest, plan
from skep_table.services.cleaning.clean import clean
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import to_spark
from skep_writer.reading.native import split

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
RETAIN_ONE = Options({"hoodie.cleaner.commits.retained": "1"})
REMOVED = r"does not exist|deleted by a clean|FileNotFound"
Make = Callable[..., HudiTable]


def rows(ts: int, *ids: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": at, "part": "x", "ts": ts, "v": at} for at in ids], SCHEMA)


@pytest.fixture
def lenient(spark: Any) -> Iterator[Any]:
    """A session that ignores missing files."""
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    yield spark
    spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.parametrize("where", [None, "ts + 0 > 0"], ids=["native", "merged"])
def test_a_frame_has_all_rows_or_fails(lenient: Any, make_table: Make, where: str | None) -> None:
    table = make_table(SCHEMA)
    LocalWriter(table).bulk_insert(rows(1, "a", "b"))
    table, request = table.reload(), ReadRequest(where=where)
    assert bool(split(lenient, plan(table, request))[0]) is (where is None)
    early = to_spark(table, request, lenient)
    for ts in (2, 3, 4):
        LocalWriter(table).upsert(rows(ts, "a"))
    assert clean(table.with_context(options=RETAIN_ONE)) is not None
    assert sorted(row.id for row in to_spark(table, request, lenient).collect()) == ["a", "b"]
    with pytest.raises(Exception, match=REMOVED):
        early.collect()
