"""A first sync of 100,000 partitions: bounded memory, progress reported, and continued after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import many_partitions
import pytest

from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entries import MARKER

pytestmark = [pytest.mark.metastore, pytest.mark.slow]

PARTITIONS = 100_000
BYTES = 500 << 20

SYNC = """
import json, resource, sys
from skep_catalog.client import Metastore
from skep_sync.sync import sync_table
from skep_table.events import Event, Events
from skep_table.table import HudiTable

def show(event: Event) -> None:
    if event.done is not None:
        print(json.dumps({"done": event.done, "total": event.total}), flush=True)

path, uri, database = sys.argv[1:]
with Metastore.connect(uri) as metastore:
    report = sync_table(HudiTable.open(path), metastore, database, events=Events(show))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"counts": report.counts, "calls": report.calls, "seconds": report.seconds, "peak": peak}))
"""


@pytest.fixture
def own_metastore(tmp_path: Path) -> Iterator[Metastore]:
    """One that goes with the test: to drop so many partitions from the suite's takes longer than to add them."""
    with (
        EmbeddedMetastore.start_or_join(tmp_path / "warehouse") as server,
        Metastore.connect(server.uri, timeout=60) as client,
    ):
        yield client


@pytest.mark.timeout(7200)
def test_a_hundred_thousand_partitions(own_metastore: Metastore, tmp_path: Path) -> None:
    metastore, database = own_metastore, "default"
    place = tmp_path / "many"
    many_partitions.make(place, PARTITIONS, empty=True)
    command = [sys.executable, "-c", SYNC, str(place), metastore.uri, database]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    for line in killed.stdout:
        update = json.loads(line)
        assert update["total"] == PARTITIONS
        if update["done"] >= PARTITIONS // 20:
            break
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    time.sleep(1)  # what is under way at the server ends
    for lock in metastore.locks(database):
        metastore.unlock(lock.lock_id)
    before = len(metastore.partition_names(database, "many"))
    assert PARTITIONS // 20 <= before < PARTITIONS
    assert MARKER not in metastore.table(database, "many").parameters

    went_on = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *progress, report = map(json.loads, went_on.stdout.splitlines())
    print(report, "already there:", before)
    assert report["counts"] == {"partitions added": PARTITIONS - before, "tables altered": 1}
    assert [update["done"] for update in progress] == sorted(update["done"] for update in progress)
    assert progress[-1] == {"done": PARTITIONS - before, "total": PARTITIONS - before}
    assert report["peak"] < BYTES
    assert len(metastore.partition_names(database, "many")) == PARTITIONS
