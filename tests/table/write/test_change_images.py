"""Images in change logs: the bytes that Hudi writes, of columns of every kind."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from captured_tables import MODES, ON, SCHEMA, Captured, change_blocks, image, replayed, rows

from skep_format.logfile import HeaderKey, read_blocks
from skep_format.logfile.changes import change_block
from skep_format.schema.arrow import to_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config.keys import CdcMode
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.flow import NullInListWarning
from skep_table.write.output.change_log import FIELDS

KEYED = ("op", "record_key")


@pytest.mark.parametrize("version", ["0.15.0", "1.0.2", "1.1.1"])
def test_blocks_are_those_that_hudi_writes(golden: Path, version: str) -> None:
    """Records and schema byte by byte; only the order of the headers differs from one release to the next."""
    table = HudiTable.open(golden / version / "cow_cdc" / "table")
    schema, compared = table.schema(), 0
    for stat in (
        stat for instant in table.timeline.data().completed() for stat in table.commit_metadata(instant).stats
    ):
        for path in stat.cdc_stats or ():
            with table.storage.open_input(path) as file:
                (theirs,) = read_blocks(file, path)
                expected, headers = theirs.content(), theirs.headers
                fields = FIELDS[CdcMode.DATA_BEFORE_AFTER]
                ours = change_block(theirs.instant_time, schema, fields, theirs.records())
            (block,) = read_blocks(pa.BufferReader(ours), path, len(ours))
            assert block.content() == expected
            assert block.headers == headers
            compared += 1
    assert compared > 2


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (
            "OP_KEY_ONLY",
            {
                "type": "record",
                "name": "Record",
                "fields": [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")],
            },
        ),
        (
            "DATA_BEFORE",
            {
                "type": "record",
                "name": "CDC",
                "namespace": "hoodie.t",
                "fields": [
                    *({"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in KEYED),
                    {"name": "before", "type": ["null", "t_record"], "doc": "", "default": None},
                ],
            },
        ),
    ],
)
def test_records_of_the_other_modes(tmp_path: Path, mode: str, text: dict[str, Any]) -> None:
    table = Captured.make(tmp_path, mode)
    table.writer().upsert(rows(("a", "p", 1, ["x"]), ("b", "p", 1, None)))
    table.writer().upsert(rows(("a", "p", 2, []), ("c", "p", 1, None)))
    table.writer().delete(rows(("b", "p")))
    (block,) = change_blocks(table.files()[-1])
    assert set(block.headers) == {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA}
    found = json.loads(block.schema_text)
    if mode == "DATA_BEFORE":
        assert found["fields"][2]["type"][1].pop("fields")[0]["name"] == "id"
        found["fields"][2]["type"][1] = found["fields"][2]["type"][1].pop("name")
    assert found == text
    changed = block.records().to_pylist()
    assert [(each["op"], each["record_key"]) for each in changed] == [("d", "b")]


@pytest.mark.parametrize("mode", MODES)
def test_columns_change_between_changes(tmp_path: Path, mode: str) -> None:
    """A CDC query returns images of the columns as they are now, but for those that a log holds."""
    table = Captured.make(tmp_path, mode)
    table.writer().upsert(rows(("a", "p", 1, ["x"]), ("b", "p", 1)))
    wider = rows(("a", "p", 2, ["y"])).append_column("more", pa.array([7], pa.int64()))
    table.writer().upsert(wider)
    table.writer().delete(rows(("b", "p")))
    assert replayed(table.changes()) == table.snapshot()
    (update,) = [change for change in table.changes() if change["op"] == "u"]
    after = image(update["after"])
    assert after is not None
    assert after["more"] == 7


def test_partition_columns_that_files_leave_out_are_in_change_logs(tmp_path: Path) -> None:
    dropped = {"hoodie.datasource.write.drop.partition.columns": "true", ON: "true"}
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", properties=dropped
    )
    create_table(LocalStorage(str(tmp_path)), spec)
    table = Captured(str(tmp_path))
    table.writer().upsert(rows(("a", "p", 1), ("b", "p", 1)))
    table.writer().upsert(rows(("a", "p", 2), ("c", "p", 1)))
    logged = [change for change in table.changes() if "_hoodie" not in f"{change['before']}{change['after']}"]
    assert [(change["op"], image(change["after"])["part"]) for change in logged] == [("u", "p"), ("i", "p")]  # type: ignore[index]


def test_the_operation_column_is_not_in_images(tmp_path: Path) -> None:
    """Hudi leaves it out, as it does the other meta columns."""
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    operation = {"hoodie.allow.operation.metadata.field": "true"}
    for ts in (1, 2):
        given = rows(("a", "p", ts)).append_column("_hoodie_operation", pa.array(["U"]))
        table.writer(**operation).upsert(given)
    (block,) = change_blocks(table.files()[0])
    assert block.records().schema.field("after").type.field(0).name == "id"


@pytest.mark.parametrize("version", ["0.15.0", "1.0.2", "1.1.1"])
def test_a_row_has_the_image_that_hudi_made_of_it(golden: Path, tmp_path: Path, version: str) -> None:
    """A row of every type that Hudi wrote last: its image before our update is the one after Hudi's."""
    shutil.copytree(golden / version / "cow_cdc" / "table", tmp_path / "t")
    table = Captured(str(tmp_path / "t"))
    stored = {row["order_id"]: row for row in read(table.table, ReadRequest()).to_arrow().to_pylist()}
    logged: dict[str, Any] = {}
    for change in table.changes():
        after = image(change["after"])
        if after is not None and "_hoodie_record_key" not in after and after["order_id"] in stored:
            logged[after["order_id"]] = after
    assert len(logged) > 2
    names = table.table.schema().names()
    bumped = [{**{name: stored[key][name] for name in names}, "ts": stored[key]["ts"] + 10**9} for key in logged]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullInListWarning)
        result = table.writer().upsert(pa.Table.from_pylist(bumped, to_arrow(table.table.schema())))
    ours = [change for change in table.changes() if change["ts_ms"] == result.instant.requested_time]
    assert {change["op"] for change in ours} == {"u"}
    assert {row["order_id"]: row for row in map(image, (change["before"] for change in ours)) if row} == logged


def test_required_columns_are_in_images(tmp_path: Path) -> None:
    required = pa.schema([field.with_nullable(field.name == "tags") for field in SCHEMA])
    spec = TableSpec(name="t", schema=required, record_key=("id",), partition_by=("part",), properties={ON: "true"})
    create_table(LocalStorage(str(tmp_path)), spec)
    table = Captured(str(tmp_path))
    table.writer().upsert(rows(("a", "p", 1), ("b", "p", 1)).cast(required))
    table.writer().upsert(rows(("a", "p", 2, ["x"]), ("c", "p", 1)).cast(required))
    table.writer().delete(rows(("b", "p")).select(["id", "part"]))
    assert replayed(table.changes()) == table.snapshot()
