"""Random histories of writes and services: after every step the table answers what the writes that count make it."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skep_format.errors import CommitConflictError, InputError
from skep_format.table_config import TableType
from skep_format.timeline.instant import DATA_ACTIONS
from skep_format.timeline.metadata import WriteOperation
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean, last_clean, plan_clean, schedule_clean
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_pending_compactions,
    schedule_compaction,
)
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant
from skep_table.write.local import LocalWriter

KEYS = [f"{part}/{name}" for part in "pq" for name in "abc"]
Rows = dict[str, int]

writes = st.tuples(st.just("upsert"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True))
deletes = st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True))
cleans = st.tuples(
    st.sampled_from(["clean", "schedule", "plan"]),
    st.sampled_from(
        [("COMMITS", 1), ("COMMITS", 2), ("COMMITS", 3), ("BY_HOURS", 1), ("FILE_VERSIONS", 1), ("FILE_VERSIONS", 2)]
    ),
)
rewrites = st.tuples(
    st.sampled_from(["cluster", "schedule_clustering", "execute_clustering", "compact", "schedule_compaction", "logs"]),
    st.sampled_from(["ts", "id", None]),
)
others = st.tuples(st.sampled_from(["archive", "rollback", "unsave", "restore"]), st.none())
savepoints = st.tuples(st.just("savepoint"), st.integers(1, 4))
steps = st.one_of(writes, writes, writes, deletes, cleans, savepoints, rewrites, rewrites, others)
NUMBER = {"COMMITS": "commits__retained", "BY_HOURS": "hours__retained", "FILE_VERSIONS": "fileversions__retained"}


class Model:
    """A table beside the states that its writes left, newest last."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        self.states: list[tuple[str, Rows]] = []
        self.ts = 0
        self.by_versions = False
        self.is_mor = maker.table.config.is_mor

    @property
    def now(self) -> Rows:
        return self.states[-1][1] if self.states else {}

    def step(self, kind: str, value: Any) -> None:
        getattr(self, kind)(value)

    def upsert(self, keys: list[str]) -> None:
        self.ts += 1
        try:
            time = self.maker.upsert(self.ts, *keys)
        except CommitConflictError:
            self.execute_clustering(None)  # it waits for files that this write would change
            time = self.maker.upsert(self.ts, *keys)
        self.states.append((time, self.now | dict.fromkeys(keys, self.ts)))

    def delete(self, keys: list[str]) -> None:
        there = [key for key in keys if key in self.now]
        if there:
            frame = pa.table({"part": [k[0] for k in there], "id": [k[2:] for k in there]})
            self.execute_clustering(None)
            done = LocalWriter(self.maker.table.with_context(**self.maker.setting())).delete(frame)
            rows = {key: ts for key, ts in self.now.items() if key not in there}
            self.states.append((done.instant.requested_time, rows))

    def _clean(self, service: Any, policy: tuple[str, int]) -> None:
        name, number = policy
        options = {"cleaner__policy": f"KEEP_LATEST_{name}", f"cleaner__{NUMBER[name]}": number}
        service(self.maker.table.with_context(**self.maker.setting(**options)))

    def clean(self, policy: tuple[str, int]) -> None:
        self.by_versions |= policy[0] == "FILE_VERSIONS"
        self._clean(clean, policy)

    def schedule(self, policy: tuple[str, int]) -> None:
        self.by_versions |= policy[0] == "FILE_VERSIONS"
        self._clean(schedule_clean, policy)

    def plan(self, policy: tuple[str, int]) -> None:
        before = sorted(self.maker.folder.rglob("*"))
        self._clean(plan_clean, policy)
        assert sorted(self.maker.folder.rglob("*")) == before

    def _sorted(self, column: str | None) -> Any:
        return self.maker.setting(**({"clustering__plan__strategy__sort__columns": column} if column else {}))

    def cluster(self, column: str | None) -> None:
        cluster(self.maker.table.with_context(**self._sorted(column)))

    def schedule_clustering(self, column: str | None) -> None:
        schedule_clustering(self.maker.table.with_context(**self._sorted(column)))

    def execute_clustering(self, _: str | None) -> None:
        execute_pending_clusterings(self.maker.table.with_context(**self.maker.setting()))

    def compact(self, _: str | None) -> None:
        """What was planned earlier, and then all."""
        if self.is_mor:
            execute_pending_compactions(self.maker.table.with_context(**self.maker.setting()))
            compact(self.maker.table.with_context(**self.maker.setting()))

    def logs(self, _: str | None) -> None:
        if self.is_mor:
            compact_logs(self.maker.table.with_context(**self.maker.setting(log__compaction__blocks__threshold=2)))

    def schedule_compaction(self, _: str | None) -> None:
        if self.is_mor:
            schedule_compaction(self.maker.table.with_context(**self.maker.setting()))

    def archive(self, _: None) -> None:
        archive(
            self.maker.table.with_context(
                **self.maker.setting(keep__max__commits=3, keep__min__commits=2, cleaner__commits__retained=1)
            )
        )

    def rollback(self, _: None) -> None:
        if not self.states:
            return
        time = self.states[-1][0]
        try:
            roll_back_instant(self.maker.table.with_context(**self.maker.setting()), time)
        except InputError:
            return
        self.states.pop()

    def savepoint(self, back: int) -> None:
        """Of the last commit, or one some way back; the cleaner or the archiver may have been there first."""
        if back > len(self.states):
            return
        try:
            create_savepoint(self.maker.table.with_context(**self.maker.setting()), self.states[-back][0])
        except InputError:
            return

    def unsave(self, _: None) -> None:
        if saved := sorted(self.maker.table.savepoints()):
            delete_savepoint(self.maker.table.with_context(**self.maker.setting()), saved[0])

    def restore(self, _: None) -> None:
        if saved := sorted(self.maker.table.savepoints()):
            restore(self.maker.table.with_context(**self.maker.setting()), saved[-1])
            self.states = [state for state in self.states if state[0] <= saved[-1]]

    def check(self) -> None:
        maker, table = self.maker, self.maker.table
        if not self.states:
            return
        assert maker.rows() == self.now
        if not self.is_mor:
            assert maker.rows(query="read_optimized") == self.now
        instants = (*table.timeline.archived(), *table.timeline.completed())
        commits = {i.requested_time: i for i in instants if i.action in DATA_ACTIONS}
        rewritten = (WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.CLUSTER)
        written = [time for time, i in commits.items() if table.commit_metadata(i).operation_type not in rewritten]
        assert sorted(written) == [time for time, _ in self.states]
        cleaned = last_clean(table)
        earliest = cleaned.earliest_commit_to_retain if cleaned else ""
        kept = [(time, rows) for time, rows in self.states if not self.by_versions and time >= earliest]
        for time, rows in self.states if self.by_versions else ():
            with contextlib.suppress(InputError):  # a clean by versions leaves what it leaves
                assert maker.rows(as_of=time) == rows, time
        active = {i.requested_time for i in table.timeline.data().completed()}
        for at, (time, rows) in enumerate(kept):
            assert maker.rows(as_of=time) == rows, (time, earliest)
            if time in active and at and kept[at - 1][0] in active:
                since = kept[at - 1][0]
                changed = {key: ts for key, ts in self.now.items() if ts > max(kept[at - 1][1].values(), default=0)}
                found = maker.rows(query="incremental", since=since)
                assert changed.items() <= found.items(), since
        for time, savepoint in table.savepoints().items():
            assert time in active, "a commit with a savepoint was archived"
            assert maker.rows(as_of=time) == dict(self.states)[time]
            for partition, files in savepoint.partition_metadata.items():
                for name in files.savepoint_data_file:
                    assert (maker.folder / partition / name).exists()


# A clean by versions, which records no earliest instant, after one by commits, which does.
BY_COMMITS_THEN_VERSIONS = [
    *[("upsert", ["p/a"])] * 6,
    ("savepoint", 2),
    *[("clean", ("COMMITS", 1))] * 2,
    *[("upsert", ["p/a"])] * 2,
    ("savepoint", 1),
    ("clean", ("FILE_VERSIONS", 1)),
]


@example(kind=TableType.COPY_ON_WRITE, steps=BY_COMMITS_THEN_VERSIONS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(TableType),
    steps=st.lists(
        st.one_of(writes, writes, writes, deletes, cleans, savepoints, rewrites, rewrites, others),
        min_size=6,
        max_size=16,
    ),
)
def test_services_change_no_answer(kind: TableType, steps: list[tuple[str, Any]], maker: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(type(maker)(Path(folder) / "t", type(maker.clock)()).create(kind))
        for name, value in steps:
            model.step(name, value)
            model.check()
