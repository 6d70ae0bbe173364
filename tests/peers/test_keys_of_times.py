"""Tables that Hudi made with key generators of times: what it does not store is given to skep, and both go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_cases import COW, GENERATORS, KEYGEN, KEYS, MOR, ORDERING, PARTS

import skep
from benchmarks.peers.jvm import Jvm
from skep_table.table import HudiTable
from skep_table.upgrade import change_version

TIMES, OLDER = "hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased."
TYPE = "hoodie.datasource.write.table.type"
BY_TIME = {PARTS: "at", KEYGEN: GENERATORS + "TimestampBasedKeyGenerator"}
MILLIS = {TIMES + "timestamp.type": "EPOCHMILLISECONDS", TIMES + "output.dateformat": "yyyyMMdd"}
TEXTS = {
    "timestamp.type": "DATE_STRING",
    "input.dateformat": "yyyy-MM-dd'T'HH:mm:ss,yyyyMMdd",
    "input.dateformat.list.delimiter.regex": ",",
    "input.timezone": "UTC",
    "output.dateformat": "yyyyMMdd",
    "output.timezone": "Asia/Tokyo",
}
# Type of the column, options of the job, type of the table, two values, their partitions. Hudi 0.15 reads
# copy-on-write tables only where there are several levels of folders, or the column is text, and others only where the
# names of folders can be cast to its type.
TABLES: dict[str, tuple[str, dict[str, str], str, tuple[Any, Any], tuple[str, str]]] = {
    "milliseconds": (
        "bigint",
        {**BY_TIME, **MILLIS, TIMES + "output.dateformat": "yyyy/MM/dd"},
        COW,
        (1_700_000_000_000, 1_500_000_000_000),
        ("2023/11/14", "2017/07/14"),
    ),
    "older_names": (
        "bigint",
        {**BY_TIME, **{key.replace(TIMES, OLDER): value for key, value in MILLIS.items()}, OLDER + "timezone": "GMT"},
        MOR,
        (1_700_000_000_000, 1_500_000_000_000),
        ("20231114", "20170714"),
    ),
    "days": (
        "bigint",
        {
            **BY_TIME,
            TIMES + "timestamp.type": "SCALAR",
            TIMES + "timestamp.scalar.time.unit": "DAYS",
            TIMES + "output.dateformat": "yyyyMM",
        },
        MOR,
        (19_000, 20_000),
        ("202201", "202410"),
    ),
    "texts": (
        "string",
        {**BY_TIME, **{TIMES + name: text for name, text in TEXTS.items()}},
        COW,
        ("2024-02-29T23:30:00", "20231231"),
        ("20240301", "20231231"),
    ),
    "custom": (
        "bigint",
        {PARTS: "at:TIMESTAMP", KEYGEN: GENERATORS + "CustomKeyGenerator", **MILLIS},
        MOR,
        (1_700_000_000_000, 1_500_000_000_000),
        ("20231114", "20170714"),
    ),
}


def row(id: str, ts: int, at: Any) -> dict[str, Any]:
    return {"id": id, "ts": ts, "at": at}


def ours(path: Path, options: dict[str, str], operation: str, *rows: dict[str, Any]) -> None:
    frame = pa.table({name: [each[name] for each in rows] for name in ("id", "ts", "at")})
    writer = skep.write(frame).options(**{**options, "hoodie.datasource.write.operation": operation})
    writer.mode("append").save(path)


def agree(path: Path, hudi: Jvm, expected: dict[str, tuple[int, int]], paths: tuple[str, str]) -> None:
    """Of each key the time of its row, and the number of its partition, to Hudi and to skep."""
    for rows in (hudi.read(path).rows, skep.load(path).to_arrow().to_pylist()):
        found = {each["id"]: (each["ts"], paths.index(each["_hoodie_partition_path"])) for each in rows}
        assert (len(rows), found) == (len(expected), expected)


@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.parametrize("case", TABLES)
def test_both_write_a_table_that_hudi_made(case: str, jvm: Callable[[str], Jvm], tmp_path: Path) -> None:
    kind, own, table_type, (first, second), paths = TABLES[case]
    options = {KEYS: "id", ORDERING[0]: "ts", TYPE: table_type, **own, "hoodie.table.name": "t"}
    hudi, schema = jvm("0.15.0"), f"id string, ts bigint, at {kind}"
    hudi.write(tmp_path, [row("a", 1, first), row("b", 1, second), row("c", 1, second)], schema, options)
    assert TIMES + "timestamp.type" not in HudiTable.open(str(tmp_path)).config.raw
    ours(tmp_path, options, "upsert", row("a", 2, first), row("d", 2, second))
    ours(tmp_path, options, "delete", row("b", 3, second))
    hudi.write(tmp_path, [row("d", 4, second), row("e", 4, first)], schema, options, operation="upsert")
    ours(tmp_path, options, "insert", row("f", 5, first))
    agree(tmp_path, hudi, {"a": (2, 0), "c": (1, 1), "d": (4, 1), "e": (4, 0), "f": (5, 0)}, paths)


@pytest.mark.peer("hudi-1.1.1")
@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.parametrize(
    "case", [case if case == "older_names" else pytest.param(case, marks=pytest.mark.slow) for case in TABLES]
)
def test_both_write_on_after_an_upgrade(case: str, jvm: Callable[[str], Jvm], tmp_path: Path) -> None:
    kind, own, table_type, (first, second), paths = TABLES[case]
    options = {KEYS: "id", ORDERING[0]: "ts", TYPE: table_type, **own, "hoodie.table.name": "t"}
    schema = f"id string, ts bigint, at {kind}"
    jvm("0.15.0").write(tmp_path, [row("a", 1, first), row("b", 1, second), row("c", 1, second)], schema, options)
    change_version(HudiTable.open(str(tmp_path)), 9)
    ours(tmp_path, options, "upsert", row("a", 2, first), row("d", 2, second))
    ours(tmp_path, options, "delete", row("b", 3, second))
    hudi = jvm("1.1.1")
    hudi.write(tmp_path, [row("d", 4, second), row("e", 4, first)], schema, options, operation="upsert")
    ours(tmp_path, options, "insert", row("f", 5, first))
    agree(tmp_path, hudi, {"a": (2, 0), "c": (1, 1), "d": (4, 1), "e": (4, 0), "f": (5, 0)}, paths)
