"""JVM Hudi and skep write to one table at the same time, through one metastore's lock: the same account holds.

Hudi 0.15 dates its instant before it shows it, and without the lock. Who begins and completes in between is in what
Hudi reads: so skep dates its own instants back. With a lag of 0, rows of Hudi are hidden.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.peers.bundle import RELEASES
from benchmarks.peers.jvm import HudiRefused, Jvm
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore

HUDI, OURS, COMMITS, SHARED_KEYS = 6, 2, 8, 12
LAG_SECONDS = 120  # a machine that is busy with other work lets Hudi take its time
COLUMNS = "id string, part string, ts bigint, v string"

WRITER = """
import json, random, sys
import pyarrow as pa
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_table.commit.setting import CommitSetting
from skep_table.errors import CommitConflictError
from skep_table.options import Options
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

job = json.loads(sys.argv[1])
schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
lock = HmsLock(Metastore.connect(job["uri"]), "mixed", "t")
options = Options({
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": 50,
    "skep.write.instant.lag.seconds": job["lag"],
})
writer = LocalWriter(HudiTable.open(job["table"]), CommitSetting(lock=lock, options=options))
for rows in job["batches"]:
    writer.upsert(pa.Table.from_pylist(rows, schema))
"""


def batch(writer: int, number: int, dice: random.Random) -> list[dict[str, object]]:
    keys = [f"own-{writer}-{number}"] + [f"shared-{at}" for at in dice.sample(range(SHARED_KEYS), 2)]
    ts = number * 100 + writer
    return [{"id": key, "part": f"p{sum(key.encode()) % 3}", "ts": ts, "v": f"{writer}.{number}"} for key in keys]


@pytest.mark.slow
@pytest.mark.metastore
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "release", [pytest.param(release, marks=pytest.mark.peer(f"hudi-{release}")) for release in RELEASES]
)
def test_the_same_account_holds(
    release: str, jvm: Callable[[str], Jvm], metastore_server: EmbeddedMetastore, tmp_path: Path
) -> None:
    from skep_table.commit.create import TableSpec, create_table
    from skep_table.query import ReadRequest, read
    from skep_table.storage import LocalStorage

    seed = int(os.environ.get("STORM_SEED", random.randrange(10**9)))
    print(f"seed {seed}")
    dice = random.Random(seed)
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
    spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    hudi = jvm(release)
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "hoodie.index.type": "BLOOM",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        "hoodie.write.lock.provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "hoodie.write.lock.hivemetastore.database": "mixed",
        "hoodie.write.lock.hivemetastore.table": "t",
        "hoodie.write.lock.hivemetastore.uris": metastore_server.uri,
        "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
        **({} if release == "0.15.0" else {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}),
    }
    written: list[dict[str, object]] = []
    processes = []
    for writer in range(1, OURS + 1):
        batches = [batch(writer, number, dice) for number in range(1, COMMITS + 1)]
        written += [row for rows in batches for row in rows]
        job = json.dumps(
            {"table": str(tmp_path / "t"), "uri": metastore_server.uri, "batches": batches, "lag": LAG_SECONDS}
        )
        processes.append(subprocess.Popen([sys.executable, "-c", WRITER, job], stderr=subprocess.PIPE, text=True))
    lost = 0
    for number in range(1, HUDI + 1):
        rows = batch(9, number, dice)
        written += rows
        for _ in range(20):
            try:
                hudi.write(tmp_path / "t", rows, COLUMNS, options, operation="upsert")
                break
            except HudiRefused as error:
                if "conflict" not in str(error).lower():
                    raise
                lost += 1  # Hudi does not try again by itself
        else:
            pytest.fail(f"Hudi lost batch {number} every time")
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-3000:]
    expected: dict[str, dict[str, object]] = {}
    for row in written:
        known = expected.get(str(row["id"]))
        if known is None or int(str(known["ts"])) < int(str(row["ts"])):
            expected[str(row["id"])] = row
    ours = read(table.reload(), ReadRequest(columns=tuple(schema.names))).to_arrow().to_pylist()
    theirs = hudi.read(tmp_path / "t", columns=list(schema.names)).rows
    by_key = lambda row: str(row["id"])  # noqa: E731
    assert sorted(theirs, key=by_key) == sorted(ours, key=by_key)
    found = {by_key(row): row for row in ours}
    assert found == expected
    commits = table.reload().timeline.data().completed().instants
    assert len(commits) == HUDI + OURS * COMMITS
    assert Metastore.connect(metastore_server.uri).locks("mixed", "t") == []
    print(f"{len(commits)} commits, Hudi lost {lost} conflicts")
