"""Storms: writer processes on one table, what happens to them meanwhile, and the check afterwards."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from skep_table.table import HudiTable

HERE = Path(__file__).parent


def _load(name: str, path: Path) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


totals = _load("storm_totals", HERE / "totals.py")
script = _load("storm_writer", HERE / "storm_writer.py")
_load("storm_proxy", HERE / "proxy.py")
_load("storm_indexes", HERE / "indexes.py")


HUDI, SERVICES = script.HUDI, script.SERVICES_RUNNER


def without_frames(log: Path) -> str:
    """A log without the stack frames of the JVM, which would leave no room for the causes."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("at "))


@dataclass
class Storm:
    """`seed` decides what is written, and what happens when. A storm that fails prints it: STORM_SEED replays it.

    STORM_SCALE=8x25 lets every storm have so many writers, with so many commits each.
    """

    folder: Path
    lock: dict[str, Any]
    seed: int
    type: str = "cow"
    writers: int = 8
    commits: int = 25
    services: bool = False
    spark: list[int] = field(default_factory=list)
    """The writers that are Spark sessions."""
    hudi: str = ""
    """The release of JVM Hudi that writes beside the others for as long as they do."""
    hudi_batches: int = 0
    """If given, Hudi writes so many, and the others go on until then."""
    hudi_options: dict[str, str] = field(default_factory=dict)
    think: float = 0
    """The longest time in seconds that a writer takes before its next batch."""
    options: dict[str, object] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    version: int = 6
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    lives: Counter[int] = field(default_factory=Counter)
    looks: int = 0
    hudi_died: float = -math.inf

    def __post_init__(self) -> None:
        from skep_format.storage import LocalStorage
        from skep_format.table_config import TableType
        from skep_table.commit.create import TableSpec, create_table

        kind = TableType.MERGE_ON_READ if self.type == "mor" else TableType.COPY_ON_WRITE
        spec = TableSpec(
            name="storm",
            schema=script.SCHEMA,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            type=kind,
            properties=self.properties,
            version=self.version,
        )
        self.table = create_table(LocalStorage(str(self.folder / f"storm{self.seed % 10**6}")), spec)
        self.dice = random.Random(self.seed)

    @property
    def stop(self) -> Path:
        """The file that ends the services and Hudi."""
        return self.folder / "stop"

    @property
    def rest(self) -> Path:
        """The file for as long as which the others leave the table to Hudi."""
        return self.folder / "rest"

    def start(self, writer: int) -> None:
        life = self.lives[writer]
        self.lives[writer] += 1
        job = {
            "table": self.table.storage.root,
            "storage_options": {},
            "journal": str(self.folder / f"{writer}.{life}.journal"),
            "writer": writer,
            "life": life,
            "seed": self.seed,
            "commits": self.commits,
            "lock": self.lock,
            "options": self.options,
            "spark": writer in self.spark,
            "services": writer == SERVICES,
            "hudi": self.hudi if writer == HUDI else "",
            "stop": str(self.stop),
            "rest": str(self.rest),
            "think": self.think,
            "goes_on": bool(self.hudi_batches),
            "hudi_batches": self.hudi_batches - sum("acknowledged" in line for line in self.of_hudi()),
            "hudi_options": self.hudi_options,
        }
        command = [sys.executable, str(HERE / "storm_writer.py"), json.dumps(job)]
        with (self.folder / f"{writer}.{life}.log").open("wb") as log:
            environment = {**os.environ, "TMPDIR": str(self.folder)}  # a process that is killed cleans up nothing
            self.processes[writer] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def kill(self, writer: int) -> None:
        process = self.processes[writer]
        if process.poll() is None:
            self._signal(writer, signal.SIGKILL)
            process.wait()
            if writer == HUDI:
                self.hudi_died = time.monotonic()
                self.rest.unlink(missing_ok=True)
                self._release_lock_of_hudi()
            self.start(writer)

    @property
    def done(self) -> int:
        """How many batches are acknowledged."""
        return sum("acknowledged" in line for line in totals.journal_lines(self.folder))

    @property
    def lives_of_writers(self) -> int:
        """How many processes the writers had so far."""
        return sum(self.lives[writer] for writer in range(self.writers))

    def kill_one(self) -> None:
        """One of the writers that have started to write."""
        if started := [writer for writer in range(self.writers) if self.has_started(writer)]:
            self.kill(self.dice.choice(started))

    def has_started(self, writer: int) -> bool:
        """Whether the process that is now this writer has done something."""
        return bool(totals.journal_lines(self.folder, f"{writer}.{self.lives[writer] - 1}.journal"))

    def is_hudi_warm(self) -> bool:
        """Whether the JVM that runs now has written something."""
        return any("acknowledged" in line for line in self.of_hudi(self.lives[HUDI] - 1))

    def of_hudi(self, life: int | None = None) -> list[dict[str, Any]]:
        lives = f"{HUDI}.{'*' if life is None else life}.journal"
        lines: list[dict[str, Any]] = totals.journal_lines(self.folder, lives)
        return lines

    def pause(self, writer: int, seconds: float) -> None:
        """Stops a process for a while, if it still runs."""
        if self.processes[writer].poll() is None:
            self._signal(writer, signal.SIGSTOP)
            time.sleep(seconds)
            self._signal(writer, signal.SIGCONT)

    def _signal(self, writer: int, number: int) -> None:
        """The JVM is in a group of its own, which its writer has noted."""
        if writer == HUDI:
            for line in self.of_hudi(self.lives[HUDI] - 1):
                with suppress(ProcessLookupError):
                    os.killpg(line.get("group", 0) or self.processes[writer].pid, number)
        os.kill(self.processes[writer].pid, number)

    def _release_lock_of_hudi(self) -> None:
        """What its operator does after a JVM died: nobody can see by the lock file, which is empty, that it did."""
        lock = script.make_lock(self.lock, self.table)
        for holder in lock.holders():
            if not holder.text:
                assert lock.revoke(holder.lock_id)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All processes are stopped, wherever they are."""
        stopped = [writer for writer, process in self.processes.items() if process.poll() is None]
        for writer in stopped:
            self._signal(writer, signal.SIGSTOP)
        try:
            yield
        finally:
            for writer in stopped:
                self._signal(writer, signal.SIGCONT)

    def look(self, what: Callable[[HudiTable], object], every: int) -> None:
        """Readers may come at any time, as now: after so many more commits all processes stop where they are."""
        done = self.done
        if done >= every * (self.looks + 1):
            with self.frozen():
                totals.check(self.table, self.folder)
                what(self.table)
            self.looks = done // every

    def run(self, trouble: Callable[[Storm], None] | None = None, seconds: float = 1100) -> Counter[str]:
        """All writers to their end; `trouble` is called again and again meanwhile, as long as all of them run."""
        print(f"storm with seed {self.seed}, {self.writers} x {self.commits}")
        deadline = time.monotonic() + seconds
        try:
            if self.hudi:
                self.start(HUDI)
                self._wait_for_hudi()
            for writer in range(self.writers):
                self.start(writer)
            if self.services:
                self.start(SERVICES)
            while running := [w for w, process in self.processes.items() if process.poll() is None]:
                assert time.monotonic() < deadline, f"still running: {running}"
                time.sleep(0.05)
                if HUDI in self.processes and self.processes[HUDI].poll():
                    break  # the others would wait for it
                if {*running} <= {SERVICES, HUDI}:
                    self.stop.touch()
                elif trouble is not None:
                    trouble(self)
            for writer, process in self.processes.items():
                life = self.lives[writer] - 1
                assert process.returncode == 0, without_frames(self.folder / f"{writer}.{life}.log")[-3000:]
        finally:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return self.settle()

    def _wait_for_hudi(self) -> None:
        """A JVM takes its time to start and for its first write: the others would be done before."""
        while self.processes[HUDI].poll() is None and not self.is_hudi_warm():
            time.sleep(0.1)

    def write_shared_keys(self) -> None:
        """All of them, before the storm: Hudi does not detect that others insert a key that it inserts, too."""
        import pyarrow as pa

        from skep_table.write.local import LocalWriter

        rows = [
            {"id": key, "part": script.part_of(key), "ts": -1, "batch": "first"}
            for key in (f"shared-{at}" for at in range(script.SHARED))
        ]
        table = self.table.with_context(options=self.table.options.with_values(self.options))
        done = LocalWriter(table).upsert(pa.Table.from_pylist(rows, script.SCHEMA), batch_id="first")
        notes = [
            {"batch": "first", "operation": "upsert", "rows": rows},
            {"batch": "first", "acknowledged": done.instant.requested_time},
        ]
        (self.folder / "first.journal").write_text("".join(json.dumps(note) + "\n" for note in notes))

    def logged(self, text: str) -> int:
        """How many lines of the processes' logs have this text."""
        return sum(log.read_text(errors="replace").count(text) for log in self.folder.glob("*.log"))

    def conflicts(self) -> list[str]:
        """The errors of writes that lost against another one."""
        return totals.conflicts(self.folder)

    def settle(self) -> Counter[str]:
        """The check; and after one more write nothing is left of the writers that failed."""
        found: Counter[str] = totals.check(self.table, self.folder)
        self.after()
        assert totals.check(self.table, self.folder) == found
        totals.check_clean(self.table)
        print(dict(found))
        return found

    def after(self) -> None:
        import pyarrow as pa

        from skep_table.locks.holders import Inspected
        from skep_table.write.local import LocalWriter

        row = {"id": "after", "part": "after", "ts": 1, "batch": "after"}
        beat = max(self.lock["beat"], 10)  # the storm is over: leases are long again
        lock = script.make_lock({**self.lock, "beat": beat}, self.table)
        time.sleep(max(0, self.hudi_died + 5 * beat - time.monotonic()))
        table = self.table.with_context(lock=lock, options=self.table.options.with_values(script.heartbeats(beat)))
        LocalWriter(table).upsert(pa.Table.from_pylist([row], script.SCHEMA))
        assert not isinstance(lock, Inspected) or lock.holders() == []


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Callable[..., Storm]]:
    def make(lock: dict[str, Any], **how: Any) -> Storm:
        seed = int(os.environ.get("STORM_SEED", random.randrange(10**9)))
        if scale := os.environ.get("STORM_SCALE"):
            how["writers"], how["commits"] = map(int, scale.split("x"))
        return Storm(tmp_path, {"beat": 0.5, **lock}, seed, **how)

    return make
