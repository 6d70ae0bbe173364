"""A storm in which JVM Hudi takes part: writers that do not block each other, killed at any time, and compactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from storm_totals import journal_lines

from benchmarks.peers.bundle import PeerMissing, bundle
from benchmarks.peers.jvm import Jvm
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read

PEERS = (("1.2.0", 9), ("1.1.1", 9), ("1.0.2", 8))
COLUMNS = ("id", "part", "ts", "batch")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("release", "version"),
    [pytest.param(release, version, marks=pytest.mark.peer(f"hudi-{release}")) for release, version in PEERS],
)
def test_without_conflicts(release: str, version: int, storm: Callable[..., Any]) -> None:
    """Eight writers of skep and one of Hudi on two buckets a partition.

    Hudi does not renew its lock file, and keeps heartbeats as the options want it: both last for long here. Writers of
    skep that are killed are taken for dead at once, since they are of this machine.
    """
    try:
        bundle(release)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    made = storm(
        {"kind": "filesystem", "beat": 15},
        type="mor",
        version=version,
        properties={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
        options={
            "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "2",
            "hoodie.clustering.inline": "false",
        },
        services=True,
        hudi=release,
        commits=20,
    )

    def trouble(storm: Any) -> None:
        if storm.dice.random() < 0.02 and sum(storm.lives.values()) < 3 * storm.writers:
            storm.kill(storm.dice.randrange(storm.writers))

    found = made.run(trouble, 500)
    assert sum(made.lives.values()) > made.writers + 2, "nobody was killed"
    assert found["committed"] >= made.writers * made.commits
    assert made.conflicts() == []
    of_hudi = [each for each in journal_lines(made.folder) if each.get("batch", "").startswith("9.")]
    assert sum("acknowledged" in each for each in of_hudi) > 3, "Hudi was not there for long"
    timeline = made.table.reload().timeline
    assert timeline.completed().of(Action.COMMIT).instants, "no compaction ran"
    ours = read(made.table.reload(), ReadRequest(columns=COLUMNS)).to_arrow().to_pylist()
    with Jvm(release) as hudi:
        theirs = hudi.read(made.table.storage.root, columns=list(COLUMNS)).rows
    assert Counter(map(key, theirs)) == Counter(map(key, ours))


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in COLUMNS)
