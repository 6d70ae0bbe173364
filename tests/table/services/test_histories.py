"""Random histories of writes and services: after every step the table answers what the writes that count make it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_table.errors import InputError
from skep_table.services.archive import archive
from skep_table.services.clean import clean, plan_clean, schedule_clean
from skep_table.services.restore import restore
from skep_table.services.retention import last_clean
from skep_table.services.rollback import roll_back_instant
from skep_table.services.savepoint import create_savepoint, delete_savepoint
from skep_table.timeline.instant import Action
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
others = st.tuples(st.sampled_from(["archive", "rollback", "unsave", "restore"]), st.none())
savepoints = st.tuples(st.just("savepoint"), st.integers(1, 4))
NUMBER = {"COMMITS": "commits__retained", "BY_HOURS": "hours__retained", "FILE_VERSIONS": "fileversions__retained"}


class Model:
    """A table beside the states that its writes left, newest last."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        self.states: list[tuple[str, Rows]] = []
        self.ts = 0
        self.by_versions = False

    @property
    def now(self) -> Rows:
        return self.states[-1][1] if self.states else {}

    def step(self, kind: str, value: Any) -> None:
        getattr(self, kind)(value)

    def upsert(self, keys: list[str]) -> None:
        self.ts += 1
        self.states.append((self.maker.upsert(self.ts, *keys), self.now | dict.fromkeys(keys, self.ts)))

    def delete(self, keys: list[str]) -> None:
        there = [key for key in keys if key in self.now]
        if there:
            frame = pa.table({"part": [k[0] for k in there], "id": [k[2:] for k in there]})
            done = LocalWriter(self.maker.table, self.maker.setting()).delete(frame)
            rows = {key: ts for key, ts in self.now.items() if key not in there}
            self.states.append((done.instant.requested_time, rows))

    def _clean(self, service: Any, policy: tuple[str, int]) -> None:
        name, number = policy
        options = {"cleaner__policy": f"KEEP_LATEST_{name}", f"cleaner__{NUMBER[name]}": number}
        service(self.maker.table, self.maker.setting(**options))

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

    def archive(self, _: None) -> None:
        archive(
            self.maker.table,
            self.maker.setting(keep__max__commits=3, keep__min__commits=2, cleaner__commits__retained=1),
        )

    def rollback(self, _: None) -> None:
        if not self.states:
            return
        time = self.states[-1][0]
        try:
            roll_back_instant(self.maker.table, time, self.maker.setting())
        except InputError:
            return
        self.states.pop()

    def savepoint(self, back: int) -> None:
        """Of the last commit, or one some way back; the cleaner or the archiver may have been there first."""
        if back > len(self.states):
            return
        try:
            create_savepoint(self.maker.table, self.maker.setting(), self.states[-back][0])
        except InputError:
            return

    def unsave(self, _: None) -> None:
        if saved := sorted(self.maker.table.savepoints()):
            delete_savepoint(self.maker.table, saved[0], self.maker.setting())

    def restore(self, _: None) -> None:
        if saved := sorted(self.maker.table.savepoints()):
            restore(self.maker.table, saved[-1], self.maker.setting())
            self.states = [state for state in self.states if state[0] <= saved[-1]]

    def check(self) -> None:
        maker, table = self.maker, self.maker.table
        if not self.states:
            return
        assert maker.rows() == self.now
        assert maker.rows(query="read_optimized") == self.now
        instants = (*table.timeline.archived(), *table.timeline.completed())
        commits = [instant.requested_time for instant in instants if instant.action is Action.COMMIT]
        assert sorted(commits) == [time for time, _ in self.states]
        cleaned = last_clean(table)
        earliest = cleaned.earliest_commit_to_retain if cleaned else ""
        kept = [(time, rows) for time, rows in self.states if not self.by_versions and time >= earliest]
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
            for partition, files in savepoint.partition_metadata.items():
                for name in files.savepoint_data_file:
                    assert (maker.folder / partition / name).exists()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.one_of(writes, writes, writes, deletes, cleans, savepoints, others), min_size=6, max_size=16))
def test_services_change_no_answer(steps: list[tuple[str, Any]], maker: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(type(maker)(Path(folder) / "t", type(maker.clock)()).create())
        for kind, value in steps:
            model.step(kind, value)
            model.check()
