"""Any run of upserts, deletes and compactions with two ordering columns ends as a model of Hudi 1.1 predicts.

Deletes come by key, which always apply, and as rows that a column marks, which compare by both ordering columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage
from skep_table.commit.create import create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.planning.settings import spec_of

# The second is an int32: among several, Hudi's word for "no ordering value", the integer 0, is a value.
ORDER = [("a", pa.int64()), ("b", pa.int32())]
SCHEMA = pa.schema([("id", pa.string()), *ORDER, ("kind", pa.string()), ("v", pa.int64())])
WRITE = "hoodie.datasource.write."
OPTIONS = {
    "hoodie.write.table.version": "9",
    f"{WRITE}recordkey.field": "id",
    f"{WRITE}precombine.field": "a,b",
    "hoodie.payload.delete.field": "kind",
    "hoodie.payload.delete.marker": "gone",
}
SETTING = {"runner": ThreadRunner(1), "options": Options({"hoodie.parquet.small.file.limit": 0})}


class Entry(NamedTuple):
    """A row, or with `v` None a delete; `order` None is a delete by key."""

    order: tuple[int, int] | None
    v: int | None

    def over(self, old: Entry) -> Entry:
        """Which of the two stays, where this one is newer."""
        if old.order is None and self.v is None:
            return old  # what is older than a delete by key stays removed
        return self if self.order is None or old.order is None or self.order >= old.order else old


@dataclass
class Key:
    """The row in the base file, and what is left of the entries in logs over it."""

    base: Entry
    left: Entry | None = None

    @property
    def now(self) -> Entry:
        return self.base if self.left is None else self.left.over(self.base)


@dataclass
class Model:
    """A table beside its keys."""

    table: HudiTable
    is_mor: bool
    keys: dict[str, Key] = field(default_factory=dict)

    def upsert(self, rows: list[tuple[str, int, int, str, int]]) -> None:
        frame = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
        LocalWriter(self.table.reload().with_context(**SETTING)).upsert(frame)
        batch: dict[str, Entry] = {}
        for name, a, b, kind, v in rows:
            entry = Entry((a, b), None if kind == "gone" else v)
            batch[name] = entry.over(batch[name]) if name in batch else entry
        self._write(batch)

    def delete(self, names: list[str]) -> None:
        LocalWriter(self.table.reload().with_context(**SETTING)).delete(pa.table({"id": names}))
        self._write({name: Entry(None, None) for name in names})

    def _write(self, batch: dict[str, Entry]) -> None:
        for name, entry in batch.items():
            key = self.keys.get(name)
            if key is not None:
                key.left = entry if key.left is None else entry.over(key.left)
            elif entry.v is not None:
                self.keys[name] = Key(entry)
        if not self.is_mor:
            self._fold()

    def compact(self, _: Any) -> None:
        if self.is_mor:
            compact(self.table.reload().with_context(**SETTING))
            self._fold()

    def _fold(self) -> None:
        self.keys = {name: Key(key.now) for name, key in self.keys.items() if key.now.v is not None}

    def check(self) -> None:
        found = read(self.table.reload(), ReadRequest()).to_arrow().to_pylist()
        expected = {name: key.now for name, key in self.keys.items() if key.now.v is not None}
        assert {row["id"]: Entry((row["a"], row["b"]), row["v"]) for row in found} == expected
        assert len(found) == len(expected)


KEYS, FEW = st.sampled_from(["x", "y", "z"]), st.integers(-1, 1)
ROW = st.tuples(KEYS, FEW, FEW, st.sampled_from(["here", "here", "gone"]), st.integers(0, 9))
UPSERT = st.tuples(st.just("upsert"), st.lists(ROW, min_size=1, max_size=5))
DELETE = st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=2))
COMPACT = st.tuples(st.just("compact"), st.none())


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.one_of(UPSERT, UPSERT, DELETE, COMPACT), min_size=3, max_size=8))
def test_any_run_ends_as_the_model_predicts(kind: str, tmp_path_factory: Any, steps: list[tuple[str, Any]]) -> None:
    folder = str(tmp_path_factory.mktemp("model") / "t")
    spec = spec_of(Options({**OPTIONS, f"{WRITE}table.type": kind}), "t", from_arrow(SCHEMA))
    model = Model(create_table(LocalStorage(folder), spec), kind == "MERGE_ON_READ")
    for name, value in steps:
        getattr(model, name)(value)
        model.check()
