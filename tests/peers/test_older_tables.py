"""Tables that Hudi before 0.14 wrote, upgraded by skep: Hudi 0.15.0 reads the same rows, and writes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

NAMES = ("_hoodie_record_key", "_hoodie_partition_path", "id", "name", "qty", "price", "day", "ts")
COLUMNS = "id string, name string, qty int, price double, day string, ts long"


def ours(path: Path) -> list[dict[str, Any]]:
    found = read(HudiTable.open(path), ReadRequest(columns=NAMES)).to_arrow()
    text = b"".join(bytes(json_lines(batch)) for batch in found.to_batches()).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def row(key: str, ts: int) -> dict[str, Any]:
    return {"id": key, "name": f"{key}-{ts}", "qty": ts, "price": ts / 2, "day": "2021-03-01", "ts": ts}


@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.parametrize("case", ["v2_mor_long", "v5_cow"])
def test_hudi_reads_and_writes_an_upgraded_table(
    older_golden: Path, jvm: Callable[[str], Jvm], tmp_path: Path, case: str
) -> None:
    hudi, path = jvm("0.15.0"), tmp_path / case
    shutil.copytree(older_golden / case / "table", path)
    before = ours(path)
    table = change_version(HudiTable.open(path), 6)
    assert not difference(hudi.read(path, columns=list(NAMES)).rows, before)
    schema = read(table, ReadRequest(limit=0, columns=NAMES[2:])).to_arrow().schema
    LocalWriter(table).upsert(pa.Table.from_pylist([row("a", 90), row("n", 90)], schema))
    options = {
        "hoodie.table.name": table.config.name,
        "hoodie.datasource.write.table.type": table.config.type.value,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.embed.timeline.server": "false",
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.metadata.enable": "true" if table.config.metadata_partitions else "false",
    }
    hudi.write(path, [row("a", 91), row("m", 91)], COLUMNS, options, operation="upsert")
    found = ours(path)
    assert not difference(hudi.read(path, columns=list(NAMES)).rows, found)
    assert HudiTable.open(path).config.version == 6
    names = {each["id"]: each["name"] for each in found}
    assert (names["a"], names["m"], names["n"]) == ("a-91", "m-91", "n-90")
    assert len(found) == len(before) + 2
