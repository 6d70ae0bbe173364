"""Any run of writes, compactions and rollbacks on a merge-on-read table ends as a model of Hudi 0.15 predicts."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
SETTING = {"runner": ThreadRunner(1), "options": Options({"hoodie.parquet.small.file.limit": 0})}
Stored = tuple[int, int]  # ts, v
REMOVED: Stored = (-1, -1)


@dataclass
class Key:
    """What is stored of one key: the row in the base file, and the entries of the log, oldest first.

    The first `planned` entries are to be folded into the base file by a pending compaction.
    """

    base: Stored | None = None
    entries: list[Stored] = field(default_factory=list)
    planned: int = 0

    def row(self, entries: list[Stored] | None = None) -> Stored | None:
        left: Stored | None = None
        for entry in self.entries if entries is None else entries:
            # a row replaces a delete whatever its order: the log holds no order of deletes by key
            if left is None or left is REMOVED or entry is REMOVED or entry[0] >= left[0]:
                left = entry
        if left is None:
            return self.base
        if left is REMOVED:
            return None
        return self.base if self.base is not None and self.base[0] > left[0] else left

    def fold(self) -> None:
        self.base = self.row(self.entries[: self.planned])
        self.entries = self.entries[self.planned :]
        self.planned = 0


class Model:
    """A table beside its keys; `past` are the states before each write that can still be rolled back."""

    def __init__(self, folder: str) -> None:
        spec = TableSpec(
            name="t",
            schema=SCHEMA,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            type=TableType.MERGE_ON_READ,
        )
        self.table = create_table(LocalStorage(folder), spec)
        self.keys: dict[str, Key] = {}
        self.past: list[tuple[str, dict[str, Key]]] = []
        self.pending = False

    def upsert(self, rows: list[tuple[str, int, int]]) -> None:
        before = deepcopy(self.keys)
        frame = pa.table(
            [[r[0] for r in rows], ["p"] * len(rows), [r[1] for r in rows], [r[2] for r in rows]], schema=SCHEMA
        )
        result = LocalWriter(self.table.with_context(**SETTING)).upsert(frame)
        latest: dict[str, Stored] = {}
        for key, ts, v in rows:
            if ts >= latest.get(key, REMOVED)[0]:
                latest[key] = ts, v
        for key, row in latest.items():
            known = self.keys.setdefault(key, Key())
            if known.base is None:
                known.base = row
            elif self._deleted_by_plan(key):
                # its base file will not know it any more: the row begins again in another one
                self.keys[key] = Key(base=row)
            else:
                known.entries.append(row)
        self.past.append((result.instant.requested_time, before))

    def delete(self, keys: list[str]) -> None:
        before = deepcopy(self.keys)
        result = LocalWriter(self.table.with_context(**SETTING)).delete(
            pa.table({"id": keys, "part": ["p"] * len(keys)})
        )
        for key in set(keys):
            if key in self.keys and self.keys[key].base is not None:
                self.keys[key].entries.append(REMOVED)
        self.past.append((result.instant.requested_time, before))

    def schedule(self, _: Any) -> None:
        if not self.pending and schedule_compaction(self.table.with_context(**SETTING)) is not None:
            for key in self.keys.values():
                key.planned = len(key.entries)
            self.pending = True
            self.past.clear()

    def execute(self, _: Any) -> None:
        if execute_pending_compactions(self.table.with_context(**SETTING)):
            for key in self.keys.values():
                key.fold()
            self.keys = {name: key for name, key in self.keys.items() if key.base is not None or key.entries}
            self.pending = False
            self.past.clear()

    def compact(self, _: Any) -> None:
        self.execute(None)
        self.schedule(None)
        self.execute(None)

    def rollback(self, _: Any) -> None:
        if self.past:
            time, self.keys = self.past.pop()
            roll_back_instant(self.table.with_context(**SETTING), time)

    def _deleted_by_plan(self, name: str) -> bool:
        key = self.keys.get(name)
        return key is not None and bool(key.planned) and key.row(key.entries[: key.planned]) is None

    def check(self) -> None:
        found = read(HudiTable.open(self.table.storage), ReadRequest()).to_arrow().to_pylist()
        assert len(found) == len({row["id"] for row in found}), "a key twice"
        expected = {name: row for name, key in self.keys.items() if (row := key.row()) is not None}
        assert {row["id"]: (row["ts"], row["v"]) for row in found} == expected


KEYS = st.sampled_from(["a", "b", "c", "é", "\U0001f41d"])
UPSERT = st.tuples(st.just("upsert"), st.lists(st.tuples(KEYS, st.integers(0, 4), st.integers(0, 9)), max_size=6))
DELETE = st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=3))
OTHERS = st.tuples(st.sampled_from(["compact", "schedule", "execute", "rollback"]), st.none())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(UPSERT, UPSERT, DELETE, OTHERS), min_size=3, max_size=9))
def test_any_run_ends_as_the_model_predicts(tmp_path_factory: Any, steps: list[tuple[str, Any]]) -> None:
    model = Model(str(tmp_path_factory.mktemp("model") / "t"))
    for name, value in steps:
        getattr(model, name)(value)
        model.check()
