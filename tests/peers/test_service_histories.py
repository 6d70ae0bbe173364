"""Random histories of our writes and services, with writes of Hudi in between: Hudi reads what they left."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peer_shared import MERGE_ON_READ, Shape, Shared, agree

from benchmarks.peers.jvm import Jvm
from skep_format.errors import InputError
from skep_format.options import Options
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, compact_logs, schedule_compaction
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant

Start = Callable[[str], Jvm]
STEPS = 14


def setting(**options: Any) -> dict[str, Any]:
    return {"options": Options({f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()})}


class TableHistory:
    """One table, and what its rows were before each write."""

    def __init__(self, shared: Shared, hudi: Jvm) -> None:
        self.shared = shared
        self.hudi = hudi
        self.states: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {}
        self.mor = shared.shape.type.value == "MERGE_ON_READ"

    def note(self) -> None:
        """The rows as of the last instant that wrote."""
        last = self.last_write()
        self.states[last] = dict(self.shared.rows), dict(self.shared.source.born)

    def last_write(self) -> str:
        done = [i for i in self.shared.open().timeline.completed() if i.action in WRITE_ACTIONS]
        return max(instant.requested_time for instant in done)

    def back_to(self, time: str) -> None:
        self.states = {state: rows for state, rows in self.states.items() if state <= time}
        rows, born = self.states[max(self.states)]
        self.shared.rows, self.shared.source.born = dict(rows), dict(born)

    def insert(self) -> None:
        self.shared.ours("bulk_insert", self.shared.source.new(8))

    def upsert(self) -> None:
        self.shared.ours("upsert", self.shared.source.mixed(8, 2))

    def delete(self) -> None:
        if removed := self.shared.source.forget(self.shared.source.again(3)):
            self.shared.ours("delete", removed)

    def theirs(self) -> None:
        self.shared.theirs(self.hudi, "upsert", self.shared.source.mixed(5, 2))

    def cluster(self) -> None:
        cluster(self.shared.open().with_context(**setting(clustering__plan__strategy__sort__columns="ts,id")))

    def compact(self) -> None:
        if self.mor:
            compact(self.shared.open().with_context(**setting()))

    def schedule(self) -> None:
        if self.mor:
            schedule_compaction(self.shared.open().with_context(**setting()))

    def logs(self) -> None:
        if self.mor:
            compact_logs(self.shared.open().with_context(**setting(log__compaction__blocks__threshold=2)))

    def clean(self) -> None:
        clean(self.shared.open().with_context(**setting(cleaner__commits__retained=2)))

    def archive(self) -> None:
        short = {"keep__max__commits": 4, "keep__min__commits": 3, "compact__inline__max__delta__commits": 1}
        archive(self.shared.open().with_context(**setting(cleaner__commits__retained=2, **short)))

    def rollback(self) -> None:
        before = sorted(self.states)[:-1]
        with contextlib.suppress(InputError):  # kept, cleaned, or built upon
            if before:
                roll_back_instant(self.shared.open().with_context(**setting()), self.last_write())
                self.back_to(before[-1])

    def savepoint(self) -> None:
        with contextlib.suppress(InputError):
            create_savepoint(self.shared.open().with_context(**setting()))

    def restore(self) -> None:
        for time in sorted(self.shared.open().savepoints(), reverse=True)[:1]:
            restore(self.shared.open().with_context(**setting()), time)
            self.back_to(time)
            delete_savepoint(self.shared.open().with_context(**setting()), time)


WRITES = ("insert", "upsert", "delete", "theirs")
SERVICES = ("cluster", "compact", "schedule", "logs", "clean", "archive", "rollback", "savepoint", "restore")


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("shape", MERGE_ON_READ[:1], ids=str)
@pytest.mark.parametrize(
    "release",
    [
        pytest.param("0.15.0", marks=pytest.mark.peer("hudi-0.15.0")),
        pytest.param("1.2.0", marks=[pytest.mark.peer("hudi-1.2.0"), pytest.mark.slow]),
    ],
)
def test_hudi_reads_what_a_random_history_left(
    release: str, shape: Shape, seed: int, jvm: Start, tmp_path: Path
) -> None:
    hudi, dice = jvm(release), random.Random(f"{shape} {seed}")
    history = TableHistory(Shared.make(tmp_path / shape.name, shape), hudi)
    history.insert()
    history.note()
    steps_done = []
    for number in range(STEPS):
        step = dice.choice(WRITES if number % 2 == 0 else SERVICES)
        steps_done.append(step)
        getattr(history, step)()
        if step not in ("rollback", "restore"):
            history.note()
        if number % 5 == 4 or number == STEPS - 1:
            try:
                agree(history.shared, hudi)
            except AssertionError as error:
                raise AssertionError(f"after {', '.join(steps_done)}: {error}") from error
