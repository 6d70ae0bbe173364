"""Run as a script: one writer of a storm. Upserts keys that all share, and upserts and deletes keys of its own.

Each commit is one batch, by an id that the commit records. What is about to be written is noted before it is, and the
id again when the write has been acknowledged. A batch that conflicts is tried again until it is committed.

Instead of writing, one process may run the table's services, over and over until the file `stop` is there. Another one
may let JVM Hudi write until then. What Hudi refuses ends it, other than conflicts where writers may have some: after
the second one the others leave the table to it until it has written.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from skep_format.errors import CatalogError, LockError, StorageError, WriteError
from skep_format.options import Options
from skep_format.timeline.instant import DATA_ACTIONS
from skep_table.commit.parts.batches import BATCH_ID
from skep_table.lock import Lock
from skep_table.services.automatic import maintain
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("batch", pa.string())])
DDL = {"id": "string", "part": "string", "ts": "bigint", "batch": "string"}
TRIES = 200
SERVICES_RUNNER, HUDI = -1, 9
"""Among the writers' numbers: the process that runs the table's services, and JVM Hudi's."""


def make_lock(spec: dict[str, Any], table: HudiTable) -> Lock:
    kind, beat = spec["kind"], spec["beat"]
    if kind == "storage":
        from skep_table.locks.storage import StorageLock

        return StorageLock(table.storage, validity_seconds=4 * beat, heartbeat_seconds=beat)
    if kind == "filesystem":
        from skep_table.locks.filesystem import FileSystemLock

        return FileSystemLock(table.storage, expire_seconds=spec.get("expire", 4 * beat), heartbeat_seconds=beat)
    if kind == "zookeeper":
        from skep_table.locks.zookeeper import ZooKeeperLock

        return ZooKeeperLock(spec["at"], "/storm/" + Path(table.storage.root).name, session_seconds=4 * beat)
    if kind == "dynamodb":
        from skep_table.locks.dynamodb import DynamoDbLock

        return DynamoDbLock("storm", table.storage.root, endpoint_url=spec["at"], lease_seconds=4 * beat)
    from skep_catalog.client import Metastore
    from skep_catalog.lock import HmsLock

    return HmsLock(Metastore.connect(spec["at"], timeout=20), "storm", Path(table.storage.root).name)


def heartbeats(beat: float) -> dict[str, object]:
    """The options by which a writer counts as dead."""
    return {
        "hoodie.client.heartbeat.interval_in_ms": int(beat * 1000),
        "hoodie.client.heartbeat.tolerable.misses": 4,
    }


SHARED = 40
"""How many keys all writers have in common."""


def batches(writer: int, life: int, seed: int, count: int, pace: int = 1) -> Any:
    """What the writer does. A later life has other batches, and keys of its own too.

    The ordering values of a slow writer rise by `pace`: some of its rows are to be the last ones, too.
    """
    dice = random.Random(f"{seed}/{writer}/{life}")
    mine: list[str] = []
    for number in range(count):
        batch = f"{writer}.{life}.{number}"
        if len(mine) > 3 and dice.random() < 0.25:
            removed, mine = mine[:2], mine[2:]
            yield batch, "delete", [{"id": key, "part": part_of(key)} for key in removed]
            continue
        own = [f"own-{batch}-{at}" for at in range(dice.randrange(1, 4))]
        mine += own
        shared = [f"shared-{at}" for at in dice.sample(range(SHARED), dice.randrange(1, 4))]
        again = dice.sample(mine, min(len(mine), 2))
        rows = dict.fromkeys((*own, *shared, *again), number * pace * 10000 + life * 100 + writer)
        yield (
            batch,
            "upsert",
            [{"id": key, "part": part_of(key), "ts": ts, "batch": batch} for key, ts in rows.items()],
        )


