"""Faults at each call of each operation, on both types of tables: before or after, and the next write cleans up."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from left_behind import assert_clean, content

from skep_format.errors import SkepError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge.rows import DELETED
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
Change = Callable[[LocalWriter], Any]
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
RINGS = {**BUCKET, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
GLOBAL = {"hoodie.index.type": "GLOBAL_BLOOM"}
DROP = {"hoodie.datasource.insert.dup.policy": "drop"}


def rows(*values: tuple[str, str, int]) -> pa.Table:
    columns: list[Any] = list(zip(*values, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def changed(table: HudiTable) -> pa.Table:
    """An update, a delete and a new row, of a snapshot as a statement reads it."""
    stored = read(table, ReadRequest()).to_arrow().filter(pc.is_in(pc.field("id"), pa.array(["a", "b"])))
    updated = stored.set_column(stored.schema.get_field_index("ts"), SCHEMA.field("ts"), pc.add(stored["ts"], 1))
    updated = updated.append_column(DELETED, pc.equal(updated["id"], "b"))
    new = rows(("x", "new", 1)).append_column(DELETED, pa.array([False]))
    return pa.concat_tables([updated, new], promote_options="default").cast(updated.schema)


CHANGES: dict[str, tuple[Change, dict[str, str]]] = {
    "bulk_insert": (lambda w: w.bulk_insert(rows(("x", "p", 1), ("y", "new", 1))), {}),
    "insert": (lambda w: w.insert(rows(("x", "p", 1), ("y", "new", 1))), {}),
    "insert_without_duplicates": (lambda w: w.insert(rows(("a", "p", 5), ("y", "q", 1))), DROP),
    "delete": (lambda w: w.delete(rows(("a", "p", 0), ("c", "q", 0))), {}),
    "insert_overwrite": (lambda w: w.insert_overwrite(rows(("x", "p", 1))), {}),
    "change": (lambda w: w.change(changed), {}),
    "insert_overwrite_of_named": (lambda w: w.insert_overwrite(rows(("x", "p", 1)), partitions={"part": "p"}), {}),
    "insert_overwrite_table": (lambda w: w.insert_overwrite_table(rows(("x", "new", 1))), {}),
    "delete_partition": (lambda w: w.delete_partitions(["q"]), {}),
    "upsert_in_buckets": (lambda w: w.upsert(rows(("a", "p", 2), ("x", "new", 1))), BUCKET),
    "upsert_in_rings": (lambda w: w.upsert(rows(("a", "p", 2), ("x", "new", 1))), RINGS),
    "upsert_in_orc": (lambda w: w.upsert(rows(("a", "p", 2), ("x", "new", 1))), {}),
    "overwrite_in_rings": (lambda w: w.insert_overwrite(rows(("a", "p", 2), ("x", "new", 1))), RINGS),
    "delete_partition_in_rings": (lambda w: w.delete_partitions(["p"]), RINGS),
    "upsert_that_moves": (lambda w: w.upsert(rows(("a", "q", 2), ("b", "p", 2))), GLOBAL),
}
QUICK = {
    ("insert_overwrite", "cow"),
    ("upsert_that_moves", "mor"),
    ("change", "cow"),
    ("change", "mor"),
    ("upsert_in_rings", "mor"),
    ("upsert_in_orc", "cow"),
    ("overwrite_in_rings", "mor"),
}


def cases() -> list[Any]:
    found = []
    for kind, name in itertools.product(("cow", "mor"), CHANGES):
        if not (name.endswith("in_rings") and kind == "cow"):
            for dies in (False, True):
                marks = [] if (name, kind) in QUICK and dies else [pytest.mark.slow]
                found.append(
                    pytest.param(kind, name, dies, marks=marks, id=f"{kind}-{name}-{'dies' if dies else 'fails'}")
                )
    return found


def writer(storage: Storage | str, options: dict[str, str]) -> LocalWriter:
    setting = {"runner": ThreadRunner(1), "options": Options(options)}
    return LocalWriter(HudiTable.open(storage).with_context(**setting))


@pytest.mark.parametrize(("kind", "name", "dies"), cases())
def test_a_fault_at_any_call_leaves_the_table_before_or_after(
    kind: str, name: str, dies: bool, tmp_path: Path, faulty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    change, options = CHANGES[name]
    of_upserts = {} if options is DROP else options  # which has no effect on them, and a warning fails a test
    seeded = tmp_path / "seeded"
    table_type = TableType.MERGE_ON_READ if kind == "mor" else TableType.COPY_ON_WRITE
    usual: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", "type": table_type}
    base_format = BaseFormat.ORC if name == "upsert_in_orc" else BaseFormat.PARQUET
    spec = TableSpec(name="t", schema=SCHEMA, base_format=base_format, **usual)
    create_table(LocalStorage(str(seeded)), spec)
    writer(str(seeded), of_upserts).upsert(rows(("a", "p", 1), ("b", "p", 1), ("c", "q", 1)))
    before = content(seeded)
    whole = tmp_path / "whole"
    shutil.copytree(seeded, whole)
    change(writer(str(whole), options))
    after = content(whole)
    assert after != before
    at, folder = 1, tmp_path / "run"
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage = faulty(str(folder), at, dies=dies)
        failed = False
        try:
            change(writer(storage, options))
        except SkepError:
            failed = True
        found, where = content(folder), storage.calls[at - 1] if storage.hit else "no fault"
        assert found in (before, after), where
        assert failed or found == after, where
        writer(str(folder), of_upserts).upsert(rows(("z", "p", 9)))
        assert content(folder) == sorted([*found, ("z", "p", 9)]), where
        assert_clean(folder)
        if not storage.hit:
            break
        at += 1
    assert at > 20
