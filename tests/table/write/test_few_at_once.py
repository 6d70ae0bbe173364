"""How many tasks of a write run at a time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from skep_format.runner import Runner, ThreadRunner
from skep_format.storage import LocalStorage
from skep_table.write.rows import few_at_once


class Counted:
    """A task that takes note of how many run beside it; it ends when others have had time to begin."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, task: int) -> int:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        Path(os.devnull).read_bytes()
        with self._lock:
            self.running -= 1
        return task


class Elsewhere:
    """Runs tasks as another machine would: with functions that pickle."""

    def __init__(self) -> None:
        self.function: object = None

    def map(self, function, tasks):
        self.function = function
        return [function(task) for task in tasks]


def test_few_tasks_run_at_once_on_local_disks(tmp_path: Path) -> None:
    counted, tasks = Counted(), list(range(200))
    runner = ThreadRunner(32)
    assert few_at_once(runner, counted, tasks, LocalStorage(str(tmp_path)), spilled=False) == tasks
    assert counted.most <= (os.cpu_count() or 1) + 1


def test_other_runners_get_the_function_itself(tmp_path: Path) -> None:
    elsewhere, counted = Elsewhere(), Counted()
    runner: Runner = elsewhere
    assert few_at_once(runner, counted, range(9), LocalStorage(str(tmp_path)), spilled=True) == list(range(9))
    assert elsewhere.function is counted