def part_of(key: str) -> str:
    """Shared keys lie in a few partitions, the others in those and in one for each writer."""
    kind, _, rest = key.partition("-")
    return f"p{int(rest) % 3}" if kind == "shared" else f"p{len(rest) % 3}" if hash_of(rest) % 2 else f"w{rest[0]}"


def hash_of(text: str) -> int:
    return sum(text.encode())


SERVICES = {
    "hoodie.compact.inline.max.delta.commits": 4,
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": 6,
    "hoodie.cleaner.commits.retained": 10,
    "hoodie.keep.min.commits": 5000,
    "hoodie.keep.max.commits": 5001,
}


def run_services(table: HudiTable, setting: dict[str, Any], stop: Path, note: Any) -> None:
    """One round more after the writers are done: a plan that was just made is carried out."""
    rounds_left = 2
    while rounds_left:
        rounds_left -= stop.exists()
        try:
            for step in maintain(table.reload().with_context(**setting)):
                for done in step.run():
                    note(service=done.service, state=str(done))
        except (WriteError, LockError, CatalogError, StorageError) as error:
            note(service="?", failed=repr(error)[:300])
        time.sleep(0.05)


class HudiWriter:
    """JVM Hudi on a merge-on-read table with buckets, through the lock file. The services are left to skep."""

    def __init__(self, release: str, table: HudiTable, options: dict[str, str]) -> None:
        from benchmarks.peers.jvm import Jvm

        self._hudi, self._table = Jvm(release), table
        self._options = {
            "hoodie.table.name": "storm",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.write.table.version": str(table.config.version),
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
            "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
            "hoodie.write.lock.client.num_retries": "500",
            "hoodie.cleaner.policy.failed.writes": "LAZY",
            "hoodie.metadata.enable": "false",
            "hoodie.embed.timeline.server": "false",
            "hoodie.compact.inline": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.upsert.shuffle.parallelism": "2",
            "hoodie.datasource.write.commitmeta.key.prefix": BATCH_ID,
            **options,
        }

    def __enter__(self) -> HudiWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._hudi.stop()

    @property
    def group(self) -> int:
        """Of the processes that are to be killed with this one."""
        return self._hudi.pid

    def write(self, batch: str, operation: str, rows: list[dict[str, Any]]) -> str:
        """The time at which its instant was requested."""
        ddl = ", ".join(f"{name} {DDL[name]}" for name in rows[0])
        options = {**self._options, BATCH_ID: batch}
        self._hudi.write(self._table.storage.root, rows, ddl, options, operation=operation)
        done = self._table.reload()
        for instant in reversed([*done.timeline.archived(), *done.timeline.data().completed().instants]):
            if instant.action in DATA_ACTIONS and done.commit_metadata(instant).extra_metadata.get(BATCH_ID) == batch:
                return instant.requested_time
        raise AssertionError(f"Hudi wrote batch {batch}, and it is not on the timeline")


# A write of Hudi 1.2 fails where another one has dropped an index that was there when it began, and where a clustering
# completes as it begins: its list of files is older than the places of keys that it reads. Hudi reads all rollbacks
# of its timeline, and fails where one of them has been archived since it listed them.
LOST = (
    "conflict",
    "clustering",
    "should be part of inflight metadata partitions",
    "index is not initialized",
    "of partition path",
    "could not read commit details",
)


def run_hudi(job: dict[str, Any], table: HudiTable, options: dict[str, str], note: Any) -> None:
    """Batches one after the other: so many, or until the others are done."""
    least, rest = job["hudi_batches"], Path(job["rest"])
    done = Path(job["stop"])
    with HudiWriter(job["hudi"], table, {**options, **job["hudi_options"]}) as hudi:
        note(group=hudi.group)
        made = batches(job["writer"], job["life"], job["seed"], 100_000, pace=8 if least else 1)
        for number, (batch, operation, rows) in enumerate(made, 1):
            note(batch=batch, operation=operation, rows=rows)
            note(batch=batch, acknowledged=written_by(hudi, batch, operation, rows, options, rest, note))
            if number == least:
                done.touch()
            if done.exists():
                return


