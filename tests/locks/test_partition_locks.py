"""Locks of partitions, held for as long as a write takes: who names one waits, others go on, who loses one stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_catalog.client import Metastore
from skep_catalog.lock import PARTITIONS_SUFFIX, HmsLock
from skep_format.errors import InputError, LeaseLostError, OptionError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.events import Events
from skep_table.lock import held
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

KEY = "skep.write.lock.partitions"
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
Upsert = Callable[..., Any]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


@pytest.fixture
def upsert(table: HudiTable, metastore: Metastore, database: str) -> Upsert:
    def write(part: str, locked: str, listener: Callable[[Any], None] = lambda _event: None, lock: Any = None) -> Any:
        lock = lock or HmsLock(metastore, database, "t")
        setting = {"lock": lock, "events": Events(listener), "options": Options({KEY: locked})}
        return LocalWriter(table.with_context(**setting)).upsert(
            pa.Table.from_pylist([{"id": part, "part": part, "ts": 1}], SCHEMA)
        )

    return write


@pytest.mark.metastore
def test_writes_that_name_a_partition_queue_up(upsert: Upsert, metastore: Metastore, database: str) -> None:
    done = threading.Event()

    def waits() -> None:
        upsert("p", "p")
        done.set()

    lock = HmsLock(metastore, database, "t").of_partition("p", lambda _error: None)
    with held(lock, 5):
        thread = threading.Thread(target=waits)
        thread.start()
        while len(metastore.locks(database, "t" + PARTITIONS_SUFFIX)) < 2:
            thread.join(0.02)
        upsert("q", "q,r")
        assert not done.is_set()
    thread.join(30)
    assert done.is_set()
    assert metastore.locks(database) == []


@pytest.mark.metastore
def test_a_write_whose_partition_is_lost_does_not_complete(
    table: HudiTable, upsert: Upsert, metastore: Metastore, database: str
) -> None:
    def broken(event: Any) -> None:
        if event.name == "write.commit.start":
            (lock,) = metastore.locks(database, "t" + PARTITIONS_SUFFIX)
            metastore.unlock(lock.lock_id)

    with pytest.raises(LeaseLostError, match="__partitions/p is lost"):
        upsert("p", "p", broken)
    assert not table.reload().timeline.pending().instants
    assert len(read(table.reload(), ReadRequest()).to_arrow()) == 0


@pytest.mark.metastore
def test_a_write_beyond_its_partitions_is_refused(table: HudiTable, upsert: Upsert) -> None:
    with pytest.raises(InputError, match="'q' among them"):
        upsert("q", "p")
    assert not table.reload().timeline.data().instants


def test_other_providers_lock_whole_tables(table: HudiTable, upsert: Upsert) -> None:
    with pytest.raises(OptionError, match="needs the lock provider metastore"):
        upsert("p", "p", lock=StorageLock(table.storage))
