"""Many writer processes on one table: whatever happens to them, nothing acknowledged is lost or there twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from storm_indexes import INDEXED, indexes_are_right, looks
from storm_writer import SERVICES_RUNNER

from skep_catalog.embedded import EmbeddedMetastore
from skep_format.timeline.instant import Action

MakeStorm = Callable[..., Any]
FEW = {"writers": 3, "commits": 4}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
types = pytest.mark.parametrize("type", ["cow", "mor"])
versions = pytest.mark.parametrize("version", [8, 9])
oldest_and_newest = pytest.mark.parametrize("version", [6, 9])
NON_BLOCKING = {"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}
locks = pytest.mark.parametrize("kind", ["storage", "filesystem"])


def now_and_then(storm: Any, share: float, what: Callable[[int], None]) -> None:
    if storm.dice.random() < share:
        what(storm.dice.randrange(storm.writers))


def kills(lives: int) -> Callable[[Any], None]:
    """Writers are killed at random, until as many processes were started as give each writer `lives`."""
    return lambda storm: now_and_then(
        storm, 0.02 if sum(storm.lives.values()) < lives * storm.writers else 0, storm.kill
    )


@pytest.mark.engine("storm")
@oldest_and_newest
def test_a_few_writers_one_of_them_killed(version: int, storm: MakeStorm) -> None:
    made = storm({"kind": "storage"}, version=version, **FEW)
    killed: list[int] = []

    def trouble(storm: Any) -> None:
        if not killed and any((storm.folder / ".." / storm.folder).rglob("*.parquet")):
            killed.append(storm.dice.randrange(storm.writers))
            storm.kill(killed[0])

    found = made.run(trouble, 120)
    assert killed
    assert found["committed"] >= made.writers * made.commits


@pytest.mark.engine("storm")
@pytest.mark.parametrize(("type", "version"), [("cow", 6), ("mor", 9)])
def test_a_few_writers_of_a_table_of_buckets(type: str, version: int, storm: MakeStorm) -> None:
    made = storm({"kind": "storage"}, type=type, version=version, properties=BUCKETS, **FEW)
    found = made.run(seconds=120)
    assert found["acknowledged"] == found["committed"] == made.writers * made.commits
    one_group_a_bucket(made.table)


@pytest.mark.engine("storm")
def test_a_few_writers_that_do_not_block_each_other(storm: MakeStorm) -> None:
    """One of them is killed, and a compaction runs beside them."""
    made = storm({"kind": "storage"}, **WITHOUT_CONFLICTS, **FEW)
    killed: list[int] = []

    def trouble(storm: Any) -> None:
        if not killed and any(storm.folder.rglob(".*.log.*")):
            killed.append(storm.dice.randrange(storm.writers))
            storm.kill(killed[0])

    found = made.run(trouble, 120)
    assert killed
    assert found["committed"] >= made.writers * made.commits
    no_conflict(made)


WITHOUT_CONFLICTS: dict[str, Any] = {
    "type": "mor",
    "version": 9,
    "properties": BUCKETS,
    "options": {**NON_BLOCKING, "hoodie.clustering.inline": "false"},
    "services": True,
}


def no_conflict(made: Any) -> None:
    """Nobody lost against another one, and each bucket has one file group."""
    assert made.conflicts() == []
    one_group_a_bucket(made.table)


def one_group_a_bucket(table: Any) -> None:
    """New groups of one bucket by two writers at once would leave both on the timeline."""
    view = table.reload().view()
    for path in view.partitions():
        numbers = [group.file_id[:8] for group in view.file_groups(path)]
        assert len(numbers) == len(set(numbers)), f"{path}: {numbers}"


@pytest.mark.engine("storm")
@pytest.mark.parametrize(("type", "version"), [("cow", 9), ("mor", 6)])
def test_a_few_writers_of_a_table_with_indexes(type: str, version: int, storm: MakeStorm) -> None:
    made = storm({"kind": "storage"}, type=type, version=version, options=INDEXED, **FEW)
    killed: list[int] = []

    def trouble(storm: Any) -> None:
        if not killed and any(storm.folder.rglob(".hoodie/metadata/record_index/*")):
            killed.append(storm.dice.randrange(storm.writers))
            storm.kill(killed[0])

    found = made.run(trouble, 120)
    assert killed
    assert found["committed"] >= made.writers * made.commits
    indexes_are_right(made.table)


@pytest.mark.slow
@pytest.mark.timeout(1200)
class TestStorm:
    @pytest.mark.parametrize("version", [6, 8, 9])
    @types
    def test_indexes(self, type: str, version: int, storm: MakeStorm) -> None:
        """Killed at any time, beside compaction, clustering, clean, archiving and the services of the metadata table,
        whose process is killed, too. Now and then all are stopped where they are, and readers look."""
        how = {"writers": 4, "commits": 8, "services": True}
        made = storm({"kind": "storage", "beat": 2}, type=type, version=version, options=INDEXED, **how)

        def trouble(storm: Any) -> None:
            storm.look(looks, every=8)
            chance = storm.dice.random()
            if chance < 0.01 and storm.lives[SERVICES_RUNNER] < 3 and storm.has_started(SERVICES_RUNNER):
                storm.kill(SERVICES_RUNNER)
            elif chance < 0.05 and storm.lives_of_writers < min(2.5 * storm.writers, storm.writers + storm.done / 4):
                storm.kill_one()

        found = made.run(trouble)
        print(dict(made.lives), f"{made.looks} looks, indexes were dropped {made.logged('are dropped;')} times")
        assert made.looks
        assert made.lives_of_writers > made.writers + 1, "nobody was killed"
        assert found["committed"] >= made.writers * made.commits
        indexes_are_right(made.table)
        assert made.table.reload().timeline.archived(), "nothing was archived"

    @oldest_and_newest
    @types
    def test_buckets(self, type: str, version: int, storm: MakeStorm) -> None:
        """Killed at any time; compactions and cleans run beside the writers."""
        made = storm(
            {"kind": "storage"},
            type=type,
            version=version,
            properties=BUCKETS,
            options={"hoodie.clustering.inline": "false"},
            writers=4,
            commits=15,
            services=True,
        )
        found = made.run(kills(3))
        assert found["committed"] >= made.writers * made.commits
        one_group_a_bucket(made.table)

    def test_buckets_on_spark_and_on_threads(self, storm: MakeStorm) -> None:
        made = storm({"kind": "storage", "beat": 5}, properties=BUCKETS, writers=3, commits=5, spark=[0])
        found = made.run()
        assert found["acknowledged"] == found["committed"] == made.writers * made.commits
        one_group_a_bucket(made.table)

    @types
    @locks
    def test_overlapping_and_disjoint_keys(self, kind: str, type: str, storm: MakeStorm) -> None:
        made = storm({"kind": kind}, type=type)
        found = made.run()
        assert found["acknowledged"] == found["committed"] == made.writers * made.commits

    @types
    @locks
    def test_killed_at_any_time(self, kind: str, type: str, storm: MakeStorm) -> None:
        made = storm({"kind": kind}, type=type, writers=4, commits=15)
        found = made.run(kills(4))
        assert sum(made.lives.values()) > made.writers, "nobody was killed"
        assert found["committed"] >= made.writers * made.commits

    @versions
    @types
    def test_killed_at_any_time_in_newer_versions(self, type: str, version: int, storm: MakeStorm) -> None:
        made = storm({"kind": "storage"}, type=type, version=version)
        found = made.run(kills(3))
        assert sum(made.lives.values()) > made.writers, "nobody was killed"
        assert found["committed"] >= made.writers * made.commits

    @pytest.mark.parametrize("kind", ["storage", "filesystem"])
    def test_without_conflicts(self, kind: str, storm: MakeStorm) -> None:
        """Eight writers of two buckets a partition, killed at any time, with compactions beside them."""
        made = storm({"kind": kind}, **WITHOUT_CONFLICTS)
        found = made.run(kills(3))
        assert sum(made.lives.values()) > made.writers, "nobody was killed"
        assert found["committed"] >= made.writers * made.commits
        no_conflict(made)

    @oldest_and_newest
    @types
    @locks
    def test_stopped_for_longer_than_the_lease(self, kind: str, type: str, version: int, storm: MakeStorm) -> None:
        made = storm({"kind": kind, "beat": 0.2}, type=type, version=version, writers=4, commits=15)
        pauses: list[int] = []

        def pause(writer: int) -> None:
            pauses.append(writer)
            made.pause(writer, 1.5)

        made.run(lambda storm: now_and_then(storm, 0.1 if len(pauses) < 15 else 0, pause))
        assert pauses

    @oldest_and_newest
    @types
    def test_services_beside_the_writers(self, type: str, version: int, storm: MakeStorm) -> None:
        """Compaction, clustering and clean, again and again; now and then their process is killed, too."""
        made = storm({"kind": "storage"}, type=type, version=version, writers=4, commits=15, services=True)

        def trouble(storm: Any) -> None:
            if storm.dice.random() < 0.005 and storm.lives[-1] < 4:
                storm.kill(-1)

        made.run(trouble)
        timeline = made.table.reload().timeline.completed()
        wanted = {Action.REPLACE_COMMIT, Action.CLEAN} | ({Action.COMMIT} if type == "mor" else set())
        assert wanted <= {instant.action for instant in timeline.instants}

    def test_writers_on_spark(self, storm: MakeStorm) -> None:
        made = storm({"kind": "storage", "beat": 5}, writers=2, commits=5, spark=[0, 1])
        found = made.run()
        assert found["acknowledged"] == found["committed"] == made.writers * made.commits

    def test_through_zookeeper(self, zookeeper: str, storm: MakeStorm) -> None:
        made = storm({"kind": "zookeeper", "at": zookeeper}, writers=4, commits=15)
        made.run(kills(3))

    def test_through_dynamodb(
        self, s3_options: dict[str, str], storm: MakeStorm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(key, "test")
        made = storm({"kind": "dynamodb", "at": s3_options["fs.s3a.endpoint"]}, writers=4, commits=15)
        made.run(kills(3))


@pytest.mark.slow
@pytest.mark.metastore
@pytest.mark.timeout(1200)
class TestMetastore:
    @types
    def test_overlapping_and_disjoint_keys(
        self, type: str, metastore_server: EmbeddedMetastore, storm: MakeStorm
    ) -> None:
        storm({"kind": "metastore", "at": metastore_server.uri}, type=type).run()

    def test_killed_and_stopped(self, metastore_server: EmbeddedMetastore, storm: MakeStorm) -> None:
        made = storm({"kind": "metastore", "at": metastore_server.uri}, writers=4, commits=15)

        def trouble(storm: Any) -> None:
            kills(3)(storm)
            now_and_then(storm, 0.02, lambda writer: storm.pause(writer, 2.5))

        made.run(trouble)

    def test_answers_are_lost(self, metastore_server: EmbeddedMetastore, storm: MakeStorm) -> None:
        from storm_proxy import LossyProxy

        made = storm({"kind": "metastore"}, writers=4, commits=15)
        with LossyProxy(metastore_server.uri, made.seed, 0.03) as proxy:
            made.lock["at"] = proxy.uri
            made.run()
            assert proxy.lost

    def test_it_is_restarted(self, tmp_path: Path, storm: MakeStorm) -> None:
        folder = tmp_path / "warehouse"
        with ExitStack() as stack:
            servers = [stack.enter_context(EmbeddedMetastore.start_or_join(folder))]
            made = storm({"kind": "metastore", "at": servers[0].uri}, writers=3, commits=12)

            def restart(storm: Any) -> None:
                if len(servers) > 2 or storm.dice.random() > 0.02:
                    return
                os.kill(servers[-1].server.pid, signal.SIGKILL)
                while servers[-1].is_alive():
                    time.sleep(0.05)
                servers.append(
                    stack.enter_context(EmbeddedMetastore.start_or_join(folder, port=servers[0].server.port))
                )

            made.run(restart)
            assert len(servers) > 1
