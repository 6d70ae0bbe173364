"""What a long history costs a table of version 9: `python -m benchmarks.history [instants …]`.

For each number a table with one commit of data, 30 empty active commits, and so many empty commits archived before
them; then a table with so many active commits, which are archived. Memory is the process's peak.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.lsm_history import LsmHistory
from skep_format.timeline.lsm_rows import HistoryRow
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import QueryType, ReadRequest, read
from skep_table.query.incremental import instants_between
from skep_table.services.cleaning.archive import archive
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
ACTIVE, ARCHIVED_AT_ONCE = 30, 10
START = datetime(2020, 1, 1, tzinfo=timezone.utc)


def instant(number: int) -> Instant:
    moment = START + timedelta(minutes=number)
    time_ = InstantTime(f"{moment:%Y%m%d%H%M%S}000")
    return Instant(time_, Action.COMMIT, State.COMPLETED, CompletionTime(time_).plus_milliseconds(500))


def make(folder: Path) -> bytes:
    """A table with one commit of data; the bytes of that commit."""
    create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, record_key=("id",), version=9))
    table = HudiTable.open(str(folder))
    done = LocalWriter(table).insert(pa.table([[1], [1]], schema=SCHEMA)).instant
    return table.storage.read(table.layout.path(done))


def activate(table: HudiTable, instants: Iterable[Instant], content: bytes) -> None:
    for each in instants:
        for state in State:
            completed = each.completion_time if state is State.COMPLETED else None
            file = Path(
                table.storage.root, table.layout.path(Instant(each.requested_time, each.action, state, completed))
            )
            file.write_bytes(content if state is State.COMPLETED else b"")


def timed(what: str, do: Callable[[], object]) -> None:
    began, busy = time.perf_counter(), time.process_time()
    do()
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"  {what:<60} {seconds * 1000:>10.1f} ms   processor {busy * 1000:>10.1f} ms   peak {peak} MB", flush=True)


def with_archived(folder: Path, count: int) -> None:
    content = make(folder)
    table = HudiTable.open(str(folder))
    history = LsmHistory(table.storage, table.layout.archive_folder)
    instants = [instant(number) for number in range(count)]

    def fill() -> None:
        for start in range(0, count, ARCHIVED_AT_ONCE):
            some = instants[start : start + ARCHIVED_AT_ONCE]
            history.add(some, [HistoryRow(each, content) for each in some])
            history.merge()

    timed(f"archiving {count} commits in tens, levels merged", fill)
    activate(table, (instant(count + number) for number in range(ACTIVE)), content)
    opened = HudiTable.open(str(folder))
    timed("snapshot read", lambda: read(HudiTable.open(str(folder)), ReadRequest()).to_arrow())
    old = instants[count // 2].requested_time
    timed("completion time of an old commit", lambda: opened.timeline.completion_time_of(old))
    last = InstantTime(str(instants[-5].completion_time))
    request = ReadRequest(query=QueryType.INCREMENTAL, since=last)
    timed("commits of a range of 4 archived and all active ones", lambda: instants_between(opened.reload(), request))
    timed("metadata of an old commit", lambda: opened.commit_metadata(instants[count // 3]))
    timed("times of all archived commits", lambda: HudiTable.open(str(folder)).timeline.archived())


def with_active(folder: Path, count: int) -> None:
    content = make(folder)
    table = HudiTable.open(str(folder))
    activate(table, map(instant, range(count)), content)

    def snapshot() -> None:
        read(HudiTable.open(str(folder)), ReadRequest()).to_arrow()

    def upsert() -> None:
        changed = pa.table([[1], [2]], schema=SCHEMA)
        LocalWriter(HudiTable.open(str(folder), {"hoodie.archive.automatic": "false"})).upsert(changed)

    timed(f"table opened, {count} active commits", lambda: HudiTable.open(str(folder)))
    timed("snapshot read", snapshot)
    timed("upsert of one row", upsert)
    timed(f"archiving {count} active commits", lambda: archive(HudiTable.open(str(folder))))
    timed("snapshot read after that", snapshot)


def main() -> None:
    for count in map(int, sys.argv[1:] or ["10000", "100000"]):
        for what in (with_archived, with_active):
            folder = Path(tempfile.mkdtemp(prefix="skep-history-"))
            print(f"{count} instants, {what.__name__.replace('_', ' ')}")
            try:
                what(folder / "t", count)
            finally:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
