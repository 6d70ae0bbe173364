"""Services beside a writer: any number of them, and what a writer that died left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import CommitConflictError
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import WriteOperation
from skep_table.lock import InProcessLock
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.write.local import LocalWriter

OPTIONS = {
    "cleaner__commits__retained": 2,
    "keep__max__commits": 6,
    "keep__min__commits": 4,
    "clustering__plan__strategy__sort__columns": "ts",
    "clustering__plan__strategy__partition__selected": "q",
}


def beside(maker: Any, **options: Any) -> Any:
    """Real time, and a lock between threads."""
    return dict(maker.setting(**options), clock=SYSTEM_CLOCK, lock=InProcessLock(str(maker.folder)))


def test_services_run_beside_one_writer(mor_maker: Any) -> None:
    """Upserts go to partition p, whose logs are compacted meanwhile; in q files are clustered that nobody writes to."""
    for number in range(4):
        mor_maker.upsert(number, f"q/{number}")
    over = threading.Event()
    failed: list[BaseException] = []

    def loop(service: Callable[[Any], Any]) -> None:
        while not over.is_set():
            try:
                service(mor_maker.table.with_context(**beside(mor_maker, **OPTIONS)))
            except CommitConflictError as error:
                if "under way" not in error.message and "carrying out" not in error.message:
                    failed.append(error)
            except BaseException as error:
                failed.append(error)

    services = [threading.Thread(target=loop, args=(each,)) for each in (compact, cluster, clean, archive)]
    for thread in services:
        thread.start()
    try:
        for ts in range(10, 25):
            frame = mor_maker.frame(ts, "p/a", "p/b", f"p/{ts}")
            LocalWriter(mor_maker.table.with_context(**beside(mor_maker))).upsert(frame)
    finally:
        over.set()
        for thread in services:
            thread.join(60)
    assert not failed, failed[:3]
    expected = {f"q/{number}": number for number in range(4)} | {"p/a": 24, "p/b": 24}
    assert mor_maker.rows() == expected | {f"p/{ts}": ts for ts in range(10, 25)}
    timeline = mor_maker.table.timeline
    instants = [*timeline.archived(), *timeline.completed()]
    done = {mor_maker.table.commit_metadata(i).operation_type for i in instants if i.action is Action.REPLACE_COMMIT}
    assert done == {WriteOperation.CLUSTER}
    assert any(instant.action is Action.CLEAN for instant in instants)


@pytest.mark.parametrize(("policy", "rolled_back"), [("LAZY", True), ("EAGER", False), ("NEVER", False)])
def test_the_cleaner_rolls_back_what_died_where_writers_leave_it_to_him(
    maker: Any, policy: str, rolled_back: bool
) -> None:
    for ts in range(4):
        maker.upsert(ts, "p/a")
    last = maker.table.timeline.last()
    maker.path_of(last).unlink()
    left = {path for path in maker.files() if last.requested_time in path}
    assert left
    clean(
        maker.table.with_context(**maker.setting(cleaner__commits__retained=1, cleaner__policy__failed__writes=policy))
    )
    assert bool(left & maker.files()) is not rolled_back
    assert maker.rows() == {"p/a": 2}
