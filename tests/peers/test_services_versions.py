"""Table services both ways on table versions 8 and 9: each carries out, finishes and rolls back what the other left.

After each step both read the same rows, and these are what was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peer_shared import MERGE_ON_READ, SHAPES, Shared, agree

from benchmarks.peers.jvm import Jvm
from skep_format.options import Options
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_format.timeline.write import transition_to_inflight
from skep_table.commit.instants import request_plan
from skep_table.commit.undo.rollback import plan_rollback
from skep_table.services.cleaning.clean import clean, execute_pending_cleans, schedule_clean
from skep_table.services.clustering.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import compact_logs, execute_pending_compactions, schedule_compaction
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable

Start = Callable[[str], Jvm]
PAIRS = (("1.2.0", 9, False), ("1.1.1", 9, True), ("1.0.2", 8, True))
releases = pytest.mark.parametrize(
    ("release", "table_version"),
    [
        pytest.param(
            release, version, marks=[pytest.mark.peer(f"hudi-{release}"), *([pytest.mark.slow] if slow else [])]
        )
        for release, version, slow in PAIRS
    ],
    indirect=["table_version"],
)
ONE_COMMIT = {"hoodie.cleaner.commits.retained": 1}
TWO_BLOCKS = {"hoodie.log.compaction.blocks.threshold": 2}
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "ts,id"}
CLEANS = {"clean__automatic": "true", "cleaner__commits__retained": "1", "archive__automatic": "false"}


class Both:
    """A table that both write, and what it was at the last savepoint."""

    def __init__(self, path: Path, shape: Any, hudi: Jvm) -> None:
        self.shared, self.hudi = Shared.make(path, shape), hudi
        source = self.shared.source
        self.shared.ours("bulk_insert", source.new(12))
        self.theirs(source.new(12), operation="insert")
        self.shared.ours("upsert", source.again(6))
        self.theirs(source.again(6))

    def table(self, **options: Any) -> HudiTable:
        return self.shared.open().with_context(options=Options(options))

    def ours(self) -> None:
        self.shared.ours("upsert", self.shared.source.mixed(6, 2))

    def theirs(self, rows: Any = None, operation: str = "upsert", **more: str) -> None:
        self.shared.theirs(self.hudi, operation, rows or self.shared.source.mixed(6, 2), **more)

    def both_write(self) -> None:
        self.ours()
        self.theirs()
        self.agree()

    def agree(self) -> None:
        agree(self.shared, self.hudi)

    def call(self, procedure: str, **arguments: str) -> None:
        extra = "".join(f", {key} => '{value}'" for key, value in arguments.items())
        settings = {
            "hoodie.metadata.enable": "false",
            "hoodie.write.table.version": str(self.shared.open().config.version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.compact.inline.max.delta.commits": "1",
        }
        self.hudi.sql(f"call {procedure}(path => '{self.shared.path}'{extra})", settings)

    def last(self, *actions: Action) -> Instant:
        found = self.shared.open().timeline.completed().of(*actions).last()
        assert found is not None
        return found

    def pending(self) -> list[Action]:
        return [instant.action for instant in self.shared.open().timeline.pending()]

    def state(self) -> tuple[Any, Any]:
        return dict(self.shared.rows), dict(self.shared.source.born)

    def back_to(self, state: tuple[Any, Any]) -> None:
        self.shared.rows, self.shared.source.born = dict(state[0]), dict(state[1])

    def taken(self, instant: Instant) -> None:
        """Deletes the completed file of an instant, as if its writer had died before the last step, a while ago."""
        root, layout = self.shared.path, self.shared.open().layout
        Path(root, layout.path(instant)).unlink()
        (pending,) = (i for i in self.shared.open().timeline.pending() if i.requested_time == instant.requested_time)
        os.utime(Path(root, layout.path(pending)), (0, 0))


@releases
@pytest.mark.slow
@pytest.mark.parametrize("shape", MERGE_ON_READ[:1], ids=str)
def test_compactions(release: str, shape: Any, table_version: int, jvm: Start, tmp_path: Path) -> None:
    both = Both(tmp_path / "t", shape, jvm(release))
    assert both.shared.open().config.version == table_version
    assert schedule_compaction(both.table()) is not None
    both.both_write()
    both.call("run_compaction", op="run")
    assert both.pending() == []
    both.agree()
    both.both_write()
    both.call("run_compaction", op="schedule")
    assert both.pending() == [Action.COMPACTION]
    both.both_write()
    assert len(execute_pending_compactions(both.table())) == 1
    both.both_write()
    # an executor of ours died
    planned = schedule_compaction(both.table())
    assert planned is not None
    transition_to_inflight(both.table(), planned)
    both.call("run_compaction", op="run")
    assert both.pending() == []
    both.agree()
    # and one of theirs
    both.both_write()
    both.call("run_compaction", op="schedule")
    both.call("run_compaction", op="run")
    both.taken(both.last(Action.COMMIT))
    both.agree()
    assert len(execute_pending_compactions(both.table())) == 1
    both.both_write()
    # log compaction, and what follows it
    assert len(compact_logs(both.table(**TWO_BLOCKS))) == 1
    both.agree()
    both.both_write()
    both.call("run_compaction", op="schedule")
    both.call("run_compaction", op="run")
    both.both_write()


@releases
@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHAPES[0], MERGE_ON_READ[0]], ids=str)
def test_clusterings(release: str, shape: Any, table_version: int, jvm: Start, tmp_path: Path) -> None:
    both = Both(tmp_path / "t", shape, jvm(release))
    assert schedule_clustering(both.table(**SORTED)) is not None
    assert both.pending() == [Action.CLUSTERING]
    both.agree()
    both.call("run_clustering", op="execute")
    assert both.pending() == []
    both.both_write()
    both.call("run_clustering", op="schedule", order="ts,id")
    assert both.pending() == [Action.CLUSTERING]
    assert len(execute_pending_clusterings(both.table())) == 1
    both.both_write()
    planned = schedule_clustering(both.table(**SORTED))
    assert planned is not None
    transition_to_inflight(both.table(), planned)
    both.call("run_clustering", op="execute")
    assert both.pending() == []
    both.both_write()
    both.call("run_clustering", op="scheduleAndExecute", order="ts,id")
    both.taken(both.last(Action.REPLACE_COMMIT))
    both.agree()
    assert len(execute_pending_clusterings(both.table())) == 1
    both.both_write()


@releases
@pytest.mark.parametrize("shape", [SHAPES[0], pytest.param(MERGE_ON_READ[0], marks=pytest.mark.slow)], ids=str)
def test_rollbacks_savepoints_and_restores(
    release: str, shape: Any, table_version: int, jvm: Start, tmp_path: Path
) -> None:
    both = Both(tmp_path / "t", shape, jvm(release))
    source = both.shared.source
    both.shared.crash(source.again(4))
    both.theirs()  # rolls ours back
    assert both.pending() == []
    both.agree()
    before = both.state()
    both.theirs()
    both.taken(both.last(Action.COMMIT, Action.DELTA_COMMIT))
    both.back_to(before)
    both.agree()
    both.ours()  # rolls theirs back
    assert both.pending() == []
    both.agree()
    # a rollback that we planned, and they carry out
    both.shared.crash(source.again(4))
    (failed,) = both.shared.open().timeline.pending()
    request_plan(both.table(), Action.ROLLBACK, plan_rollback(both.table(), failed))
    both.theirs()
    assert both.pending() == []
    both.agree()
    # one that they have all but completed, and we complete
    both.shared.crash(source.again(4))
    both.theirs()
    both.taken(both.last(Action.ROLLBACK))
    both.ours()
    assert both.pending() == []
    both.agree()
    # a completed write
    before = both.state()
    both.theirs()
    roll_back_instant(both.table(), both.last(*WRITE_ACTIONS).requested_time)
    both.back_to(before)
    both.both_write()
    # our savepoint, their restore
    create_savepoint(both.table())
    saved, kept = both.last(*WRITE_ACTIONS).requested_time, both.state()
    both.both_write()
    both.call("rollback_to_savepoint", instant_time=saved)
    both.back_to(kept)
    both.both_write()
    delete_savepoint(both.table(), both.last(Action.SAVEPOINT).requested_time)
    # their savepoint, our restore
    saved, kept = both.last(*WRITE_ACTIONS).requested_time, both.state()
    both.call("create_savepoint", commit_time=saved)
    both.both_write()
    if shape in MERGE_ON_READ:
        both.call("run_compaction", op="scheduleAndExecute")
        both.both_write()
    assert restore(both.table(), saved) is not None
    both.back_to(kept)
    both.both_write()


@releases
@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHAPES[0], MERGE_ON_READ[0]], ids=str)
def test_cleans(release: str, shape: Any, table_version: int, jvm: Start, tmp_path: Path) -> None:
    both = Both(tmp_path / "t", shape, jvm(release))
    is_mor = shape in MERGE_ON_READ

    def old_slices() -> None:
        for _ in range(2):
            both.both_write()
            if is_mor:
                assert schedule_compaction(both.table()) is not None
                assert execute_pending_compactions(both.table())

    old_slices()
    assert clean(both.table(**ONE_COMMIT))
    both.agree()
    # ours is planned, and its executor died
    old_slices()
    planned = schedule_clean(both.table(**ONE_COMMIT))
    assert planned is not None
    table = both.table()
    content = table.storage.read(table.layout.path(planned)) if table.layout.repeats_clean_plan else None
    transition_to_inflight(table, planned, content)
    both.theirs(**CLEANS)
    assert both.pending() == []
    assert planned.requested_time in [
        i.requested_time for i in both.shared.open().timeline.completed().of(Action.CLEAN)
    ]
    both.agree()
    # theirs was carried out but for its last step
    old_slices()
    both.theirs(**CLEANS)
    last = both.last(Action.CLEAN)
    assert last.requested_time > planned.requested_time
    both.taken(last)
    assert len(execute_pending_cleans(both.table())) == 1
    both.both_write()
    old_slices()
    both.theirs(**CLEANS)
    both.agree()
    assert replace(last, state=State.COMPLETED) not in both.shared.open().timeline.pending()
