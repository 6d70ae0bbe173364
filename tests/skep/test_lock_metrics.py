"""The metrics of locks and conflicts that Prometheus gets."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError, LockTimeoutError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.concurrency.conflict import CommitCandidate
from skep_table.commit.create import TableSpec, create_table
from skep_table.events import Events
from skep_table.lock import held
from skep_table.locks.storage import LOCK_FILE, Lease, StorageLock
from skep_table.write.local import LocalWriter

prometheus_client = pytest.importorskip("prometheus_client")


def test_waits_holds_time_outs_and_retries(tmp_path: Path) -> None:
    from skep.base.lock_metrics import LockMetrics

    registry = prometheus_client.CollectorRegistry()
    events = Events(LockMetrics(registry))
    storage = LocalStorage(str(tmp_path / "t"))
    rows = pa.table({"id": ["a"]})
    table = create_table(storage, TableSpec(name="t", schema=rows.schema, record_key=("id",)))
    conflicts = [CommitConflictError("another one was first")]

    def once(_ending: CommitCandidate) -> None:
        if conflicts:
            raise conflicts.pop()

    options = Options({"hoodie.write.num.retries.on.conflict.failures": 1})
    lock = StorageLock(storage, events=events)
    LocalWriter(table.with_context(lock=lock, events=events, options=options, conflict_check=once)).upsert(rows)
    with held(lock, 5), pytest.raises(LockTimeoutError):
        StorageLock(storage, events=events).acquire(0.1)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    name = storage.root
    assert value("skep_lock_wait_seconds_count", lock=name) == value("skep_lock_held_seconds_count", lock=name) == 5
    assert value("skep_lock_failures_total", lock=name, what="timed_out") == 1
    assert value("skep_write_conflicts_total", what="retried") == 1


def test_a_lost_lock(tmp_path: Path) -> None:
    from skep.base.lock_metrics import LockMetrics

    registry, lost = prometheus_client.CollectorRegistry(), threading.Event()
    storage = LocalStorage(str(tmp_path / "t"))
    lock = StorageLock(
        storage, heartbeat_seconds=0.05, events=Events(LockMetrics(registry)), on_lost=lambda _error: lost.set()
    )
    with held(lock, 5):
        storage.replace_atomic(LOCK_FILE, Lease("somebody", 0, True).encode())
        assert lost.wait(30)
    labels = {"lock": storage.root, "what": "lost"}
    assert registry.get_sample_value("skep_lock_failures_total", labels) == 1
