"""A table whose maker dies before the first commit is in nobody's way: the same call is repeated, and succeeds."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_storage import KilledAtChanges

import skep
from skep.handles import frame_writer, lake_tables, new_tables
from skep.lake import Lake
from skep_format.errors import InputError, SkepError, TableExistsError
from skep_format.storage import open_storage
from skep_table.table import HudiTable

Orders = Callable[..., pa.Table]
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.operation": "bulk_insert",
}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("version", [6, pytest.param(9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_a_first_write_by_path_is_repeated(
    tmp_path: Path,
    orders: Orders,
    mode: str,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    options = {**OPTIONS, "hoodie.write.table.version": str(version)}
    at, outcomes = 0, set()
    while True:
        at += 1
        folder = tmp_path / str(at)
        storage = KilledAtChanges(str(folder), at)
        with monkeypatch.context() as dying:
            dying.setattr(frame_writer, "open_storage", lambda _path, _options, to=storage: to)
            with contextlib.suppress(SkepError):
                skep.write(orders(1, 2)).options(**options).mode(mode).save(folder)
        where = storage.calls[at - 1] if storage.hit else "no fault"
        try:
            again = skep.write(orders(1, 2)).options(**options).mode(mode).save(folder)
        except TableExistsError:
            again = None
        outcomes.add(again is None)
        assert sorted(skep.load(folder).to_arrow()["id"].to_pylist()) == [1, 2], where
        assert not HudiTable.open(folder).timeline.pending().instants, where
        if not storage.hit:
            break
    assert outcomes == {True, False}


@pytest.mark.metastore
@pytest.mark.parametrize("how", ["create", "as select", "as select at", "destination"])
def test_a_table_of_a_lake_is_made_after_a_kill(
    lake: Lake,
    tmp_path: Path,
    orders: Orders,
    how: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")

    def make(name: str) -> None:
        if how == "create":
            lake.create_table(name, orders(), key="id")
        elif how == "destination":
            there = lake.destination(name, key="id")
            there.table()
            with there.for_rows(orders().schema) as table:
                table.upsert(orders(1))
        else:
            place = f"LOCATION '{tmp_path}/elsewhere/{name}'" if how == "as select at" else ""
            lake.sql(f"CREATE TABLE {name} TBLPROPERTIES (primaryKey = 'id') {place} AS SELECT 1 AS id")

    step = 1 if how == "create" else 3
    for at in range(1, 40, step):
        name = f"t{at}"
        dead: list[KilledAtChanges] = []

        def dying(path: str, _options: Any, at: int = at, dead: list[KilledAtChanges] = dead) -> Any:
            dead.append(KilledAtChanges(open_storage(path).root, at))
            return dead[-1]

        with monkeypatch.context() as patched:
            patched.setattr(lake_tables, "open_storage", dying)
            with contextlib.suppress(SkepError):
                make(name)
        if not dead[0].hit:
            break
        where = dead[0].calls[at - 1]
        with contextlib.suppress(TableExistsError):  # the last call had committed
            make(name)
        if how == "create":
            lake.table(name).insert(orders(1))
        assert lake.table(name).read().to_arrow()["id"].to_pylist() == [1], where
        assert lake.metastore.find_table(database, name) is not None
    else:
        pytest.fail("never ended")


MADE_AND_KILLED = """
import os, signal, sys
import pyarrow as pa
import skep
from skep.handles import frame_writer
from skep.handles.writing import writer_for

def killed(*_args):
    os.kill(os.getpid(), signal.SIGKILL)

frame_writer.writer_for = killed
skep.write(pa.table({"id": [1]})).options(**{"hoodie.table.name": "t"}).save(sys.argv[1])
"""


def test_a_maker_that_ended_differs_from_one_that_runs(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "name": ["a"]})
    died = subprocess.run(
        [sys.executable, "-c", MADE_AND_KILLED, str(tmp_path / "t")], check=False, capture_output=True
    )
    assert died.returncode == -9, died.stderr
    assert files(tmp_path / "t") == [".hoodie/.skep_making", ".hoodie/hoodie.properties"]
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "t", other)
    skep.write(rows).options(**OPTIONS).mode("error").save(tmp_path / "t")
    assert HudiTable.open(tmp_path / "t").config.record_key_fields == ("id",)
    assert ".hoodie/.skep_making" not in files(tmp_path / "t")

    sign = other / ".hoodie/.skep_making"
    foreign = sign.read_text().replace('"machine":"', '"machine":"x')
    sign.write_text(foreign)
    (other / ".hoodie/hoodie.properties").unlink()
    with pytest.raises(TableExistsError, match="another process makes"):
        skep.write(rows).options(**OPTIONS).mode("error").save(other)
    os.utime(sign, (1, 1))
    skep.write(rows).options(**OPTIONS).mode("error").save(other)
    assert skep.load(other).to_arrow()["id"].to_pylist() == [1]


def test_a_table_that_another_writer_uses_stays(
    tmp_path: Path, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker fails when the other has committed."""
    plain = frame_writer.writer_for

    def after_another(*given: Any) -> Any:
        monkeypatch.setattr(frame_writer, "writer_for", plain)
        skep.open_table(tmp_path / "t").upsert(orders(7))
        raise InputError("refused")

    monkeypatch.setattr(frame_writer, "writer_for", after_another)
    with pytest.raises(InputError, match="refused"):
        skep.write(orders(1)).options(**OPTIONS).save(tmp_path / "t")
    assert not new_tables.is_left_over(HudiTable.open(tmp_path / "t"))
    assert skep.load(tmp_path / "t").to_arrow()["id"].to_pylist() == [7]
