"""Storms: writer processes on one table, what happens to them meanwhile, and the check afterwards."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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


SERVICES, HUDI = -1, 9  # among the writers' numbers: the process that runs the table's services, and JVM Hudi's


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
    options: dict[str, object] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    version: int = 6
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    lives: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        from skep_table.commit.create import TableSpec, create_table
        from skep_table.storage import LocalStorage
        from skep_table.table_config import TableType

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
        }
        command = [sys.executable, str(HERE / "storm_writer.py"), json.dumps(job)]
        with (self.folder / f"{writer}.{life}.log").open("wb") as log:
            self.processes[writer] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self, writer: int) -> None:
        process = self.processes[writer]
        if process.poll() is None:
            process.kill()
            process.wait()
            self.start(writer)

    def pause(self, writer: int, seconds: float) -> None:
        process = self.processes[writer]
        if process.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(process.pid, signal.SIGCONT)

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
                if {*running} <= {SERVICES, HUDI}:
                    self.stop.touch()
                elif trouble is not None:
                    trouble(self)
            for writer, process in self.processes.items():
                life = self.lives[writer] - 1
                assert process.returncode == 0, (self.folder / f"{writer}.{life}.log").read_text()[-3000:]
        finally:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return self.settle()

    def _wait_for_hudi(self) -> None:
        """A JVM takes its time to start and for its first write: the others would be done before."""
        while self.processes[HUDI].poll() is None and not any(
            "acknowledged" in line for line in totals.journal_lines(self.folder)
        ):
            time.sleep(0.1)

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

        from skep_table.write.local import LocalWriter

        row = {"id": "after", "part": "after", "ts": 1, "batch": "after"}
        lock = script.make_lock({**self.lock, "beat": 10}, self.table)  # the storm is over: leases are long again
        LocalWriter(self.table.with_context(lock=lock)).upsert(pa.Table.from_pylist([row], script.SCHEMA))


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Callable[..., Storm]]:
    def make(lock: dict[str, Any], **how: Any) -> Storm:
        seed = int(os.environ.get("STORM_SEED", random.randrange(10**9)))
        if scale := os.environ.get("STORM_SCALE"):
            how["writers"], how["commits"] = map(int, scale.split("x"))
        return Storm(tmp_path, {"beat": 0.5, **lock}, seed, **how)

    return make
