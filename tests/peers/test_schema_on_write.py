"""Tables whose columns changed while skep wrote them: JVM Hudi reads the same rows in them, and writes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
from benchmarks.peers.bundle import RELEASES
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

Start = Callable[[str], Jvm]
KEY = [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())]
IDS = ["a", "b", "c", "d"]
# What is written first, and then for half of the keys and new ones: (columns, a value of each).
Change = tuple[dict[str, tuple[pa.DataType, Any]], dict[str, tuple[pa.DataType, Any]]]
INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
BIG = 2**40
CHANGES: dict[str, Change] = {
    "added at the end": ({"n": (INT, 1)}, {"n": (INT, 2), "more": (TEXT, "x")}),
    "added within": (
        {"place": (pa.struct([("city", TEXT)]), {"city": "Delft"})},
        {"place": (pa.struct([("city", TEXT), ("zip", INT)]), {"city": "Gouda", "zip": 5})},
    ),
    "a map and a list": (
        {"n": (INT, 1)},
        {"n": (INT, 2), "tags": (pa.list_(TEXT), ["x", "y"]), "sizes": (pa.map_(TEXT, INT), [("s", 1)])},
    ),
    "int to long": ({"n": (INT, 1)}, {"n": (LONG, BIG)}),
    "int to long within": (
        {"place": (pa.struct([("city", TEXT), ("zip", INT)]), {"city": "Delft", "zip": 5})},
        {"place": (pa.struct([("city", TEXT), ("zip", LONG)]), {"city": "Gouda", "zip": BIG})},
    ),
    "int to long in maps and lists": (
        {"sizes": (pa.map_(TEXT, INT), [("s", 1)]), "counts": (pa.list_(INT), [1, 2])},
        {"sizes": (pa.map_(TEXT, LONG), [("s", BIG)]), "counts": (pa.list_(LONG), [BIG])},
    ),
    "float to double": ({"x": (pa.float32(), 0.5)}, {"x": (pa.float64(), 0.1)}),
    "a meta-like column": ({"n": (INT, 1)}, {"n": (INT, 2), "_hoodie_note": (TEXT, "mine")}),
    "another order": ({"n": (INT, 1), "m": (TEXT, "m")}, {"m": (TEXT, "mm"), "new": (INT, 3), "n": (INT, 2)}),
    "a narrower column": ({"n": (LONG, BIG)}, {"n": (INT, 2)}),
}


def frame(ids: list[str], columns: dict[str, tuple[pa.DataType, Any]], ts: int) -> pa.Table:
    schema = pa.schema([*KEY, *((name, kind) for name, (kind, _) in columns.items())])
    values = {name: value for name, (_, value) in columns.items()}
    return pa.Table.from_pylist([{"id": key, "part": "p", "ts": ts, **values} for key in ids], schema)


@pytest.mark.parametrize(
    "release", [pytest.param(release, marks=pytest.mark.peer(f"hudi-{release}")) for release in RELEASES]
)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.slow
def test_hudi_reads_changed_columns(release: str, kind: str, jvm: Start, tmp_path: Path) -> None:
    hudi = jvm(release)
    wrong = {}
    for name, (first, then) in CHANGES.items():
        path = tmp_path / name.replace(" ", "_")
        options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.table.type": kind,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
        }
        for ids, columns, ts, operation in ((IDS, first, 1, "bulk_insert"), ([*IDS[:2], "n"], then, 2, "upsert")):
            given = {**options, "hoodie.datasource.write.operation": operation}
            skep.write(frame(ids, columns, ts)).options(**given).mode("append").save(path)
        ours = [
            json.loads(line)
            for batch in read(HudiTable.open(str(path)), ReadRequest()).to_batches()
            for line in bytes(json_lines(batch)).splitlines()
        ]
        assert {row["id"]: row["ts"] for row in ours} == {"a": 2, "b": 2, "n": 2, "c": 1, "d": 1}
        try:
            found = difference(hudi.read(path).rows, ours)
        except Exception as error:
            found = repr(error)[:300]
        if found:
            wrong[name] = found
    assert not wrong
