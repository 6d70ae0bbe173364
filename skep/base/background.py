"""Background jobs: one at a time for each table, or each lane of it, all of them finished before the process ends; and
calls beside others, whose answer may not be wanted in the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger("skep.background")

_guard = threading.Lock()
_threads: dict[tuple[str, str], ThreadPoolExecutor] = {}
_running: dict[str, list[Future[None]]] = {}


def submit(table: str, job: Callable[[], None], lane: str = "") -> None:
    """Runs `job` after the table's earlier ones in its lane. Its errors are logged, not raised."""

    def logged() -> None:
        try:
            job()
        except Exception:
            log.exception("table %s: a background job failed", table)

    with _guard:
        thread = _threads.setdefault((table, lane), ThreadPoolExecutor(1, thread_name_prefix="skep-services"))
        _running[table] = [future for future in _running.get(table, ()) if not future.done()]
        _running[table].append(thread.submit(logged))


def wait_for(table: str | None = None, timeout_seconds: float | None = None) -> bool:
    """Waits for a table's jobs, or for all. False when the time-out expired first."""
    with _guard:
        chosen = [_running.get(table, [])] if table is not None else list(_running.values())
        futures = [future for each in chosen for future in each]
    return not wait(futures, timeout_seconds).not_done


def beside(call: Callable[[], T]) -> Future[T]:
    """The answer of a call that another thread makes; the process does not wait for it at its end."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised where the answer is wanted
            answer.set_exception(error)

    threading.Thread(target=run, name="skep-beside", daemon=True).start()
    return answer
