"""The process is killed in every transition of the commit protocol: before and after each storage call that it makes.

The quick tests take the first, the middle and the last call of a transition, the slow ones (--all) every one.

The cases come from the table of transitions itself. After each kill the table reads as before or as after, as the state
requires; the next writer and the next executor recover, and nothing is left behind.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sleepy_clock import SleepyClock

from skep_format.errors import CommitConflictError, InputError, SkepError, StorageError, WriteError
from skep_format.names import BaseFileName, LogFileName
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.parts.markers import close_markers, open_markers
from skep_table.commit.states import COMPLETE, DISCARD, TRANSITIONS, CommitKind, CommitState, Transition
from skep_table.events import Event, Events
from skep_table.locks.storage import LOCK_FILE, Lease, StorageLock
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import (
    execute_pending_compactions,
    execute_pending_log_compactions,
    schedule_compaction,
    schedule_log_compaction,
)
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
Rows = list[tuple[str, str, int]]
Act = Callable[[HudiTable], Any]
NEVER = 1 << 30


def frame(*rows: tuple[str, str, int]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


# -- what runs


@dataclass(frozen=True)
class Subject:
    """A write or a service on a small table. `recover`: what the next executor calls."""

    name: str
    kind: CommitKind
    table_type: TableType
    act: Act
    schedule: Act | None = None
    recover: Act | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def upsert(table: HudiTable) -> None:
    """An update, an insert into its partition, and a partition that was not there."""
    LocalWriter(table).upsert(frame(("a", "p", 2), ("d", "p", 2), ("e", "new", 2)))


COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
WRITE, SERVICE = CommitKind.WRITE, CommitKind.SERVICE
CLUSTER_OPTIONS = {"hoodie.clustering.plan.strategy.sort.columns": "id"}
LOG_OPTIONS = {"hoodie.log.compaction.blocks.threshold": "2"}
SUBJECTS = (
    Subject("upsert-cow", WRITE, COW, upsert),
    Subject("upsert-mor", WRITE, MOR, upsert),
    Subject("compaction", SERVICE, MOR, execute_pending_compactions, schedule_compaction, execute_pending_compactions),
    Subject(
        *("clustering", SERVICE, COW, execute_pending_clusterings, schedule_clustering, execute_pending_clusterings),
        CLUSTER_OPTIONS,
    ),
    Subject(
        *("log-compaction", SERVICE, MOR, execute_pending_log_compactions, schedule_log_compaction),
        execute_pending_log_compactions,
        LOG_OPTIONS,
    ),
)


# -- what makes them walk a transition


@dataclass
class Run:
    """One run of a subject: its storage, and what a trigger may do to it on the way."""

    subject: Subject
    storage: Any
    folder: Path
    runner: FailingRunner
    lock: Any = None
    options: dict[str, str] = field(default_factory=dict)
    on_enter: dict[str, Callable[[], None]] = field(default_factory=dict)
    on_event: dict[str, Callable[[], None]] = field(default_factory=dict)

    @property
    def other(self) -> HudiTable:
        """The table as another process sees it."""
        return HudiTable.open(str(self.folder)).with_context(runner=ThreadRunner(1))


class FailingRunner(ThreadRunner):
    """Runs its tasks, then raises `error` once it is set."""

    error: Exception | None = None

    def __init__(self) -> None:
        super().__init__(1)

    def map(self, function: Any, tasks: Any) -> Any:
        done = super().map(function, tasks)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return done


class HeldUpLock(StorageLock):
    """A lease that runs out, and another holder that does `meanwhile`, right after the lock was verified for the last
    time."""

    def __init__(self, folder: Path, run: Run, meanwhile: Callable[[], None]) -> None:
        self.clock_ = SleepyClock()
        super().__init__(LocalStorage(str(folder)), clock=self.clock_)
        self.run, self.meanwhile, self.armed = run, meanwhile, False

    def ensure_held(self) -> None:
        super().ensure_held()
        if self.armed:
            self.armed = False
            self.clock_.slept += 1000
            self.meanwhile()
            self._storage.replace_atomic(LOCK_FILE, Lease("jvm", 0, True).encode())


def nothing(_run: Run) -> None:
    """A plain run walks it."""


def fail(error: Callable[[], Exception]) -> Callable[[Run], None]:
    """The tasks fail once they have written their files."""

    def trigger(run: Run) -> None:
        def arm() -> None:
            run.runner.error = error()

        for name in ("write.files.start", "compact.start", "cluster.start", "compact.logs.start"):
            run.on_event[name] = arm

    return trigger


def lose_the_answer(run: Run) -> None:
    """The answers of the completing call, which takes effect, and of the next one, a read, are lost."""
    run.on_enter["complete"] = lambda: run.storage.glitch(1, 2)


def conflict_first(run: Run) -> None:
    """Another write that began before ours completes first, in the same file group; ours may try again."""
    run.options["hoodie.write.num.retries.on.conflict.failures"] = "1"
    written, go_on = threading.Event(), threading.Event()

    def heard(event: Event) -> None:
        if event.facts.get("transition") == "prepare":
            written.set()
            go_on.wait(60)

    table = run.other.with_context(events=Events(heard))
    other = threading.Thread(target=lambda: LocalWriter(table).upsert(frame(("b", "p", 5))))
    other.start()
    assert written.wait(60)

    def complete() -> None:
        go_on.set()
        other.join()

    run.on_enter["prepare"] = complete


def lose_the_lock(run: Run) -> None:
    """The lock is lost during the completion, and something collides."""

    def meanwhile() -> None:
        if run.subject.kind is WRITE:
            LocalWriter(run.other).upsert(frame(("b", "p", 5)))
        else:
            claim_elsewhere(run)

    run.lock = HeldUpLock(run.folder, run, meanwhile)

    def arm() -> None:
        run.lock.armed = True

    run.on_enter["complete"] = arm


def claim_elsewhere(run: Run) -> None:
    """Another executor takes the plan over."""
    (time_,) = [i.requested_time for i in run.other.timeline.instants if (folder_of(run, i.requested_time)).exists()]
    close_markers(run.other.storage, time_)
    open_markers(run.other.storage, time_, "another")


def folder_of(run: Run, time_: str) -> Path:
    return run.folder / ".hoodie/.temp" / time_


def taken_over(run: Run) -> None:
    run.on_enter["prepare"] = lambda: claim_elsewhere(run)


def write_to_its_input(run: Run) -> None:
    """After the plan was made."""
    allow = {"hoodie.clustering.updates.strategy": "AllowUpdateStrategy"}
    LocalWriter(run.other.with_options(allow)).upsert(frame(("a", "p", 1)))


def die_first(run: Run) -> None:
    """An executor before this one died when its files were written."""
    storage = run.storage.like()
    execute(run.subject, storage, {"prepare": lambda: storage.kill(1)})


TRIGGERS: Mapping[str, Callable[[Run], None]] = {
    "request": nothing,
    "claim": nothing,
    "take over": die_first,
    "start": nothing,
    "prepare": nothing,
    "check": nothing,
    "publish": nothing,
    "complete": nothing,
    "confirm": lose_the_answer,
    "close": nothing,
    "retry": conflict_first,
    "remove": fail(lambda: InputError("bad rows")),
    "roll back": fail(lambda: WriteError("broken")),
    "give back": fail(lambda: WriteError("broken")),
    "yield": taken_over,
    "discard": write_to_its_input,
    "revert": lose_the_lock,
}
NOT_WALKED = {
    ("retry", "upsert-mor"): "what was appended to logs is written again, under another instant",
    ("discard", "compaction"): "writes go on beside a compaction: its plan always fits",
}


def cases() -> list[Any]:
    return [
        pytest.param(subject, step, id=f"{subject.name}-{step.name.replace(' ', '_')}")
        for step in TRANSITIONS
        for subject in SUBJECTS
        if subject.kind in step.kinds and (step.name, subject.name) not in NOT_WALKED
    ]


def test_every_transition_is_killed_for_each_kind() -> None:
    """A transition that is added without a trigger, or that no subject walks, fails here."""
    assert TRIGGERS.keys() == {step.name for step in TRANSITIONS}
    killed = {(case.values[1].name, case.values[0].kind) for case in cases()}
    assert killed == {(step.name, kind) for step in TRANSITIONS for kind in step.kinds}
    assert {step.target for step in TRANSITIONS} == set(CommitState) - {CommitState.NEW}
    reached = {state for step in TRANSITIONS for state in step.sources}
    assert reached == {state for state in CommitState if not state.is_final}


def test_the_architecture_page_has_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text()
    section = page.partition("## The commit protocol")[2].partition("\n## ")[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if line[:1] == "|"
    ]
    assert rows[2:] == [
        (
            step.name,
            ", ".join(state.value for state in CommitState if state in step.sources),
            step.target.value,
            ", ".join(kind.value for kind in CommitKind if kind in step.kinds),
            "held" if step.locked else "",
            step.effect,
        )
        for step in TRANSITIONS
    ]


# -- the kill


@pytest.fixture
def fallible(faulty: Any) -> Any:
    class Fallible(faulty):  # type: ignore[misc]
        """Fails at single calls, or dies, from calls that are set on the way."""

        def __init__(self, root: str) -> None:
            super().__init__(root, NEVER)
            self.glitches: set[int] = set()

        def like(self) -> Fallible:
            return Fallible(self.root)

        def kill(self, number: int, *, after: bool = False) -> None:
            """At the call so many from now: before it or after it, and nothing works any more."""
            self.at, self.dies, self.after = len(self.calls) + number, True, after

        def glitch(self, *numbers: int) -> None:
            """The calls so many from now take effect, but report a failure."""
            self.glitches |= {len(self.calls) + number for number in numbers}

        def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
            answer = super()._call(name, path, do)
            if len(self.calls) in self.glitches:
                raise StorageError(f"answer lost: {name} {path}", call=name, path=path)
            return answer

    return Fallible


def execute(
    subject: Subject,
    storage: Any,
    on_enter: Mapping[str, Callable[[], None]],
    trigger: Callable[[Run], None] = nothing,
) -> tuple[list[tuple[str, int]], SkepError | None]:
    """Runs it once. The transitions that it entered, each with the number of storage calls before; and the error."""
    entered: list[tuple[str, int]] = []
    run = Run(subject, storage, Path(storage.root), FailingRunner())
    trigger(run)

    def heard(event: Event) -> None:
        if event.name in run.on_event:
            run.on_event[event.name]()
        if event.name == "commit.transition":
            name = str(event.facts["transition"])
            entered.append((name, len(storage.calls)))
            for actions in (run.on_enter, on_enter):
                if name in actions:
                    actions[name]()

    more = {"lock": run.lock, "clock": run.lock.clock_} if run.lock is not None else {}
    try:
        table = HudiTable.open(storage).with_options({**subject.options, **run.options})
        subject.act(table.with_context(runner=run.runner, events=Events(heard), **more))
    except SkepError as error:
        return entered, error
    return entered, None


def content(folder: Path) -> Rows:
    found = read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["ts"]) for row in found)


def seed(folder: Path, subject: Subject) -> None:
    """Three rows in two partitions; slices with log files, and two base files of one partition, as services need."""
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=subject.table_type
    )
    create_table(LocalStorage(str(folder)), spec)
    small = {"hoodie.parquet.small.file.limit": "0"}
    table = HudiTable.open(str(folder)).with_context(runner=ThreadRunner(1)).with_options(small)
    LocalWriter(table).upsert(frame(("a", "p", 0), ("b", "p", 1), ("c", "q", 1)))
    LocalWriter(table).upsert(frame(("a", "p", 1)))
    LocalWriter(table).upsert(frame(("f", "p", 1)))
    if subject.table_type is MOR:
        LocalWriter(table).upsert(frame(("b", "p", 1)))
    if subject.schedule is not None:
        assert subject.schedule(HudiTable.open(str(folder)).with_options(subject.options)) is not None


def assert_recovered(folder: Path, subject: Subject, found: Rows, *, discards: bool = False) -> None:
    """The next executor and the next writer leave nothing behind, and lose nothing.

    `discards`: the plan does not fit any more, which the executor reports when it discards it.
    """
    table = HudiTable.open(str(folder)).with_context(runner=ThreadRunner(1)).with_options(subject.options)
    if subject.recover is not None:
        with suppress(CommitConflictError) if discards else nullcontext():
            subject.recover(table)
    LocalWriter(HudiTable.open(str(folder)).with_context(runner=ThreadRunner(1))).upsert(frame(("z", "z", 9)))
    assert content(folder) == sorted([*found, ("z", "z", 9)])
    timeline = HudiTable.open(str(folder)).timeline
    assert not timeline.pending().instants
    for below in (".temp", ".heartbeat", ".stages"):
        assert not [file for file in (folder / ".hoodie" / below).rglob("*") if file.is_file()], below
    completed = {instant.requested_time for instant in timeline.completed().data()}
    for file in folder.rglob("*"):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is not None and ".hoodie" not in file.parts:
            assert name.instant_time in completed, f"{file} was left behind"


@pytest.mark.parametrize(
    "every", [pytest.param(False, id="some"), pytest.param(True, id="every", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("subject", "step"), cases())
def test_a_kill_in_a_transition(
    subject: Subject,
    step: Transition,
    every: bool,
    tmp_path: Path,
    fallible: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    seeded, folder = tmp_path / "seeded", tmp_path / "run"
    seed(seeded, subject)
    trigger = TRIGGERS[step.name]

    def prepared() -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        return fallible(str(folder))

    entered, _ = execute(subject, storage := prepared(), {}, trigger)
    names = [name for name, _ in entered]
    assert step.name in names, f"the run went {' → '.join(names)}"
    assert_recovered(folder, subject, content(folder))
    at = names.index(step.name)
    after_it = entered[at + 1][1] if at + 1 < len(entered) else len(storage.calls)
    last = max(1, after_it - entered[at][1])
    for number in range(1, last + 1) if every else sorted({1, (last + 1) // 2, last}):
        for late in (False, True) if every or step is COMPLETE else (False,):
            killed = prepared()
            execute(subject, killed, {step.name: killer(killed, number, late)}, trigger)
            found, where = content(folder), killed.calls[killed.at - 1] if killed.hit else "at the end"
            assert found in allowed(subject, step), where
            assert_recovered(folder, subject, found, discards=step is DISCARD)


def killer(storage: Any, number: int, late: bool) -> Callable[[], None]:
    """Arms the storage the first time that the transition is entered."""
    waiting = [lambda: storage.kill(number, after=late)]
    return lambda: waiting.pop()() if waiting else None


def allowed(subject: Subject, step: Transition) -> list[Rows]:
    """What a reader may find after a kill in this transition: by the states that it leads from and to."""
    base = {("a", "p"): 1, ("b", "p"): 1, ("c", "q"): 1, ("f", "p"): 1}
    ours = {("a", "p"): 2, ("d", "p"): 2, ("e", "new"): 2}
    theirs = {("b", "p"): 5}
    found = [base]
    if subject.kind is WRITE:
        committed = {state.is_committed for state in (*step.sources, step.target)}
        found = [{**base, **(ours if ours_there else {})} for ours_there in committed]
        if TRIGGERS[step.name] is conflict_first:
            found += [{**rows, **theirs} for rows in found]
        if TRIGGERS[step.name] is lose_the_lock:
            # Both were built on the same snapshot: until ours is reverted, some of its rows are seen.
            parts = [dict(rows) for count in range(4) for rows in itertools.combinations(ours.items(), count)]
            found = [{**base, **theirs, **part} for part in parts]
    return [sorted((id_, part, ts) for (id_, part), ts in rows.items()) for rows in found]
