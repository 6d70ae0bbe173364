"""Work that goes on beside the caller's: one job at a time for each table, all of it done before the process ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

log = logging.getLogger("skep.background")

_guard = threading.Lock()
_threads: dict[str, ThreadPoolExecutor] = {}
_running: dict[str, list[Future[None]]] = {}


def submit(table: str, job: Callable[[], None]) -> None:
    """Runs `job` after those that the table has already. What it raises is its own affair, and logged."""

    def logged() -> None:
        try:
            job()
        except Exception:
            log.exception("table %s: what ran beside its writes failed", table)

    with _guard:
        thread = _threads.setdefault(table, ThreadPoolExecutor(1, thread_name_prefix="skep-services"))
        _running[table] = [future for future in _running.get(table, ()) if not future.done()]
        _running[table].append(thread.submit(logged))


def wait_for(table: str | None = None, timeout_seconds: float | None = None) -> bool:
    """Waits for a table's jobs, or for all there are. False when time was up first."""
    with _guard:
        chosen = [_running.get(table, [])] if table is not None else list(_running.values())
        futures = [future for each in chosen for future in each]
    return not wait(futures, timeout_seconds).not_done
