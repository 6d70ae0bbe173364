"""Any run of whole and partial upserts, deletes and compactions ends as a model of Hudi's two merges predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact, compact_logs
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema({"id": pa.string(), "ts": pa.int64(), "a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
DATA = ("a", "b", "c")
SETTING: dict[str, Any] = {
    "runner": ThreadRunner(1),
    "options": Options(
        {
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.compact.inline.max.delta.commits": "1",
            "hoodie.log.compaction.blocks.threshold": "2",
        }
    ),
}
Stored = dict[str, int | None]


@dataclass
class Key:
    """The row of one key in its base file, and what its logs come to: None for nothing, a row, or a delete."""

    base: Stored | None = None
    log: Stored | None = None
    deletes: bool = False

    def merged(self, old: Stored | None, new: Stored) -> Stored:
        if old is None:
            return dict(new)
        return {**old, **new} if not self.ordered or new["ts"] >= old["ts"] else {**new, **old}  # type: ignore[operator]

    ordered: bool = True

    def row(self) -> Stored | None:
        if self.deletes:
            return None
        return self.base if self.log is None else self.merged(self.base, self.log)

    def add(self, values: Stored, in_log: bool) -> None:
        if not in_log or self.base is None:  # copy on write, or a new key: into a base file
            self.base = self.merged(self.base, {**dict.fromkeys(DATA), **values} if self.base is None else values)
        elif self.deletes:  # whole: nothing below the delete may show
            self.log, self.deletes = {**dict.fromkeys(DATA), **values}, False
        else:
            self.log = self.merged(self.log, values)

    def delete(self, in_log: bool) -> None:
        if not in_log:
            self.base = None
        elif self.base is not None:
            self.log, self.deletes = None, True

    def fold(self) -> None:
        self.base, self.log, self.deletes = self.row(), None, False


@dataclass
class Model:
    table: HudiTable
    ordered: bool
    keys: dict[str, Key] = field(default_factory=dict)

    @property
    def in_log(self) -> bool:
        return self.table.config.is_mor

    def upsert(self, columns: tuple[str, ...], rows: list[tuple[str, int, int]]) -> None:
        values = [{"id": key, "ts": ts, **{name: 10 * v + n for n, name in enumerate(columns)}} for key, ts, v in rows]
        frame = pa.Table.from_pylist(values, pa.schema([SCHEMA.field(name) for name in ("id", "ts", *columns)]))
        LocalWriter(self.table.with_context(**SETTING)).upsert(frame, partial=len(columns) < len(DATA))
        batch: dict[str, Stored] = {}
        for row in values:
            key = row.pop("id")
            if not self.ordered or key not in batch or row["ts"] >= batch[key]["ts"]:  # type: ignore[operator]
                batch[key] = row
        for key, row in batch.items():
            self.keys.setdefault(key, Key(ordered=self.ordered)).add(row, self.in_log)

    def delete(self, keys: list[str]) -> None:
        LocalWriter(self.table.with_context(**SETTING)).delete(pa.table({"id": keys}))
        for key in keys:
            if key in self.keys:
                self.keys[key].delete(self.in_log)

    def compact(self) -> None:
        if self.in_log:
            compact(self.table.with_context(**SETTING))
            for key in self.keys.values():
                key.fold()

    def compact_logs(self) -> None:
        if self.in_log:
            compact_logs(self.table.with_context(**SETTING))

    def check(self) -> None:
        found = read(HudiTable.open(self.table.storage), ReadRequest()).to_arrow().select(SCHEMA.names).to_pylist()
        assert len(found) == len({row["id"] for row in found}), "a key twice"
        expected = {name: row for name, key in self.keys.items() if (row := key.row()) is not None}
        assert {row.pop("id"): row for row in found} == expected


KEYS = st.sampled_from(["k", "l", "m", "é"])
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=4)
COLUMNS = st.sampled_from([DATA, ("a",), ("b",), ("a", "c"), ("b", "c")])
STEPS = st.one_of(
    st.tuples(st.just("upsert"), COLUMNS, ROWS),
    st.tuples(st.just("upsert"), COLUMNS, ROWS),
    st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=2, unique=True)),
    st.tuples(st.sampled_from(["compact", "compact_logs"])),
)
FIRST = ("upsert", DATA, [(key, 1, n) for n, key in enumerate(["k", "l", "m"])])
TABLES = [
    pytest.param(kind, version, ordering, marks=[] if (version, ordering) == (9, "ts") else pytest.mark.slow)
    for kind in (TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE)
    for version in (8, 9)
    for ordering in ("ts", None)
]


@pytest.mark.parametrize(("kind", "version", "ordering"), TABLES)
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=8))
def test_any_run_ends_as_the_model_predicts(
    tmp_path_factory: Any, kind: TableType, version: int, ordering: str | None, steps: list[tuple[Any, ...]]
) -> None:
    storage = LocalStorage(str(tmp_path_factory.mktemp("model") / "t"))
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering=ordering, type=kind, version=version)
    model = Model(create_table(storage, spec), ordering is not None)
    for name, *given_ in (FIRST, *steps):
        getattr(model, name)(*given_)
        model.check()
