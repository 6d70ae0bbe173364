"""Entries of an embedded metastore that was stopped: as the server has them, and never from before a change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ttypes

from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore, EmbeddedWhenNeeded, running
from skep_catalog.entities import Column, Database, StorageDescriptor, TableEntry
from skep_catalog.kept_entries import KeptEntries, NotKeptError, forget, keep
from skep_format.clock import within
from skep_format.errors import NoSuchTableError

pytestmark = [pytest.mark.metastore, pytest.mark.engine("metastore")]

DATABASES = ("default", "empty", "shop", "under_score_1")
CALLS: dict[str, Callable[[Any], Any]] = {
    "get_all_databases": lambda client: client.get_all_databases(),
    **{f"get_database {name}": lambda client, name=name: client.get_database(name) for name in (*DATABASES, "SHOP")},
    **{f"tables {name}": lambda client, name=name: client.get_all_tables(name) for name in (*DATABASES, "Shop")},
    **{
        f"{database}.{name}": lambda client, database=database, name=name: client.get_table_req(
            ttypes.GetTableRequest(dbName=database, tblName=name)
        )
        for database in ("shop", "SHOP", "under_score_1", "nowhere")
        for name in ("orders", "Orders", "v", "1__x", "none", "wide")
    },
    "get_table": lambda client: client.get_table("shop", "orders"),
    **{
        f"several of {database}: {','.join(names)}": lambda client, database=database, names=names: (
            client.get_table_objects_by_name_req(ttypes.GetTablesRequest(dbName=database, tblNames=names))
        )
        for database, names in [
            ("shop", ["1__x", "orders", "t_ro", "t_rt", "v", "wide"]),
            ("shop", ["V", "orders", "none", "orders"]),
            ("empty", ["orders"]),
            ("under_score_1", ["orders"]),
        ]
    },
}
"""Each call that is answered from what was kept."""


def answer(call: Callable[[Any], Any], client: object) -> object:
    try:
        found = call(client)
    except ttypes.NoSuchObjectException as error:
        return "refused", error.message
    return found


@dataclass(frozen=True)
class Stopped:
    """A metastore that was stopped in order."""

    warehouse: Path
    uri: str
    contents: bytes
    """Of the file, as the server has left them."""
    answers: dict[str, object]
    """The server's."""

    @property
    def folder(self) -> Path:
        return self.warehouse / ".metastore"

    def use(self) -> EmbeddedWhenNeeded:
        return EmbeddedWhenNeeded(str(self.warehouse))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    warehouse = tmp_path_factory.mktemp("kept")
    columns = (Column("a", "int", "of “a”"), Column("b", "struct<x:array<string>,y:decimal(10,2)>"))
    storage = StorageDescriptor(columns, location="file:///nowhere/a b/ü", parameters={"k": "v"})
    with EmbeddedMetastore.start_or_join(warehouse) as server, Metastore.connect(server.uri) as client:
        for name in ("under_score_1", "shop", "empty"):
            client.create_database(Database(name, f"of {name}", f"file:///nowhere/{name}.db", {"p": "q"}))
        for database, name in [("shop", "orders"), ("shop", "1__x"), ("under_score_1", "orders")]:
            client.create_table(
                TableEntry(
                    database,
                    name,
                    storage,
                    (Column("day", "date"),),
                    {"x": "ä\n", "EXTERNAL": "TRUE"},
                    "EXTERNAL_TABLE",
                )
            )
        client.create_table(
            TableEntry("shop", "v", StorageDescriptor(columns), view_query="SELECT 1", view_written="x")
        )
        wide = StorageDescriptor(tuple(Column(f"c{number}", "string") for number in range(300)))
        for name in ("wide", "t_rt", "t_ro"):
            client.create_table(TableEntry("shop", name, wide, owner="somebody"))
        call = client._connections.call
        answers = {name: call(name, lambda raw, each=each: answer(each, raw)) for name, each in CALLS.items()}
    contents = (warehouse / ".metastore" / "entries").read_bytes().split(b"\n", 3)[3]
    return Stopped(warehouse, server.uri, contents, answers)


@pytest.fixture
def whole(stopped: Stopped) -> Iterator[Stopped]:
    """The same, with what was kept as its server left it, whatever a test has done to the files."""
    forget(stopped.folder)
    (stopped.folder / "entries.left").write_bytes(stopped.contents)
    keep(stopped.folder, stopped.uri)
    assert stopped.use().kept() is not None
    yield stopped
    assert running(stopped.folder) is None


@pytest.mark.parametrize("name", CALLS)
def test_each_answer_is_the_servers(name: str, whole: Stopped) -> None:
    kept = whole.use().kept()
    assert answer(CALLS[name], kept) == whole.answers[name]


