"""Several targets: named by options, each with its own names, markers and failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_catalog.entries import MARKER
from skep_format.errors import NotATableError, OptionError, SyncError
from skep_format.options import Options
from skep_format.storage import open_storage
from skep_sync.following.pending import KnownTables, sync_all, sync_queued
from skep_sync.following.queue import SyncQueue
from skep_sync.options import KIND, TargetKind
from skep_sync.sync import sync_table
from skep_sync.targets import MAIN, Clients, Target, each_target, sync_target, targets_of
from skep_table.table import HudiTable

NOBODY = "thrift://127.0.0.1:1"


class TestOptions:
    def test_without_options_there_is_the_main_one(self) -> None:
        (main,) = targets_of({"hoodie.datasource.hive_sync.batch_num": "7"}, "thrift://a:1")
        assert (main.name, main.uri) == (MAIN, "thrift://a:1")
        assert main.options["hoodie.datasource.hive_sync.batch_num"] == "7"

    def test_each_has_its_own_options_over_the_common_ones(self) -> None:
        main, dr, plain = targets_of(
            {
                "skep.sync.targets": "dr, plain",
                "hoodie.datasource.hive_sync.database": "lake",
                "hoodie.datasource.hive_sync.batch_num": "7",
                "skep.sync.target.dr.uris": "thrift://dr:9083",
                "skep.sync.target.dr.hoodie.datasource.hive_sync.batch_num": "8",
                "skep.sync.target.plain.uris": "thrift://plain:9083",
                "skep.sync.target.plain.kind": "manifest",
                "skep.sync.target.plain.database": "for_presto",
                "skep.sync.target.plain.table": "t2",
            }
        )
        assert (dr.uri, dr.options["hoodie.datasource.hive_sync.batch_num"]) == ("thrift://dr:9083", "8")
        assert plain.options["hoodie.datasource.hive_sync.batch_num"] == "7"
        assert plain.options.value(KIND) is TargetKind.MANIFEST
        assert main.names(None) == ("lake", None)
        assert main.names("d.t") == ("d", "t")
        assert dr.names("d.t") == ("d", "t")
        assert plain.names("d.t") == ("for_presto", "t2")

    def test_keys_of_targets_are_known(self, recwarn: pytest.WarningsRecorder) -> None:
        Options({"skep.sync.target.dr.uris": "thrift://dr:9083"}).check()
        assert not recwarn.list

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"skep.sync.targets": "dr"}, r"skep\.sync\.target\.dr\.uris"),
            ({"skep.sync.targets": "main", "skep.sync.target.main.uris": NOBODY}, "'main'"),
            ({"skep.sync.targets": "a/b", "skep.sync.target.a/b.uris": NOBODY}, "'a/b'"),
            ({"skep.sync.target.dr.uris": NOBODY}, "does not name it"),
            (
                {"skep.sync.targets": "dr", "skep.sync.target.dr.uris": NOBODY, "skep.sync.target.dr.kind": "x"},
                "target dr: .*kind",
            ),
        ],
    )
    def test_incomplete_targets_are_refused_by_name(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            targets_of(options)


@pytest.fixture
def other_database(metastore: Metastore, database: str) -> str:
    """The second target's: dropped with its tables at the end of its metastore."""
    return f"{database}_other"


@pytest.fixture
def targets(metastore: Metastore, other_database: str) -> tuple[Target, ...]:
    """The metastore, the same one as another target under other names, and one that is down."""
    return targets_of(
        {
            "skep.sync.targets": "other,down",
            "skep.sync.target.other.uris": metastore.uri,
            "skep.sync.target.other.database": other_database,
            "skep.sync.target.other.hoodie.datasource.hive_sync.table.strategy": "RT",
            "skep.sync.target.down.uris": NOBODY,
        }
    )


