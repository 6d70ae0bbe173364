"""Partial update modes of tables of version 9: which stored values stay, whichever way the rows meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import FormatError, OptionError
from skep_format.options import Options
from skep_format.schema.avro import parse_avro
from skep_format.storage import LocalStorage
from skep_format.table_config import TableConfig
from skep_table.commit.create import create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.planning.settings import spec_of

WRITE = "hoodie.datasource.write."
MODE = "hoodie.table.partial.update.mode"
UNAVAILABLE = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
PAYLOAD = f"{WRITE}payload.class"
MODEL = "org.apache.hudi.common.model."
SCHEMA = parse_avro(
    json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "id", "type": "string"},
                {"name": "ts", "type": "long"},
                {"name": "note", "type": ["null", "string"], "default": None},
                {"name": "count", "type": "int", "default": 7},
            ],
        }
    )
)
ARROW = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("note", pa.string()), ("count", pa.int32())])
STORED = {"id": "k", "ts": 5, "note": "stored", "count": 3}
BY_TIME = {f"{WRITE}precombine.field": "ts"}


def make(path: Path, **options: str) -> HudiTable:
    given = {"hoodie.write.table.version": "9", f"{WRITE}recordkey.field": "id", **options}
    return create_table(LocalStorage(str(path)), spec_of(Options(given), "t", SCHEMA))


def after(table: HudiTable, **update: Any) -> dict[str, Any]:
    """What becomes of the stored row by an update, which a compaction does not change."""
    for row in (STORED, {"id": "k", **update}):
        LocalWriter(table.reload()).upsert(pa.Table.from_pylist([row], ARROW))
    (found,) = read(table.reload(), ReadRequest(columns=tuple(ARROW.names))).to_arrow().to_pylist()
    if table.config.is_mor:
        compact(table.reload())
        assert read(table.reload(), ReadRequest(columns=tuple(ARROW.names))).to_arrow().to_pylist() == [found]
    return dict(found)


kinds = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])


@kinds
@pytest.mark.parametrize("stated", [{MODE: "IGNORE_DEFAULTS"}, {PAYLOAD: f"{MODEL}PartialUpdateAvroPayload"}])
def test_defaults_keep_what_is_stored(tmp_path: Path, kind: str, stated: dict[str, str]) -> None:
    table = make(tmp_path / "t", **BY_TIME, **stated, **{f"{WRITE}table.type": kind})
    assert after(table, ts=6, note=None, count=7) == {**STORED, "ts": 6}
    assert after(table, ts=6, note="new", count=8) == {"id": "k", "ts": 6, "note": "new", "count": 8}


@kinds
def test_an_older_row_fills_what_the_stored_one_lacks(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", **BY_TIME, **{MODE: "IGNORE_DEFAULTS", f"{WRITE}table.type": kind})
    LocalWriter(table).upsert(pa.Table.from_pylist([{"id": "k", "ts": 9, "note": None, "count": 7}], ARROW))
    assert after(table, ts=4, note="older", count=1) == {"id": "k", "ts": 9, "note": "stored", "count": 3}


@kinds
def test_by_commit_time_too(tmp_path: Path, kind: str) -> None:
    payload = {PAYLOAD: f"{MODEL}OverwriteNonDefaultsWithLatestAvroPayload", f"{WRITE}table.type": kind}
    table = make(tmp_path / "t", **BY_TIME, **payload)
    assert after(table, ts=1, note=None, count=9) == {"id": "k", "ts": 1, "note": "stored", "count": 9}


@kinds
def test_a_text_in_place_of_what_the_source_did_not_send(tmp_path: Path, kind: str) -> None:
    stated = {MODE: "FILL_UNAVAILABLE", UNAVAILABLE: "?", f"{WRITE}table.type": kind}
    table = make(tmp_path / "t", **BY_TIME, **stated)
    assert after(table, ts=6, note="?", count=7) == {"id": "k", "ts": 6, "note": "stored", "count": 7}
    assert after(table, ts=6, note=None, count=7) == {"id": "k", "ts": 6, "note": None, "count": 7}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({MODE: "KEEP_VALUES"}, "'KEEP_VALUES' is not one of IGNORE_DEFAULTS, FILL_UNAVAILABLE"),
        ({MODE: "FILL_UNAVAILABLE"}, f"FILL_UNAVAILABLE needs {UNAVAILABLE}"),
        ({MODE: "IGNORE_DEFAULTS", PAYLOAD: "com.example.Own"}, "rows of merge mode CUSTOM merge by"),
        (
            {MODE: "FILL_UNAVAILABLE", PAYLOAD: f"{MODEL}PartialUpdateAvroPayload"},
            f"{MODE}=FILL_UNAVAILABLE and {PAYLOAD}=.* contradict",
        ),
        ({MODE: "IGNORE_DEFAULTS", "hoodie.write.table.version": "8"}, "tables of version 8 hold none"),
    ],
)
def test_modes_that_can_not_be_are_refused(tmp_path: Path, options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        make(tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_a_table_with_an_unknown_mode_is_refused_by_name() -> None:
    properties = {"hoodie.table.name": "t", "hoodie.table.version": "9", MODE: "KEEP_VALUES"}
    with pytest.raises(FormatError, match=f"{MODE}=KEEP_VALUES is not understood"):
        TableConfig.parse(properties)
