"""Reading ahead: batches of several tasks in the order of the tasks, with few of them in memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
B = TypeVar("B")

BATCHES_AHEAD: Final = 2  # per task that is read ahead
_POLL_SECONDS: Final = 0.1


class _Done:
    """The end of a task's batches, or the error that ended them."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def default_workers() -> int:
    """The number of threads that read ahead: one per processor, at most 8."""
    return min(8, os.cpu_count() or 1)


def in_order(
    tasks: Iterable[T], read: Callable[[T], Iterator[B]], workers: int | None = None
) -> Generator[B, None, None]:
    """What `read` yields for each task, tasks in order, while `workers` threads read this one and the next ones.

    At most `BATCHES_AHEAD` batches wait of each of these, and of the one that is taken from. When the caller stops
    early, or a task fails, the other tasks are stopped before this returns.
    """
    workers = workers or default_workers()
    upcoming = iter(tasks)
    first = list(itertools.islice(upcoming, 2))
    if workers == 1 or len(first) < 2:  # no other task to read meanwhile
        for task in itertools.chain(first, upcoming):
            yield from read(task)
        return
    upcoming = itertools.chain(first, upcoming)
    stop = threading.Event()
    running: deque[queue.Queue[B | _Done]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="skep-read") as pool, contextlib.ExitStack() as cleanup:
        cleanup.callback(stop.set)
        while True:
            # One more than there are threads: what a task has left is taken while all of them go on.
            for task in itertools.islice(upcoming, workers + 1 - len(running)):
                waiting: queue.Queue[B | _Done] = queue.Queue(BATCHES_AHEAD)
                running.append(waiting)
                pool.submit(_fill, waiting, read, task, stop)
            if not running:
                return
            while not isinstance(item := running[0].get(), _Done):
                yield item
            running.popleft()
            if item.error is not None:
                raise item.error


def _fill(waiting: queue.Queue[B | _Done], read: Callable[[T], Iterator[B]], task: T, stop: threading.Event) -> None:
    try:
        batches = read(task)
        for batch in batches:
            if not _put(waiting, batch, stop):
                getattr(batches, "close", lambda: None)()
                return
        _put(waiting, _Done(), stop)
    except BaseException as error:  # handed to the reading thread, which raises it
        _put(waiting, _Done(error), stop)


def _put(waiting: queue.Queue[B | _Done], item: B | _Done, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            waiting.put(item, timeout=_POLL_SECONDS)
            return True
        except queue.Full:
            continue
    return False
