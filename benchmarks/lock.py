"""The metastore's lock: skep beside bare calls and beside Hudi's own provider, on one embedded metastore.

Hudi's provider does not wait in the server's queue: it retries after the pause of its client's defaults.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import Jvm
from benchmarks.report import Report
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.lock import HmsLock
from skep_table.lock import held

ALONE, CONTENDED, DEAD, KILLED = (
    "50 times acquired and released",
    "8 contenders, 3 turns each, 50 ms held",
    "taken over from a holder that went silent",
    "taken over from a process that was killed",
)
TIMES, CONTENDERS, TURNS, HELD_SECONDS = 50, 8, 3, 0.05
SERVER_TIMEOUT_SECONDS = 60  # hive.txn.timeout of the embedded metastore
Progress = Callable[[str], None]


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("lock", scale, runs)
    with (
        tempfile.TemporaryDirectory(prefix="skep-lock-") as scratch,
        EmbeddedMetastore.start_or_join(Path(scratch, "warehouse")) as server,
        Metastore.connect(server.uri) as hms,
    ):
        for number in range(runs + 1):
            progress(f"run {number}")
            bare, ours, waiting = alone_bare(hms), alone(hms), contended(hms)
            if number:
                report.of("bare calls", ALONE).seconds.append(bare)
                report.of("skep", ALONE).seconds.append(ours)
                report.of("skep", CONTENDED).seconds.append(waiting)
        report.of("skep", KILLED).seconds.append(killed(hms))
        if not only or "hudi" in " ".join(only):
            theirs(report, server.uri, runs, progress)
        if scale >= 1:
            progress("a holder goes silent: the metastore's time-out is waited for")
            report.of("skep", DEAD).seconds.append(silent(hms))
    aims(report)
    return report


def theirs(report: Report, uri: str, runs: int, progress: Progress) -> None:
    name = f"hudi-{RELEASES[0]}"
    try:
        with Jvm(RELEASES[0]) as hudi:
            for number in range(runs):
                progress(f"{name}, run {number + 1}")
                done = hudi.request(
                    "contend", uri=uri, writers=CONTENDERS, turns=TURNS, held_seconds=HELD_SECONDS, table=f"jvm{number}"
                )
                report.of(name, CONTENDED).seconds.append(float(done["seconds"]))
    except PeerMissing as reason:
        report.of(name, CONTENDED).failed = str(reason)[:200]


def aims(report: Report) -> None:
    bare = report.ratio("skep", ALONE, "bare calls")
    report.aim("acquire and release against the two bare calls", bare, 1.3, at_most=True)
    for release in RELEASES:
        report.aim(f"turns of 8 contenders against Hudi {release}", report.ratio(f"hudi-{release}", CONTENDED), 5)
    for task in (DEAD, KILLED):
        found = report.of("skep", task).median
        report.aim(f"{task}: seconds", found, SERVER_TIMEOUT_SECONDS + 2 if task is DEAD else 2, at_most=True)


def alone(hms: Metastore) -> float:
    start = time.perf_counter()
    for _ in range(TIMES):
        with held(HmsLock(hms, "bench", "alone"), 10):
            pass
    return time.perf_counter() - start


def alone_bare(hms: Metastore) -> float:
    start = time.perf_counter()
    for _ in range(TIMES):
        hms.unlock(hms.lock("bench", "bare", agent_info="bench", user="bench", host="here").lock_id)
    return time.perf_counter() - start


def contended(hms: Metastore) -> float:
    """The seconds until all have had their turns; and turns are taken in the order of the requests."""
    order: list[int] = []

    def work() -> None:
        for _ in range(TURNS):
            with held(HmsLock(hms, "bench", "contended"), 120) as lock_id:
                order.append(int(lock_id))
                time.sleep(HELD_SECONDS)

    threads = [threading.Thread(target=work) for _ in range(CONTENDERS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    assert order == sorted(order), "turns were not taken in order"
    assert len(order) == CONTENDERS * TURNS
    return seconds


def silent(hms: Metastore) -> float:
    """A lock as Hudi's provider asks for it, without a word after that."""
    hms.lock("bench", "silent", agent_info="Unknown", user="jvm", host="elsewhere")
    return _acquired(hms, "silent")


def killed(hms: Metastore) -> float:
    script = (
        "import os, sys; from skep_catalog.client import Metastore; from skep_catalog.lock import HmsLock;"
        " HmsLock(Metastore.connect(sys.argv[1]), 'bench', 'killed').acquire(10); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, hms.uri], check=False)
    return _acquired(hms, "killed")


def _acquired(hms: Metastore, table: str) -> float:
    start = time.perf_counter()
    with held(HmsLock(hms, "bench", table), 2 * SERVER_TIMEOUT_SECONDS):
        return time.perf_counter() - start
