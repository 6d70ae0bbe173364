"""Storms on tables with all indexes in which JVM Hudi takes part, and in which every process is killed now and then."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from storm_indexes import INDEXED, indexes_are_right, looks
from storm_writer import HUDI, SERVICES_RUNNER

from benchmarks.peers.bundle import PeerMissing, bundle
from benchmarks.peers.jvm import Jvm
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read

COLUMNS = ("id", "part", "ts", "batch")
CASES = [
    ("0.15.0", 6, "cow"),
    ("0.15.0", 6, "mor"),
    ("1.1.1", 9, "cow"),
    ("1.1.1", 9, "mor"),
    ("1.2.0", 9, "cow"),
    ("1.2.0", 9, "mor"),
]
KILLS_OF_HUDI = int(os.environ.get("STORM_HUDI_KILLS", "2"))
"""A JVM that is killed takes a minute until the next one writes, or more."""
NEVER = "1000"
"""Delta commits of the metadata table after which Hudi 1.2.0 compacts it: it fails where its JVM begins with that."""


def options_of_hudi(release: str, version: int) -> dict[str, str]:
    """What Hudi is given besides."""
    given = {
        "hoodie.metadata.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    }
    if release == "1.2.0":
        given["hoodie.metadata.compact.max.delta.commits"] = NEVER
    if version == 6:
        # Options have today's names by then, which 0.15.0 does not know: it drops an index that is not asked for.
        old = {"hoodie.metadata.record.index.enable": "true", "hoodie.metadata.record.index.min.filegroup.count": "2"}
        return given | old
    strategy = "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy"
    return given | {"hoodie.write.lock.conflict.resolution.strategy": strategy}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("release", "version", "type"),
    [pytest.param(*case, marks=pytest.mark.peer(f"hudi-{case[0]}"), id="-".join(map(str, case))) for case in CASES],
)
def test_all_are_killed(release: str, version: int, type: str, storm: Callable[..., Any]) -> None:
    """Three writers of skep, one of Hudi, and the services; Hudi looks keys up in the record index.

    Hudi does not renew its lock file, and nobody can see by it that its JVM has died: the file counts for longer than
    the storm lasts, and that of a JVM which was killed is deleted by the test.
    """
    try:
        bundle(release)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    made = storm(
        {"kind": "filesystem", "beat": 12, "expire": 600},
        type=type,
        version=version,
        options={**INDEXED, "skep.write.instant.lag.seconds": 60},
        services=True,
        hudi=release,
        hudi_batches=6,
        hudi_options=options_of_hudi(release, version),
        writers=3,
        commits=8,
        think=2,
    )

    made.write_shared_keys()

    def trouble(storm: Any) -> None:
        storm.look(looks, every=12)
        chance = storm.dice.random()
        if chance < 0.005 and storm.lives[HUDI] <= KILLS_OF_HUDI and storm.is_hudi_warm():
            storm.kill(HUDI)
        elif chance < 0.03 and storm.lives_of_writers < min(3 * storm.writers, storm.writers + storm.done / 4):
            storm.kill_one()
        elif chance < 0.04 and storm.lives[SERVICES_RUNNER] < 3 and storm.has_started(SERVICES_RUNNER):
            storm.kill(SERVICES_RUNNER)

    found = made.run(trouble, 700)
    print(dict(made.lives), f"{made.looks} looks, indexes were dropped {made.logged('are dropped;')} times")
    assert made.lives[HUDI] > 1, "Hudi was not killed"
    assert made.lives_of_writers > made.writers + 1, "few were killed"
    assert found["committed"] >= made.writers * made.commits
    assert sum("acknowledged" in each for each in made.of_hudi()) >= made.hudi_batches
    indexes_are_right(made.table)
    # In version 6 a compaction waits until no delta commit is under way, and one of Hudi always is.
    compacts = type == "mor" and version > 6
    services = {Action.REPLACE_COMMIT, Action.CLEAN} | ({Action.COMMIT} if compacts else set())
    now = made.table.reload()
    assert services <= {each.action for each in (*now.timeline.archived(), *now.timeline.completed().instants)}
    assert now.timeline.archived(), "nothing was archived"
    rows = read(now, ReadRequest(columns=COLUMNS)).to_arrow().to_pylist()
    with Jvm(release) as hudi:
        for metadata in ("true", "false"):
            how = {"hoodie.metadata.enable": metadata, "hoodie.enable.data.skipping": metadata}
            for where, holds in QUERIES.items():
                theirs = hudi.read(now.storage.root, how, columns=list(COLUMNS), where=where).rows
                wanted = Counter(map(key, filter(holds, rows)))
                assert Counter(map(key, theirs)) == wanted, f"metadata {metadata}, {where}"


QUERIES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "true": lambda row: True,
    "id = 'shared-7'": lambda row: row["id"] == "shared-7",
    "id in ('shared-1', 'shared-12', 'after')": lambda row: row["id"] in ("shared-1", "shared-12", "after"),
    "ts > 100000": lambda row: row["ts"] > 100000,
    "part = 'p1' and batch >= '2'": lambda row: row["part"] == "p1" and row["batch"] >= "2",
}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in COLUMNS)
