"""A metastore that refuses what writes to it: data are committed, what it misses is remembered, all reading works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from refusing_proxy import LOCKS, WRITES, RefusingProxy
from typer.testing import CliRunner, Result

from skep.cli import lock as lock_commands
from skep.cli.scope import App
from skep.cli.sync import commands as sync_commands
from skep.lake import Lake
from skep.metastore.syncing import SyncWarning, open_queue
from skep_catalog.client import Metastore
from skep_format.errors import CatalogError, LockError, SkepError, SyncError

pytestmark = pytest.mark.metastore

REFUSAL = "does not have privileges"


def rows(*ids: int, day: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids))})


def run(*arguments: str) -> Result:
    app = App()
    app.add(sync_commands, "sync")
    app.add(lock_commands, "lock")
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def place(metastore: Metastore, database: str, tmp_path: Path) -> str:
    """The warehouse, with a table that was registered while writing was allowed."""
    lake = Lake(metastore, str(tmp_path), database=database)
    lake.create_table("t", rows(1), key="id", partition_by="day", hive_style=True).upsert(rows(1))
    return str(tmp_path)


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[RefusingProxy]:
    with RefusingProxy(metastore.uri, WRITES) as found:
        yield found


@pytest.fixture
def reader(proxy: RefusingProxy) -> Iterator[Metastore]:
    with Metastore.connect(proxy.uri, timeout=30, attempts=2) as client:
        yield client


def test_a_write_commits_and_what_the_metastore_misses_is_remembered(
    place: str, reader: Metastore, metastore: Metastore, database: str
) -> None:
    before = metastore.table(database, "t")
    lake = Lake(reader, place, database=database)
    table = lake.table("t")
    with pytest.warns(SyncWarning, match=REFUSAL):
        table.upsert(rows(2, day="b"))
    assert table.read().count() == 2
    assert metastore.table(database, "t") == before
    queue = open_queue({}, place)
    assert queue is not None
    (left,) = queue.pending()
    assert left.failure is not None
    assert REFUSAL in left.failure.error
    assert f"{database}.t" in left.failure.error
    with pytest.raises(SkepError, match=REFUSAL):
        table.sync()
    # Rights were granted: what was missed is synced.
    assert run("sync", "apply", "--pending", "-m", metastore.uri, "-w", place, "-d", database).exit_code == 0
    assert metastore.partition_names(database, "t") == ["day=a", "day=b"]
    assert queue.pending() == []


def test_all_that_reads_works(place: str, reader: Metastore, proxy: RefusingProxy, database: str) -> None:
    lake = Lake(reader, place, database=database)
    assert lake.tables(database) == [f"{database}.t"]
    assert lake.table("t").read().count() == 1
    assert lake.sql(f"select count(*) n from {database}.t").to_pandas()["n"].tolist() == [1]
    words = ("-m", proxy.uri, "-w", place)
    for command in (("sync", "check"), ("sync", "plan"), ("sync", "status"), ("lock", "show")):
        answer = run(*command, f"{database}.t", *words)
        assert (answer.exit_code, command) == (0, command), answer.output
    listed = run("sync", "status", "--all", *words, "-d", database, "-o", "json")
    assert [row["commits"] for row in json.loads(listed.stdout)] == [0]
    assert proxy.seen == []


def test_what_has_to_write_names_who_refuses(
    place: str, proxy: RefusingProxy, reader: Metastore, database: str
) -> None:
    lake = Lake(reader, place, database=database)
    with pytest.raises(SyncError, match=REFUSAL):
        lake.create_table("new", rows(1), key="id")
    assert not [path for path in Path(place).rglob("*") if "new" in path.parts and path.is_file()]
    with pytest.raises(CatalogError, match=REFUSAL):
        lake.rename_table("t", "other")
    with pytest.raises(CatalogError, match=REFUSAL):
        lake.drop_table("t", purge=True)
    assert lake.table("t").read().count() == 1, "nothing was purged"
    repaired = run(
        "sync", "apply", str(lake.table("t").path), "-t", "again", "-d", database, "-m", proxy.uri, "-w", place
    )
    assert (repaired.exit_code, REFUSAL in repaired.stderr) == (1, True)


def test_without_its_locks_nothing_is_written(place: str, metastore: Metastore, database: str) -> None:
    with (
        RefusingProxy(metastore.uri, LOCKS) as proxy,
        Metastore.connect(proxy.uri, timeout=30, attempts=2) as client,
    ):
        table = Lake(client, place, database=database).table("t")
        with pytest.raises((LockError, CatalogError), match="lock") as error:
            table.upsert(rows(2))
        assert REFUSAL in str(error.value)
        assert table.read().count() == 1
        assert run("lock", "doctor", "-m", proxy.uri).exit_code == 1
        # A sync can do without: the marker that it expects stands for its turn.
        assert not table.sync().changed
