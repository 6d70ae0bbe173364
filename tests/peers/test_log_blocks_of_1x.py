"""Log blocks of table versions 8 and 9 beside JVM Hudi: partial updates and record positions, read and compacted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import Row
from skep_format.logfile import HeaderKey, read_blocks
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact_logs
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Start = Callable[[str], Jvm]
Stored = dict[str, tuple[int, int | None, str | None]]
SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("part", pa.string())]
)
DDL = "id STRING, ts BIGINT, a BIGINT, b STRING, part STRING"
BY_POSITION = {"hoodie.merge.use.record.positions": "true"}
RELEASES = [
    pytest.param(release, version, marks=[pytest.mark.peer(f"hudi-{release}"), *slow], id=f"{release}-v{version}")
    for release, version, slow in (
        ("1.0.2", 8, [pytest.mark.slow]),
        ("1.1.1", 9, [pytest.mark.slow]),
        ("1.2.0", 8, [pytest.mark.slow]),
        ("1.2.0", 9, []),
    )
]
each_release = pytest.mark.parametrize(("release", "version"), RELEASES)


def frame(*names: str, **rows: tuple[Any, ...]) -> pa.Table:
    wanted = ["id", *names, "part"]
    values = [dict(zip(wanted, (key, *row, "p"), strict=True)) for key, row in rows.items()]
    return pa.Table.from_pylist(values, pa.schema([SCHEMA.field(name) for name in wanted]))


def with_options(path: Path, **given: str) -> HudiTable:
    every = {f"hoodie.{key.replace('__', '.')}": value for key, value in given.items()}
    return HudiTable.open(str(path)).with_context(options=Options(every), runner=ThreadRunner(1))


def ours(path: Path, **how: Any) -> Stored:
    return stored(read(HudiTable.open(str(path)), ReadRequest(**how)).to_arrow().to_pylist())


def stored(rows: list[Row]) -> Stored:
    assert len({row["id"] for row in rows}) == len(rows), "a key twice"
    return {row["id"]: (row["ts"], row["a"], row["b"]) for row in rows}


def headers(path: Path) -> list[set[HeaderKey]]:
    logs = sorted(path.rglob(".*.log.*"))
    logs = [log for log in logs if log.suffix != ".crc"]
    return [set(block.headers) for log in logs for block in read_blocks(pa.OSFile(str(log)), str(log))]


def hudi_options(version: int) -> dict[str, str]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "1",
    }


@each_release
@pytest.mark.parametrize("block_format", ["avro", pytest.param("parquet", marks=pytest.mark.slow)])
def test_hudi_reads_and_compacts_ours(
    release: str, version: int, block_format: str, jvm: Start, tmp_path: Path
) -> None:
    hudi, path = jvm(release), tmp_path / "t"
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts",
        type=TableType.MERGE_ON_READ, version=version,
    )  # fmt: skip
    create_table(LocalStorage(str(path)), spec)
    writer = LocalWriter(with_options(path, logfile__data__block__format=block_format))
    every = {f"k{n:02}": (1, n, f"b{n}") for n in range(20)}
    writer.upsert(frame("ts", "a", "b", **every))
    expected: Stored = dict(every)

    def agree() -> None:
        check(hudi, path, expected)

    writer.upsert(frame("ts", "a", "b", k03=(2, 33, "whole"), k04=(2, 44, "whole")))
    expected |= {"k03": (2, 33, "whole"), "k04": (2, 44, "whole")}
    writer.upsert(frame("ts", "a", k17=(3, 170), k03=(3, None), k05=(0, 55)), partial=True)  # that of k05 is late
    expected |= {"k17": (3, 170, "b17"), "k03": (3, None, "whole")}
    agree()
    writer.upsert(frame("ts", "b", k17=(4, "again"), k08=(4, None)), partial=True)
    expected |= {"k17": (4, 170, "again"), "k08": (4, 8, None)}
    writer.delete(frame(k01=(), k02=()).select(["id", "part"]))
    writer.upsert(frame("ts", "a", k01=(6, 11), new=(6, 12)), partial=True)
    del expected["k02"]
    expected |= {"k01": (6, 11, None), "new": (6, 12, None)}
    assert any(HeaderKey.IS_PARTIAL in each for each in headers(path))
    assert sum(HeaderKey.RECORD_POSITIONS in each for each in headers(path)) >= 5
    agree()
    if block_format == "avro":
        assert compact_logs(with_options(path, log__compaction__blocks__threshold="2"))
        agree()

    hudi.write(path, [{"id": "k19", "ts": 9, "a": 9, "b": "theirs", "part": "p"}], DDL, hudi_options(version))
    expected |= {"k19": (9, 9, "theirs")}
    agree()
    assert ours(path, query="read_optimized") == expected, "Hudi compacted all of it"
    writer = LocalWriter(with_options(path))
    writer.upsert(frame("ts", "b", k19=(10, "ours")), partial=True)
    expected |= {"k19": (10, 9, "ours")}
    agree()


def check(hudi: Jvm, path: Path, expected: Stored) -> None:
    assert ours(path) == expected
    for how in ({}, BY_POSITION):
        assert stored(hudi.read(path, how).rows) == expected, how
