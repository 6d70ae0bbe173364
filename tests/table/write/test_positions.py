"""The rows of the base file that log blocks name: found where the index reads keys, else when the log is written."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting_storage import CountingStorage
from hypothesis import given, settings
from hypothesis import strategies as st
from log_positions import blocks_with_positions

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge import custom
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.output.held import positions_among
from skep_table.write.planning.settings import spec_of
from skep_table.write.tags import NOT_HELD, SEVERAL

SCHEMA = pa.schema({"id": pa.string(), "part": pa.string(), "ts": pa.int64(), "v": pa.int64()})
LOGS_TAKE_INSERTS = ["INMEMORY", "BUCKET"]
INDEXES = ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", *LOGS_TAKE_INSERTS]
pytestmark = pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")


def make(folder: Path, **spec: Any) -> HudiTable:
    wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", "version": 9, **spec}
    return create_table(
        LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, type=TableType.MERGE_ON_READ, **wanted)
    )


def rows(keys: list[str], ts: int = 1, parts: str | list[str] = "p") -> pa.Table:
    parts = [parts] * len(keys) if isinstance(parts, str) else parts
    return pa.table([keys, parts, [ts] * len(keys), [ts] * len(keys)], schema=SCHEMA)


def writer(table: HudiTable, **given: str) -> LocalWriter:
    every = {f"hoodie.{key.replace('__', '.')}": value for key, value in given.items()}
    return LocalWriter(table.with_context(options=Options(every), runner=ThreadRunner(2)))


@pytest.mark.parametrize("index", INDEXES)
def test_positions_are_those_of_the_keys(tmp_path: Path, index: str) -> None:
    """In random writes: repeated keys, new ones, deletes, rows for other partitions, several files and blocks."""
    table, chance = make(tmp_path / "t"), random.Random(index)
    given = {
        "index__type": index,
        "bucket__index__num__buckets": "2",
        "write__record__positions": "true",
        "parquet__small__file__limit": "0",
        "copyonwrite__insert__split__size": "40",
        "copyonwrite__insert__auto__split": "false",
    }
    expected: dict[str, int] = {}
    for ts in range(1, 9):
        keys = [f"k{chance.randrange(60 + 10 * ts)}" for _ in range(100 if ts == 1 else 30)]
        parts = [f"p{hash_of(key) % 2}" for key in keys]
        if index.startswith("GLOBAL") and ts % 2 == 0:
            parts = [f"p{chance.randrange(2)}" for _ in keys]
        if ts == 5 and not index.startswith("GLOBAL"):
            writer(table, **given).delete(rows(keys, ts, parts).select(["id", "part"]))
            expected = {key: v for key, v in expected.items() if key not in keys}
        else:
            more = {"logfile__data__block__max__size": "600"} if ts % 3 == 0 else {}
            distinct = dict(zip(keys, parts, strict=True))
            writer(table, **given, **more).upsert(rows(list(distinct) * 2, ts, list(distinct.values()) * 2))
            expected |= dict.fromkeys(keys, ts)
    named, blocks = blocks_with_positions(table)
    assert named > 4 or (index in LOGS_TAKE_INSERTS and blocks)
    for how in ({}, {"hoodie.merge.use.record.positions": "true"}):
        found = read(table.reload(), ReadRequest(options=how)).to_arrow().to_pylist()
        assert {row["id"]: row["v"] for row in found} == expected
        assert len(found) == len(expected)


def hash_of(key: str) -> int:
    return sum(map(ord, key))


def test_the_file_of_a_key_is_read_once(tmp_path: Path) -> None:
    make(tmp_path / "t")
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")))
    table = HudiTable.open(storage)
    writer(table).upsert(rows([f"k{n}" for n in range(20)]))
    storage.calls.clear()
    writer(table.reload()).upsert(rows(["k3", "k7", "k3"], 2))
    assert set(Counter(storage.calls.paths("open_input", suffix=".parquet")).values()) == {1}
    assert blocks_with_positions(table) == (1, 1)


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_positions_of_rows_that_lie_on_disk(tmp_path: Path, index: str) -> None:
    table = make(tmp_path / "t")
    few = {"skep.write.memory.max.bytes": "2000", "hoodie.index.type": index}
    keys = [f"k{n:04d}" for n in range(500)]
    LocalWriter(table).upsert(rows(keys))
    changes = rows(keys[::-3] + keys[::5], 2)
    streamed = pa.RecordBatchReader.from_batches(changes.schema, changes.to_batches(max_chunksize=20))
    LocalWriter(table.with_options(few)).upsert(streamed)
    named, blocks = blocks_with_positions(table)
    assert named == blocks > 1
    found = read(table.reload(), ReadRequest(options={"hoodie.merge.use.record.positions": "true"})).to_arrow()
    assert sum(found.column("v").to_pylist()) == 500 + len({*keys[::-3], *keys[::5]})


def test_a_key_twice_in_a_block_or_in_the_base_file_has_no_position(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    writer(table).bulk_insert(rows(["a", "b", "b", "c"]))
    writer(table).upsert(rows(["a", "c"], 2))
    assert blocks_with_positions(table) == (1, 1)
    writer(table).upsert(rows(["a", "b"], 3))
    assert blocks_with_positions(table) == (1, 2)
    writer(table, combine__before__upsert="false").upsert(rows(["a", "a", "c"], 4))
    assert blocks_with_positions(table) == (1, 3)
    writer(table, combine__before__upsert="false").upsert(rows(["c", "a"], 5))
    assert blocks_with_positions(table) == (2, 4)


def test_rows_that_a_merger_made_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merger sees the columns of the table only, so what it returns has no positions."""
    entry = SimpleNamespace(load=lambda: lambda _old, new: new)
    monkeypatch.setattr(plug_ins, "entry_points", lambda **named: [entry] if named["group"] == custom.GROUP else [])
    custom.find_merger.cache_clear()
    options = {
        "hoodie.write.table.version": "9",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.write.record.merge.mode": "CUSTOM",
        "hoodie.write.record.merge.strategy.id": "7a2b5b1e-3c0d-4c6e-9d7f-0f6a4e1c2b3d",
    }
    table = create_table(LocalStorage(str(tmp_path / "t")), spec_of(Options(options), "t", from_arrow(SCHEMA)))
    writer(table).upsert(rows(["a", "b", "c"]))
    try:
        writer(table).upsert(rows(["c", "a", "c"], 2))
    finally:
        custom.find_merger.cache_clear()
    assert blocks_with_positions(table) == (1, 1)


KEYS = st.lists(st.sampled_from([f"k{n}" for n in range(12)]), max_size=20)


@settings(max_examples=200, deadline=None)
@given(wanted=KEYS, stored=KEYS, cut=st.integers(1, 8))
def test_positions_among_stored_keys(wanted: list[str], stored: list[str], cut: int) -> None:
    batches = [(at, pa.array(stored[at : at + cut], pa.string())) for at in range(0, len(stored), cut)]
    found = positions_among(pa.array(wanted, pa.string()), batches)
    counts = Counter(stored)
    codes = {0: NOT_HELD, 1: None}
    expected = [stored.index(key) if counts[key] == 1 else codes.get(counts[key], SEVERAL) for key in wanted]
    assert found.tolist() == expected
    assert found.dtype == np.int64