def test_a_client_gets_them_without_a_server(whole: Stopped) -> None:
    use = whole.use()
    use.begin(only_reads=True)
    with Metastore.connect(None, revived=use.address, kept=use.kept) as client, client.own_connection() as other:
        assert tuple(client.databases()) == tuple(other.databases()) == DATABASES
        assert {entry.name for entry in client.tables_of("shop")} == {"orders", "1__x", "v", "wide", "t_ro", "t_rt"}
        assert client.find_table("shop", "none") is None
        with pytest.raises(NoSuchTableError, match=r"refused get_table_req: shop\.none table not found") as raised:
            client.table("shop", "none")
        assert raised.value.fields["uri"] == whole.uri
        assert client.calls == 0
    assert use.use is None
    use.stop()
    assert use.kept() is None, "of a lake that was closed"


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_partition_names("shop", "orders", -1),
        lambda client: client.get_database("nowhere"),
        lambda client: client.get_all_tables("nowhere"),
        lambda client: client.get_table("shop", " orders"),
        lambda client: client.get_table("shop", "örders"),
        lambda client: client.show_locks(None),
    ],
)
def test_others_are_the_servers(call: Callable[[Any], Any], whole: Stopped) -> None:
    with pytest.raises(NotKeptError):
        call(whole.use().kept())


def touch(folder: Path) -> None:
    os.utime(folder / "derby" / "service.properties")


def grow(folder: Path) -> None:
    before = (folder / "derby" / "seg0").stat()
    (folder / "derby" / "seg0" / "new").touch()
    (folder / "derby" / "seg0" / "new").unlink()
    os.utime(folder / "derby" / "seg0", ns=(before.st_atime_ns, before.st_mtime_ns))  # which its change has not


def cut(folder: Path) -> None:
    (folder / "entries").write_bytes((folder / "entries").read_bytes()[:-1])


def turn(folder: Path) -> None:
    found = bytearray((folder / "entries").read_bytes())
    found[-100] ^= 1
    (folder / "entries").write_bytes(found)


def spoil(folder: Path) -> None:
    (folder / "entries").write_bytes(b"\xff\x00\n" * 50)


def half_way(folder: Path) -> None:
    """The process that stopped the server was killed before it could complete the file."""
    (folder / "entries").rename(folder / "entries.new")


@pytest.mark.parametrize("change", [touch, grow, cut, turn, spoil, half_way, forget])
def test_nothing_is_answered_from_a_file_that_does_not_fit(change: Callable[[Path], None], whole: Stopped) -> None:
    change(whole.folder)
    assert whole.use().kept() is None


def test_a_change_counts_from_the_next_answer_on(whole: Stopped) -> None:
    use = whole.use()
    assert use.kept() is not None
    touch(whole.folder)
    assert use.kept() is None
    (whole.folder / "entries.left").write_bytes(whole.contents)
    keep(whole.folder, whole.uri)
    assert use.kept() is None, "for good"


def test_nothing_is_answered_while_a_server_is_starting(whole: Stopped) -> None:
    program = "import fcntl, sys; file = open(sys.argv[1], 'ab'); fcntl.lockf(file, 2); print(flush=True); input()"
    use = whole.use()
    assert use.kept() is not None
    command = [sys.executable, "-c", program, whole.folder / "server.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert use.kept() is None
        other.kill()


def test_nothing_is_kept_of_a_database_that_is_open_or_was_killed(whole: Stopped) -> None:
    forget(whole.folder)
    lock = whole.folder / "derby" / "db.lck"
    lock.touch()
    try:
        (whole.folder / "entries.left").write_bytes(whole.contents)
        keep(whole.folder, whole.uri)
        assert KeptEntries.of(whole.folder) is None
    finally:
        lock.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_another_user_gets_none(whole: Stopped) -> None:
    opened = [each for each in whole.folder.parents if "pytest-of-" in str(each)]
    modes = [each.stat().st_mode for each in opened]
    for each in opened:
        each.chmod(0o755)
    os.seteuid(65534)
    try:
        assert KeptEntries.of(whole.folder) is not None
        assert whole.use().kept() is None
    finally:
        os.seteuid(0)
        for each, mode in zip(opened, modes, strict=True):
            each.chmod(mode)


def test_a_change_starts_the_server_and_one_that_is_killed_leaves_nothing(whole: Stopped) -> None:
    use, reader = whole.use(), whole.use()
    with Metastore.connect(None, revived=use.address, kept=use.kept) as client:
        assert client.find_table("shop", "later") is None
        assert reader.kept() is not None
        client.create_table(TableEntry("shop", "later", StorageDescriptor((Column("a", "int"),))))
        assert use.use is not None
        assert client.find_table("shop", "later") is not None
        assert use.kept() is None
        assert reader.kept() is None
        assert not (whole.folder / "entries").exists()
        os.kill(use.use.server.pid, signal.SIGKILL)
        assert any(not use.use.is_alive() for _ in within(20, 0.02))
    use.stop()
    assert whole.use().kept() is None
    # What the module's other tests have: the entry is of a database that was opened since.
    (whole.folder / "derby" / "db.lck").unlink(missing_ok=True)