@pytest.mark.metastore
class TestSyncs:
    def test_one_that_is_down_holds_up_no_other(
        self,
        golden_copy: Callable[..., HudiTable],
        metastore: Metastore,
        database: str,
        other_database: str,
        targets: tuple[Target, ...],
    ) -> None:
        table = golden_copy("0.15.0", "mor_upsert")
        with Clients(metastore) as clients:
            outcomes = each_target(targets, lambda one: sync_target(one, clients, table, f"{database}.mor_upsert"))
        assert [(one.target, type(one.error)) for one in outcomes] == [
            ("main", type(None)),
            ("other", type(None)),
            ("down", SyncError),
        ]
        assert metastore.tables(database) == ["mor_upsert", "mor_upsert_ro", "mor_upsert_rt"]
        assert metastore.tables(other_database) == ["mor_upsert"], "its own strategy"
        metastore.drop_database(other_database, cascade=True)

    def test_markers_are_each_targets_own(
        self, write: Callable[..., HudiTable], metastore: Metastore, database: str, other_database: str
    ) -> None:
        options = {
            "skep.sync.targets": "other",
            "skep.sync.target.other.uris": metastore.uri,
            "skep.sync.target.other.database": other_database,
        }
        main, other = targets_of(options)
        with Clients(metastore) as clients:
            for target in (main, other):
                sync_target(target, clients, write("t", 1), f"{database}.t")
            sync_target(main, clients, write("t", 2, day="2026-01-02"), f"{database}.t")
            (shown,) = [
                outcome.target
                for _, outcome in sync_all(KnownTables(metastore, database)(), (main, other), clients, only_behind=True)
            ]
        assert shown == "other"
        assert metastore.partition_names(other_database, "t") == ["day=2026-01-01", "day=2026-01-02"]
        assert (
            metastore.table(other_database, "t").parameters[MARKER] == metastore.table(database, "t").parameters[MARKER]
        )
        metastore.drop_database(other_database, cascade=True)


@pytest.mark.metastore
class TestQueued:
    def test_what_failed_is_done_later_and_forgotten(
        self, write: Callable[..., HudiTable], metastore: Metastore, database: str, tmp_path: Path
    ) -> None:
        """A table that no metastore knows yet is found by the queue alone."""
        table = write("t", 1)
        queue = SyncQueue(open_storage(tmp_path / "queue"))
        queue.add("main", table.storage.root, "t", None, f"{database}.t")
        (down,) = targets_of({}, NOBODY)
        with Clients() as clients:
            ((name, outcome),) = sync_queued(queue, [down], clients)
        assert (name, type(outcome.error)) == (f"{database}.t", SyncError)
        (left,) = queue.pending()
        assert left.failure is not None
        assert (left.failure.attempts, left.failure.unreachable) == (1, True)
        with Clients(metastore) as clients:
            ((_, outcome),) = sync_queued(queue, targets_of({}), clients)
        assert outcome.error is None
        assert metastore.tables(database) == ["t"]
        assert queue.pending() == []

    def test_a_table_that_is_missing_is_forgotten(self, metastore: Metastore, tmp_path: Path) -> None:
        queue = SyncQueue(open_storage(tmp_path / "queue"))
        queue.add("main", str(tmp_path / "missing"), "t", None)
        with Clients(metastore) as clients:
            ((_, outcome),) = sync_queued(queue, targets_of({}), clients)
        assert isinstance(outcome.error, NotATableError)
        assert queue.pending() == []


@pytest.mark.metastore
class TestKnownTables:
    def test_views_count_as_their_table_and_other_tables_not_at_all(
        self,
        golden_copy: Callable[..., HudiTable],
        write: Callable[..., HudiTable],
        metastore: Metastore,
        database: str,
    ) -> None:
        sync_table(golden_copy("0.15.0", "mor_upsert"), metastore, database)
        sync_table(write("t", 1), metastore, database)
        known = KnownTables(metastore, database)
        assert [table.entry for table in known()] == [f"{database}.mor_upsert", f"{database}.t"]
        before = metastore.calls
        known()
        assert metastore.calls - before == 1, "names only"
        metastore.drop_table(database, "t")
        assert [table.entry for table in known()] == [f"{database}.mor_upsert"]

    def test_a_table_with_views_only_is_synced_under_its_own_name(
        self, golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str
    ) -> None:
        options = {"hoodie.meta.sync.sync_snapshot_with_table_name": "false"}
        sync_table(golden_copy("0.15.0", "mor_upsert"), metastore, database, options=options)
        with Clients(metastore) as clients:
            outcomes = list(sync_all(KnownTables(metastore, database)(), targets_of(options), clients))
        assert [name for name, _ in outcomes] == [f"{database}.mor_upsert"]
        assert metastore.tables(database) == ["mor_upsert_ro", "mor_upsert_rt"]

    def test_a_table_that_fails_stops_no_other(
        self, write: Callable[..., HudiTable], metastore: Metastore, database: str
    ) -> None:
        for name in ("a", "b"):
            sync_table(write(name, 1), metastore, database)
        Path(write("a", 2).storage.root, ".hoodie/hoodie.properties").unlink()
        write("b", 2, day="2026-02-02")
        with Clients(metastore) as clients:
            outcomes = dict(sync_all(KnownTables(metastore, database)(), targets_of({}), clients))
        assert isinstance(outcomes[f"{database}.a"].error, NotATableError)
        assert outcomes[f"{database}.b"].error is None
        assert len(metastore.partition_names(database, "b")) == 2
