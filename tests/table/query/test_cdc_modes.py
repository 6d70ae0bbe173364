"""The two supplemental logging modes that leave images out: the same changes, completed from the slices around."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.json_text import AVRO, json_values
from skep_format.logfile import BlockType, HeaderKey, read_blocks
from skep_format.logfile.writer import avro_content, format_block
from skep_format.schema.avro import parse_avro, to_avro
from skep_format.schema.types import Schema
from skep_format.storage import LocalStorage
from skep_format.table_config import update_table_config
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

FIELDS = {"OP_KEY_ONLY": ("op", "record_key"), "DATA_BEFORE": ("op", "record_key", "before")}
KEY = '{"name": "record_key", "type": ["null", "string"], "default": null, "doc": ""}'


def in_mode(source: Path, target: Path, mode: str) -> HudiTable:
    """A copy of a table with full CDC logs, its logs rewritten as `mode` would have written them."""
    shutil.copytree(source, target)
    storage = LocalStorage(str(target))
    for status in storage.list_prefix("", recursive=True):
        if status.name.endswith(".cdc"):
            with storage.open_input(status.path) as file:
                blocks = [shortened(block, mode) for block in read_blocks(file, status.path)]
            storage.replace_atomic(status.path, b"".join(blocks))
    update_table_config(storage, {"hoodie.table.cdc.supplemental.logging.mode": mode})
    return HudiTable.open(storage)


def shortened(block: Any, mode: str) -> bytes:
    rows = block.records()
    after, before = (
        [json.loads(text or "null") for text in json_values(rows[name].combine_chunks(), AVRO).to_pylist()]
        for name in ("after", "before")
    )
    keys = [(new or old)["order_id"] for new, old in zip(after, before, strict=True)]
    whole = parse_avro(block.schema_text)
    named = parse_avro('{"type": "record", "name": "CDC", "namespace": "hoodie.cdc", "fields": [' + KEY + "]}")
    fields = tuple(named["record_key"] if name == "record_key" else whole[name] for name in FIELDS[mode])
    schema = Schema(fields, whole.name, whole.namespace)
    table = rows.append_column("record_key", pa.array(keys)).select(list(FIELDS[mode]))
    headers = dict(block.headers) | {HeaderKey.SCHEMA: json.dumps(to_avro(schema))}
    return format_block(BlockType.CDC_DATA, headers, avro_content(schema, table))


@pytest.mark.parametrize("version", ["0.15.0", "1.0.2", "1.1.1"])
@pytest.mark.parametrize("mode", list(FIELDS))
def test_images_are_completed(golden: Path, tmp_path: Path, version: str, mode: str) -> None:
    source = golden / version / "cow_cdc" / "table"
    full = read(HudiTable.open(source), ReadRequest(query="cdc")).to_arrow().to_pylist()
    changes = read(in_mode(source, tmp_path / "table", mode), ReadRequest(query="cdc")).to_arrow().to_pylist()
    assert sorted(map(content_of, changes), key=str) == sorted(map(content_of, full), key=str)
    for change in changes:
        assert (change["after"] is None) is (change["op"] == "d")
        if mode == "OP_KEY_ONLY":
            assert (change["before"] is None) is (change["op"] == "i")


def content_of(change: dict[str, str | None]) -> tuple[Any, ...]:
    """What a change contains in every mode: operation, instant, and the plain values of both images."""
    return change["op"], change["ts_ms"], plain(change["before"]), plain(change["after"])


def plain(image: str | None) -> Any:
    if image in (None, "null"):
        return None
    row = json.loads(image)
    return {
        name: row.get(name) for name in ("order_id", "customer", "city", "ts", "qty", "ship_date", "price", "is_gift")
    }
