"""Wall time and memory of a piece of work done by another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median

import psutil

SAMPLE_SECONDS = 0.05


@dataclass
class Peak:
    """The most memory seen, in bytes: of all processes together, and of one that is Python: a worker, or the driver."""

    bytes: int = 0
    python: int = 0


@dataclass
class Measured:
    """Runs of one contender at one task. `failed`: why there are none."""

    contender: str
    task: str
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    failed: str | None = None
    requests: dict[str, int] = field(default_factory=dict)
    """To an object store in the last run, by kind; empty where none was used."""

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    def run(self, pid: int, work: Callable[[], float]) -> None:
        """One run: `work` gives the seconds it took; the memory is that of process `pid` and its children."""
        with memory_of(pid) as peak:
            self.seconds.append(work())
        self.peak_bytes = max(self.peak_bytes, peak.bytes)


@contextmanager
def memory_of(pid: int) -> Iterator[Peak]:
    """Samples the resident memory of a process and all below it (a JVM, Python workers) while the body runs."""
    root, peak, over = psutil.Process(pid), Peak(), threading.Event()

    def sample() -> None:
        while not over.is_set():
            peak.bytes = max(peak.bytes, resident(root))
            peak.python = max(peak.python, largest_python(root))
            over.wait(SAMPLE_SECONDS)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        over.set()
        sampler.join()


def resident(root: psutil.Process) -> int:
    total = 0
    with suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total


def largest_python(root: psutil.Process) -> int:
    largest = 0
    with suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith("python"):
                    largest = max(largest, process.memory_info().rss)
    return largest
