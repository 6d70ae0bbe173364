"""Delete blocks as Hudi 0.13 and older wrote them: Hudi's classes make these bytes, and Hudi reads what skep reads."""

from __future__ import annotations

import datetime as dt
import json
import struct
import subprocess
from collections.abc import Callable
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.peers.bundle import RELEASES, bundle, java
from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.logfile import BlockType, HeaderKey, format_block
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

MADE = Path(__file__).parents[1] / "format" / "logfile"
BYTES = {
    name: bytes.fromhex(text)
    for name, text in (line.split("\t") for line in (MADE / "kryo_deletes.tsv").read_text().splitlines())
}
KEYS = ["k1", "k2", "k3", "k4", "k5"]
# What is in the block, the type of the table's ordering column, and what it holds in every row of the log.
CASES: list[tuple[str, pa.DataType, Any]] = [
    ("keys_of_one_partition", pa.int64(), 10),
    ("deletes_int", pa.int32(), 5),
    ("deletes_int", pa.int64(), 5),
    ("deletes_long", pa.int64(), 10),
    ("deletes_some_zero", pa.int64(), 10),
    ("deletes_double", pa.float64(), 10.0),
    ("deletes_float", pa.float32(), 10.0),
    ("deletes_boolean", pa.bool_(), True),
    ("deletes_string", pa.string(), "5"),
    ("deletes_utf8", pa.string(), "5"),
    ("deletes_one_text", pa.string(), "2021/01"),
    ("deletes_decimal", pa.decimal128(24, 2), Decimal("5.00")),
    ("deletes_date", pa.date32(), dt.date(2022, 1, 1)),
    ("deletes_local_date", pa.date32(), dt.date(2000, 1, 1)),
    ("deletes_timestamp", pa.timestamp("us", "UTC"), dt.datetime(2022, 1, 1, tzinfo=dt.timezone.utc)),
]

# As with version 3, 0.15.0 compares values of one Java class only. Here those of rows are of others: all keys go.
UNCOMPARED_BY_0_15 = {"deletes_string", "deletes_one_text", "deletes_decimal", "deletes_local_date"}
# 1.2.0 fails over values of two classes, and numbers Avro's text otherwise.
REFUSED_BY_1_2 = {
    ("deletes_int", pa.int64()),
    ("deletes_utf8", pa.string()),
    ("deletes_date", pa.date32()),
    ("deletes_local_date", pa.date32()),
    ("deletes_timestamp", pa.timestamp("us", "UTC")),
}


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_hudis_classes_write_these_bytes(no_jvm: None) -> None:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    jars = Path(spark.origin).parent / "jars" / "*"
    command = [str(java()), "-Xmx256m", "-cp", f"{bundle('0.15.0')}:{jars}", str(MADE / "KryoDeletes.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (MADE / "kryo_deletes.tsv").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("release", [pytest.param(name, marks=pytest.mark.peer(f"hudi-{name}")) for name in RELEASES])
@pytest.mark.parametrize(("name", "kind", "held"), CASES, ids=[f"{name}-{kind}" for name, kind, _ in CASES])
def test_hudi_reads_as_we_do(
    release: str, name: str, kind: pa.DataType, held: Any, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", kind), ("v", pa.string())])
    spec = TableSpec(
        name="old", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts",
        type=TableType.MERGE_ON_READ,
    )  # fmt: skip
    create_table(LocalStorage(str(path)), spec)
    for text in ("base", "log"):
        rows = [{"id": key, "part": "2021/03", "ts": held, "v": text} for key in KEYS]
        LocalWriter(HudiTable.open(str(path))).upsert(pa.Table.from_pylist(rows, schema=schema))
    assert {row["v"] for row in ours(path)} == {"log"}

    (log,) = path.glob("2021/03/.*.log.*")
    instant = HudiTable.open(str(path)).timeline.completed().instants[-1].requested_time
    content = struct.pack(">ii", 1 if name.startswith("keys") else 2, len(BYTES[name])) + BYTES[name]
    with log.open("ab") as file:
        file.write(format_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, content))
    left = ours(path)
    assert len(left) < len(KEYS)
    hudi = jvm(release)
    if release == "1.2.0" and (name, kind) in REFUSED_BY_1_2:
        with pytest.raises(HudiRefused, match=r"ClassCastException|KryoException"):
            hudi.read(path)
        return
    theirs = hudi.read(path).rows
    if release == "0.15.0" and name in UNCOMPARED_BY_0_15:
        assert {row["id"] for row in theirs} == {key for key in KEYS if key.encode() not in plain_keys(BYTES[name])}
    else:
        assert not (found := difference(left, theirs)), found


def plain_keys(content: bytes) -> set[bytes]:
    """The keys k1, k2, … in a block: the last byte of a text has its highest bit set."""
    return {b"k" + bytes((number,)) for number in b"12345" if b"k" + bytes((number | 0x80,)) in content}


def ours(path: Path) -> list[dict[str, Any]]:
    batches = read(HudiTable.open(str(path)), ReadRequest()).to_batches()
    return [json.loads(line) for batch in batches for line in bytes(json_lines(batch)).splitlines()]
