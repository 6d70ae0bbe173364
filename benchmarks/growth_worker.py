"""One operation on a table, in a process of its own, so that the memory that it takes can be seen.

It is done on a small table first, so that imports don't count, once with the calls of storage counted, then as often
as is measured. Prints processor seconds, seconds, calls by name, and the memory beyond what the process had before.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.grown_tables import KEY, KINDS, PARTITION, Kind, upsert
from skep_format.storage import LocalStorage, Storage
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import plan_clean
from skep_table.services.compaction.plan import plan_compaction
from skep_table.table import HudiTable

METHODS: Final = tuple(
    name for name, member in vars(Storage).items() if callable(member) and name[0] != "_" and name != "uri"
)
DATABASE: Final = "growth"
Work = Callable[[Path, Kind, str], object]


def point_read(place: Path, _kind: Kind, _metastore: str) -> None:
    """The row of a key in a partition."""
    where = f"id = '{KEY}' and part = '{PARTITION}'"
    found = read(HudiTable.open(place), ReadRequest(where=where)).to_arrow()
    assert found["ts"].to_pylist() == [2]


def change(place: Path, kind: Kind, _metastore: str) -> None:
    """An upsert of one row."""
    upsert(place, kind)


def sync(place: Path, _kind: Kind, metastore: str) -> None:
    """One sync, of all partitions' names where they are no more than the metastore takes in some seconds."""
    from skep_catalog.client import Metastore
    from skep_sync.sync import sync_table

    with contextlib.closing(Metastore.connect(metastore)) as client:
        sync_table(HudiTable.open(place), client, DATABASE, name_of(place))


def register(place: Path, metastore: str, *, partitions: bool) -> None:
    """The first sync, of the table alone or with its partitions."""
    from skep_catalog.client import Metastore
    from skep_catalog.entities import Database
    from skep_sync.sync import sync_table

    options = {"hoodie.meta.sync.no_partition_metadata": str(not partitions).lower()}
    with contextlib.closing(Metastore.connect(metastore)) as client:
        if DATABASE not in client.databases():
            client.create_database(Database(DATABASE))
        if client.find_table(DATABASE, name_of(place)) is None:
            sync_table(HudiTable.open(place), client, DATABASE, name_of(place), options)


def name_of(place: Path) -> str:
    """The table's name in the metastore."""
    return "t_" + "".join(each if each.isalnum() else "_" for each in str(place)[-40:]).lower()


def show(place: Path, _kind: Kind, _metastore: str) -> None:
    """`skep show`."""
    from skep.cli.main import app

    with contextlib.redirect_stdout(io.StringIO()) as out:
        app(["show", str(place)], standalone_mode=False)
    assert "last write wins" in out.getvalue() or "ts" in out.getvalue()


def compaction_plan(place: Path, _kind: Kind, _metastore: str) -> None:
    """A plan, which is not written."""
    assert plan_compaction(HudiTable.open(place)) is not None


def clean_plan(place: Path, _kind: Kind, _metastore: str) -> None:
    """A plan, which is not written."""
    plan_clean(HudiTable.open(place))


def nothing(place: Path, kind: Kind, metastore: str) -> None:
    """Before each run of an operation that finds the table as it is."""


OPERATIONS: Final[dict[str, tuple[Work, Work]]] = {
    "table opened": (nothing, lambda place, _kind, _metastore: HudiTable.open(place)),
    "point read": (nothing, point_read),
    "show": (nothing, show),
    "plan of a clean": (nothing, clean_plan),
    "plan of a compaction": (nothing, compaction_plan),
    "sync, nothing new": (nothing, sync),
    "sync of one commit": (change, sync),
    "upsert of one row": (nothing, change),
}
"""What is done before each run, and what is measured. The last ones change the table."""


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the calls of every local storage, but for those that its methods make of one another."""
    calls: Counter[str] = Counter()
    within = threading.local()

    def wrap(name: str, real: Any) -> Any:
        @functools.wraps(real)
        def method(*arguments: Any, **named: Any) -> Any:
            if getattr(within, "call", False):
                return real(*arguments, **named)
            calls[name] += 1
            within.call = True
            try:
                return real(*arguments, **named)
            finally:
                within.call = False

        return method

    reals = {name: vars(LocalStorage)[name] for name in METHODS if name in vars(LocalStorage)}
    for name, real in reals.items():
        setattr(LocalStorage, name, wrap(name, real))
    try:
        yield calls
    finally:
        for name, real in reals.items():
            setattr(LocalStorage, name, real)


def _memory(name: str) -> int:
    """VmRSS, or VmHWM: the most since it was reset. Bytes; 0 where the system does not state it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0


def main(operation: str, table: str, small: str, kind_name: str, runs: str, metastore: str) -> None:
    prepare, work = OPERATIONS[operation]
    kind = next(each for each in KINDS if each.name == kind_name)
    for _ in range(2):
        prepare(Path(small), kind, metastore)
        work(Path(small), kind, metastore)
    place = Path(table)
    prepare(place, kind, metastore)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    with counted() as calls:
        work(place, kind, metastore)
    peak = max(0, _memory("VmHWM") - before)
    processor, seconds = [], []
    for _ in range(int(runs)):
        prepare(place, kind, metastore)
        busy, start = time.process_time(), time.perf_counter()
        work(place, kind, metastore)
        processor.append(time.process_time() - busy)
        seconds.append(time.perf_counter() - start)
    json.dump({"processor": processor, "seconds": seconds, "calls": calls, "peak": peak}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
