"""Mergers of one's own in tables of versions 8 and 9: found by strategy id, used by writes, reads and compactions."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skep_format.errors import OptionError, TableMismatchError, UnsupportedError
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage
from skep_table import plug_ins
from skep_table.commit.create import create_table
from skep_table.merge import custom
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.planning.settings import spec_of

STRATEGY = "7a2b5b1e-3c0d-4c6e-9d7f-0f6a4e1c2b3d"
ID, CLASSES = "hoodie.write.record.merge.strategy.id", "hoodie.write.record.merge.custom.implementation.classes"
WRITE = "hoodie.datasource.write."
ROWS = pa.table({"id": ["a", "b"], "part": ["p", "p"], "v": [1, 5]})
KINDS = ("COPY_ON_WRITE", "MERGE_ON_READ")


def adding(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
    """A counter: values add up."""
    at = new.schema.get_field_index("v")
    return new.set_column(at, new.schema.field(at), pc.add(old.column("v"), new.column("v")))


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes `adding` the entry points of these names, with the strategy id that it states, if any."""

    def register(*names: str, states: str | None = STRATEGY) -> None:
        def merger(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
            return adding(old, new)

        if states is not None:
            merger.strategy_id = states  # type: ignore[attr-defined]
        monkeypatch.setattr(EntryPoint, "load", lambda _self: merger)
        found = {name: EntryPoint(name, "x:y", custom.GROUP) for name in names}
        monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [found[name]] if name in found else [])
        custom.find_merger.cache_clear()

    yield register
    custom.find_merger.cache_clear()


def make(path: Path, version: int, kind: str, **options: Any) -> HudiTable:
    given = {
        "hoodie.write.table.version": version,
        f"{WRITE}recordkey.field": "id",
        f"{WRITE}partitionpath.field": "part",
        f"{WRITE}table.type": kind,
        **options,
    }
    return create_table(LocalStorage(str(path)), spec_of(Options(given), "t", from_arrow(ROWS.schema)))


def values(table: HudiTable) -> dict[str, int]:
    rows = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_merge_on_write_on_read_and_by_compaction(
    tmp_path: Path, version: int, kind: str, register: Callable[..., None]
) -> None:
    register("com.example.Adding")
    made = make(tmp_path / "t", version, kind, **{CLASSES: "com.example.Adding"})
    assert made.config.raw["hoodie.record.merge.mode"] == "CUSTOM"
    assert made.config.raw["hoodie.record.merge.strategy.id"] == STRATEGY
    table = made.with_options({CLASSES: "org.apache.hudi.common.model.HoodieAvroRecordMerger,com.example.Adding"})
    LocalWriter(table).upsert(ROWS)
    LocalWriter(table.reload()).upsert(ROWS)
    LocalWriter(table.reload()).upsert(ROWS.slice(0, 1))
    assert values(table) == {"a": 3, "b": 10}
    if kind == "MERGE_ON_READ":
        compact(table.reload())
        assert values(table) == {"a": 3, "b": 10}
        slices = table.reload().view().slices("p")
        assert not any(slice_.log_files for slice_ in slices)
    LocalWriter(table.reload()).delete(ROWS.slice(0, 1).select(["id", "part"]))
    assert values(table) == {"b": 10}


def test_one_that_is_registered_under_the_id_needs_no_option(tmp_path: Path, register: Callable[..., None]) -> None:
    register(STRATEGY, states=None)
    table = make(tmp_path / "t", 9, "COPY_ON_WRITE", **{ID: STRATEGY})
    LocalWriter(table).upsert(ROWS)
    LocalWriter(table.reload()).upsert(ROWS)
    assert values(table) == {"a": 2, "b": 10}


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_strategy_is_refused_by_name(tmp_path: Path, kind: str, register: Callable[..., None]) -> None:
    register(STRATEGY)
    table = make(tmp_path / "t", 9, kind, **{ID: STRATEGY})
    LocalWriter(table).upsert(ROWS)
    LocalWriter(table.reload()).upsert(ROWS)
    register("another")
    before = len(table.reload().timeline.instants)
    with pytest.raises(UnsupportedError, match=STRATEGY):
        LocalWriter(table.reload()).upsert(ROWS)
    assert len(table.reload().timeline.instants) == before
    if kind == "MERGE_ON_READ":
        with pytest.raises(UnsupportedError, match=STRATEGY):
            values(table)


def test_mergers_of_other_strategies_are_refused(tmp_path: Path, register: Callable[..., None]) -> None:
    register(STRATEGY)
    table = make(tmp_path / "t", 9, "COPY_ON_WRITE", **{ID: STRATEGY})
    register("Other", states="another strategy")
    with pytest.raises(OptionError, match=rf"none carries out merge strategy {STRATEGY}: Other \(another strategy\)"):
        LocalWriter(table.with_options({CLASSES: "Other"})).upsert(ROWS)
    with pytest.raises(TableMismatchError, match=rf"{ID} {STRATEGY}, not another"):
        LocalWriter(table.with_options({ID: "another"})).upsert(ROWS)


def test_a_new_table_needs_the_id(tmp_path: Path, register: Callable[..., None]) -> None:
    register("Adding", states=None)
    with pytest.raises(OptionError, match=rf"needs {ID}"):
        make(tmp_path / "t", 9, "COPY_ON_WRITE", **{CLASSES: "Adding"})
    table = make(tmp_path / "t", 9, "COPY_ON_WRITE", **{CLASSES: "Adding", ID: STRATEGY})
    assert table.config.merge_strategy_id == STRATEGY