def written_by(
    hudi: HudiWriter,
    batch: str,
    operation: str,
    rows: list[dict[str, Any]],
    options: dict[str, str],
    rest: Path,
    note: Any,
) -> str:
    """Hudi does not try again by itself."""
    from benchmarks.peers.jvm import HudiRefused

    optimistic = options["hoodie.write.concurrency.mode"].startswith("optimistic")
    for attempt in range(20):
        if attempt > 1:
            rest.touch()  # it would always lose against writers that are so much faster
        try:
            time_written = hudi.write(batch, operation, rows)
        except HudiRefused as error:
            if not optimistic or not any(word in str(error).lower() for word in LOST):
                raise
            note(batch=batch, lost=str(error)[:300])
            time.sleep(1)
            continue
        rest.unlink(missing_ok=True)
        return time_written
    raise AssertionError(f"Hudi lost batch {batch} every time")


def writer_of(job: dict[str, Any], table: HudiTable, setting: dict[str, Any]) -> Any:
    """Frames of Arrow are written by threads, those of Spark by Spark."""
    if not job["spark"]:
        return LocalWriter(table.with_context(**setting)), pa.Table.from_pylist
    from skep_catalog.class_archive import spark_environment
    from skep_writer import SparkWriter, make_spark

    conf = {"spark.driver.memory": "600m", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = make_spark(spark_environment(), master="local[1]", conf=conf)

    def frame(rows: list[dict[str, Any]], schema: pa.Schema) -> Any:
        columns = ", ".join(f"{name} {DDL[name]}" for name in schema.names)
        return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], columns)

    return SparkWriter(table.with_context(**setting), spark), frame


def main() -> None:
    job = json.loads(sys.argv[1])
    journal = Path(job["journal"]).open("a", encoding="utf-8")  # noqa: SIM115 - open until the process dies

    def note(**facts: object) -> None:
        journal.write(json.dumps(facts) + "\n")
        journal.flush()
        os.fsync(journal.fileno())

    options = Options(
        {
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            **heartbeats(job["lock"]["beat"]),
            "hoodie.write.num.retries.on.conflict.failures": 3,
            "hoodie.parquet.compression.codec": "uncompressed",
            **(SERVICES if job["services"] else {}),
            **job["options"],
        }
    )
    table = HudiTable.open(job["table"], job["storage_options"])
    if job["hudi"]:
        run_hudi(job, table, dict(options), note)
        return
    lock = make_lock(job["lock"], table)
    setting = {"lock": lock, "options": table.options.with_values(options)}
    if job["services"]:
        run_services(table, setting, Path(job["stop"]), note)
        return
    writer, frame = writer_of(job, table, setting)
    dice, stop, rest = random.Random(job["seed"] + job["writer"]), Path(job["stop"]), Path(job["rest"])
    made = batches(job["writer"], job["life"], job["seed"], 100_000 if job["goes_on"] else job["commits"])
    for number, (batch, operation, rows) in enumerate(made):
        if number >= job["commits"] and stop.exists():
            return
        schema = SCHEMA if operation == "upsert" else pa.schema([SCHEMA.field("id"), SCHEMA.field("part")])
        note(batch=batch, operation=operation, rows=rows)
        for _ in range(TRIES):
            try:
                result = getattr(writer, operation)(frame(rows, schema), batch_id=batch)
            except (WriteError, LockError, CatalogError, StorageError) as error:
                note(batch=batch, failed=repr(error)[:300])
                continue
            note(batch=batch, acknowledged=result.instant.requested_time)
            break
        else:
            sys.exit(f"batch {batch} was not committed in {TRIES} tries")
        time.sleep(dice.random() * job["think"])
        while rest.exists():
            time.sleep(0.1)


if __name__ == "__main__":
    main()
