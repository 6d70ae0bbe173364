"""The HBASE index against a Thrift gateway: a server of HBase's own interface, with a table in memory behind it."""

from __future__ import annotations

import itertools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from socket import create_connection as connect
from typing import Any

import pyarrow as pa
import pytest

from skep_format.clock import SystemClock
from skep_format.errors import OptionError, StorageError, TableMismatchError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.options import IneffectiveOptionWarning, Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.services.cleaning.archive import archive
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.indexes.hbase_gateway import Entry, Gateway
from skep_table.write.local import LocalWriter

happybase = pytest.importorskip("happybase")
thriftpy2 = pytest.importorskip("thriftpy2")


class Handler:
    """The calls that the index makes. `fails` is called with the name of each first."""

    def __init__(self, interface: Any) -> None:
        self._interface = interface
        self.rows: dict[bytes, dict[bytes, bytes]] = {}
        self.times: dict[bytes, int] = {}
        self.calls: list[tuple[str, int]] = []
        self.servers = (b"one", b"two", b"one")
        self.family = b"_s:"
        self.fails: Callable[[str], object] = lambda _: None
        self.error = interface.IOError
        self._found: list[Any] = []

    def getTableNames(self) -> list[bytes]:
        return [b"keys"]

    def getColumnDescriptors(self, _table: bytes) -> dict[bytes, Any]:
        return {self.family: self._interface.ColumnDescriptor(name=self.family)}

    def getTableRegions(self, _table: bytes) -> list[Any]:
        return [self._interface.TRegionInfo(serverName=name, port=1) for name in self.servers]

    def getRowsWithColumns(self, _table: bytes, rows: list[bytes], columns: list[bytes], _attributes: Any) -> list[Any]:
        self.calls.append(("get", len(rows)))
        self.fails("get")
        wanted = {_bytes(column) for column in columns}
        return [self._result(_bytes(row), wanted) for row in rows if _bytes(row) in self.rows]

    def mutateRows(self, _table: bytes, batches: list[Any], _attributes: Any) -> None:
        self.calls.append(("put", len(batches)))
        self.fails("put")
        self._mutate(batches, max(self.times.values(), default=0) + 1)

    def mutateRowsTs(self, _table: bytes, batches: list[Any], time: int, _attributes: Any) -> None:
        self.fails("replace")
        self._mutate(batches, time)

    def _mutate(self, batches: list[Any], time: int) -> None:
        for batch in batches:
            key = _bytes(batch.row)
            if self.times.get(key, 0) > time:
                continue
            entry = self.rows.setdefault(key, {})
            for each in batch.mutations:
                if each.isDelete:
                    entry.pop(_bytes(each.column), None)
                else:
                    entry[_bytes(each.column)] = _bytes(each.value)
            self.times[key] = time
            if not entry:
                del self.rows[key]

    def scannerOpenWithScan(self, _table: bytes, scan: Any, _attributes: Any) -> int:
        commits = set(re.findall(rb"binary:(\d+)'", _bytes(scan.filterString)))
        self._found = [self._result(key) for key, cells in self.rows.items() if cells.get(b"_s:commit_ts") in commits]
        return 1

    def scannerGetList(self, _scanner: int, count: int) -> list[Any]:
        found, self._found = self._found[:count], self._found[count:]
        return found

    def scannerClose(self, _scanner: int) -> None:
        """Nothing is held."""

    def _result(self, key: bytes, wanted: set[bytes] | None = None) -> Any:
        cells = {
            name: self._interface.TCell(value=value, timestamp=self.times.get(key, 0))
            for name, value in self.rows[key].items()
            if wanted is None or name in wanted
        }
        return self._interface.TRowResult(row=key, columns=cells)

    def entry(self, key: str) -> tuple[str, str, str]:
        """Commit, file group, partition."""
        found = self.rows[key.encode()]
        commit, group, partition = (found[b"_s:" + name] for name in (b"commit_ts", b"file_name", b"partition_path"))
        return commit.decode(), group.decode(), partition.decode()


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@pytest.fixture
def gateway() -> Iterator[tuple[str, Handler]]:
    from thriftpy2.server import TThreadedServer
    from thriftpy2.thrift import TProcessor
    from thriftpy2.transport import TServerSocket

    file = Path(happybase.__file__).with_name("Hbase.thrift")
    interface = thriftpy2.load(str(file), module_name="hbase_gateway_thrift")
    handler = Handler(interface)
    socket = TServerSocket("127.0.0.1", 0)
    socket.listen()
    port = socket.sock.getsockname()[1]
    socket.listen = lambda: None
    server = TThreadedServer(TProcessor(interface.Hbase, handler), socket, daemon=True)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{port}", handler
    server.close()
    connect(("127.0.0.1", port)).close()  # it looks whether it is closed after each connection
    thread.join()
    socket.sock.close()


SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=request.param
    )
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


def rows(*values: tuple[str, str, int, int]) -> pa.Table:
    columns: list[Any] = list(zip(*values, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def writer(table: HudiTable, address: str, **more: Any) -> LocalWriter:
    given = {
        "hoodie.index.type": "HBASE",
        "hoodie.index.hbase.table": "keys",
        "skep.hbase.thrift": address,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return LocalWriter(table.with_context(options=Options(given)))


def content(table: HudiTable) -> list[tuple[str, str, int]]:
    found = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["_hoodie_partition_path"], row["v"]) for row in found)


MOVES = {"hoodie__hbase__index__update__partition__path": True}


def test_new_keys_are_stored_and_found_again(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    first = writer(table, address).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 2)))
    (stat,) = [stat for stat in first.metadata.stats if stat.partition_path == "p"]
    assert hbase.entry("a") == (first.instant.requested_time, stat.file_id, "p")
    result = writer(table, address).upsert(rows(("a", "p", 2, 3), ("c", "p", 1, 4)))
    assert (result.updated, result.inserted) == (1, 1)
    assert content(table) == [("a", "p", 3), ("b", "q", 2), ("c", "p", 4)]
    assert hbase.entry("a")[0] == first.instant.requested_time, "a key that is updated keeps its entry"
    assert hbase.entry("c")[0] == result.instant.requested_time


def test_keys_stay_in_their_partition_or_move(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    writer(table, address).insert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)))
    writer(table, address).upsert(rows(("a", "q", 2, 2)))
    assert content(table) == [("a", "p", 2), ("b", "p", 1)]
    writer(table, address, **MOVES).upsert(rows(("a", "q", 3, 3)))
    assert content(table) == [("a", "q", 3), ("b", "p", 1)]
    assert hbase.entry("a")[2] == "q"
    writer(table, address, **MOVES).upsert(rows(("a", "q", 4, 4)))
    assert content(table) == [("a", "q", 4), ("b", "p", 1)]


def test_an_entry_of_a_write_that_failed_does_not_count(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    first = writer(table, address).insert(rows(("a", "p", 1, 1)))
    group = hbase.entry("a")[1]
    hbase.rows[b"a"][b"_s:commit_ts"] = b"20991231235959999"  # a moved key, stored before its commit failed
    hbase.rows[b"a"][b"_s:partition_path"] = b"elsewhere"
    hbase.rows[b"new"] = dict(hbase.rows[b"a"])
    writer(table, address, **MOVES).upsert(rows(("a", "p", 2, 2), ("new", "p", 1, 3)))
    assert content(table) == [("a", "p", 2), ("new", "p", 3)]
    assert group in {stat.file_id for stat in first.metadata.stats}


def test_an_entry_of_a_group_that_is_missing_does_not_count(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    writer(table, address).insert(rows(("a", "p", 1, 1)))
    overwrite = writer(table, address).insert_overwrite(rows(("b", "p", 1, 2)))
    writer(table, address).upsert(rows(("a", "p", 2, 3), ("b", "p", 2, 4)))
    assert content(table) == [("a", "p", 3), ("b", "p", 4)]
    assert hbase.entry("b")[0] == overwrite.instant.requested_time


def test_a_deleted_key_can_come_back(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, _ = gateway
    writer(table, address).bulk_insert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)))
    writer(table, address).delete(pa.table({"id": ["a"], "part": ["anywhere"]}))
    writer(table, address).upsert(rows(("a", "p", 2, 2)))
    assert content(table) == [("a", "p", 2), ("b", "p", 1)]


class Clock(SystemClock):
    """Sleeps take no time, and are counted."""

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def gateway_of(address: str, **more: Any) -> Gateway:
    given = {"skep.hbase.thrift": address, "hoodie.index.hbase.table": "keys"}
    given |= {f"hoodie.index.hbase.{key.replace('__', '.')}": value for key, value in more.items()}
    return replace(Gateway.of(Options(given)), clock=Clock())


def slept(gateway: Gateway) -> float:
    assert isinstance(gateway.clock, Clock)
    return gateway.clock.slept


KEYS = [f"k{at}" for at in range(10)]
ENTRY = Entry("20260101000000000", "group", "p")


def test_keys_are_looked_up_and_stored_in_batches(gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    batches = {"get__batch__size": 4, "put__batch__size": 3}
    opened = gateway_of(address, **batches)
    opened.put(KEYS, ENTRY)
    assert [size for call, size in hbase.calls if call == "put"] == [3, 3, 3, 1]
    hbase.calls.clear()
    assert list(opened.get(["missing", *KEYS])) == [(at + 1, ENTRY) for at in range(10)]
    assert [size for call, size in hbase.calls if call == "get"] == [4, 4, 3]


def test_batches_that_are_given_are_rates_of_a_task(gateway: tuple[str, Handler]) -> None:
    """Puts a second, and ten times as many keys that are looked up, as in Hudi."""
    address, _ = gateway
    opened = gateway_of(address, put__batch__size=3)
    opened.put(KEYS, ENTRY)
    assert slept(opened) == 3
    assert list(opened.get(KEYS * 20))
    assert slept(opened) == 3
    opened = gateway_of(address, get__batch__size=4)
    assert len(list(opened.get(KEYS * 20))) == 200
    assert slept(opened) == 4
    opened.put(KEYS, ENTRY)
    assert slept(opened) == 4


def test_rates_that_follow_from_the_region_servers_are_shared_by_the_tasks(gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    rates = {"put__batch__size__autocompute": "true", "max__qps__per__region__server": 20, "qps__fraction": 0.25}
    opened = gateway_of(address, **rates, put__batch__size=5)
    for _ in range(3):
        opened.put(KEYS, ENTRY)
    assert slept(opened) == 2  # two servers of three regions, 20 puts each, a quarter of that
    assert [size for call, size in hbase.calls if call == "put"] == [5] * 6


def test_options_that_can_not_be_honoured_are_refused_or_warned_about_by_name() -> None:
    for key, value in {"security.authentication": "kerberos", "qps.allocator.class": "com.example.Own"}.items():
        with pytest.raises(UnsupportedError, match=rf"hoodie\.index\.hbase\.{key} is known"):
            Options({f"hoodie.index.hbase.{key}": value}).check()
    Options({"hoodie.index.hbase.security.authentication": "simple"}).check()
    for key in ("zkquorum", "zkport", "zknode.path", "kerberos.user.keytab", "dynamic_qps", "sleep.ms.for.put.batch"):
        with pytest.warns(IneffectiveOptionWarning, match=rf"hoodie\.index\.hbase\.{key} has no effect"):
            Options({f"hoodie.index.hbase.{key}": "2"}).check()
    with pytest.raises(OptionError, match="above 0, up to 1"):
        gateway_of("host", put__batch__size__autocompute=True, qps__fraction=2)


@pytest.mark.parametrize(
    ("address", "found"), [("", "needs skep.hbase.thrift"), (":1", "not host:port"), ("h:x", "'h:x'")]
)
def test_an_address_that_is_none(address: str, found: str) -> None:
    with pytest.raises(OptionError, match=found):
        Gateway.of(Options({"skep.hbase.thrift": address, "hoodie.index.hbase.zkquorum": "h"}))


def test_a_gateway_that_is_not_there_stops_the_write(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    with pytest.raises(StorageError, match=r"Thrift gateway at 127\.0\.0\.1:9"):
        writer(table, "127.0.0.1:9").upsert(rows(("a", "p", 1, 1)))
    with pytest.raises(OptionError, match="has no table other"):
        writer(table, address, hoodie__index__hbase__table="other").upsert(rows(("a", "p", 1, 1)))
    hbase.family = b"info:"
    with pytest.raises(OptionError, match="has no column family _s in table keys"):
        writer(table, address).upsert(rows(("a", "p", 1, 1)))
    with pytest.raises(OptionError, match=r"needs hoodie\.index\.hbase\.table"):
        writer(table, address, hoodie__index__hbase__table="").upsert(rows(("a", "p", 1, 1)))
    assert content(table) == []
    assert not table.reload().timeline.pending().instants


@pytest.mark.parametrize("call", ["get", "put"])
@pytest.mark.parametrize("answer", [False, True], ids=["ends", "answers"])
def test_a_gateway_that_fails_in_the_middle_leaves_the_table_as_it_was(
    table: HudiTable, gateway: tuple[str, Handler], call: str, answer: bool
) -> None:
    """Its process ends, or it answers that a region server does not. Some entries are there, and do not count."""
    address, hbase = gateway
    batches = {"hoodie__index__hbase__get__batch__size": 1}
    first = writer(table, address).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    change = rows(("a", "q", 2, 2), ("c", "q", 2, 2), ("d", "p", 2, 2))
    counted = itertools.count()

    def fail(name: str) -> None:
        if name == call and next(counted):
            raise hbase.error("region is not online") if answer else ConnectionError

    hbase.fails = fail
    with pytest.raises(StorageError, match=r"Thrift gateway at 127\.0\.0\.1:\d+, table keys: .+"):
        writer(table.reload(), address, **MOVES, **batches).upsert(change)
    hbase.fails = lambda _: None
    assert content(table) == [("a", "p", 1), ("b", "q", 1)]
    left = [key for key in map(bytes.decode, hbase.rows) if hbase.entry(key)[0] != first.instant.requested_time]
    assert left in ([["d"], ["a", "c"]] if call == "put" else [[]])
    writer(table.reload(), address, **MOVES).upsert(change)
    assert content(table) == [("a", "q", 2), ("b", "q", 1), ("c", "q", 2), ("d", "p", 2)]


def test_a_row_of_others_is_no_entry(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    writer(table, address).insert(rows(("a", "p", 1, 1)))
    del hbase.rows[b"a"][b"_s:partition_path"]
    hbase.rows[b"c"] = dict.fromkeys((b"_s:commit_ts", b"_s:file_name", b"_s:partition_path"), b"\xff")
    hbase.rows[b"b"] = {b"_s:commit_ts": b"1"}
    writer(table.reload(), address).upsert(rows(*((key, "p", 2, 2) for key in "abc")))
    assert content(table) == [("a", "p", 2), ("b", "p", 2), ("c", "p", 2)]


REPAIRS = {"hoodie__index__hbase__rollback__sync": True}


def test_entries_of_a_write_that_failed_are_replaced_where_that_is_wanted(
    table: HudiTable, gateway: tuple[str, Handler]
) -> None:
    """By where the keys are, or by none; those that another writer put since stay. It is done once."""
    address, hbase = gateway
    first = writer(table, address).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1), ("x", "p", 1, 1)))
    before = {key: hbase.entry(key) for key in ("a", "b", "x")}
    failing = HudiTable.open(Incomplete(table.storage.root))
    with pytest.raises(StorageError, match="can't be created"):
        writer(failing, address, **MOVES).upsert(rows(("a", "q", 2, 2), ("x", "q", 2, 2), ("new", "q", 2, 2)))
    failed = hbase.entry("a")[0]
    assert {hbase.entry(key)[0] for key in ("a", "x", "new")} == {failed}
    writer(table.reload(), address).upsert(rows(("b", "q", 2, 2)))
    assert hbase.entry("a")[0] == failed, "the default leaves them"
    hbase.fails = lambda call: (_ for _ in ()).throw(ConnectionError) if call == "replace" else None
    with pytest.raises(StorageError, match="Thrift gateway"):
        writer(table.reload(), address, **REPAIRS).upsert(rows(("b", "q", 3, 3)))
    hbase.fails = lambda _: None
    writer(table.reload(), address, **REPAIRS).upsert(rows(("b", "q", 3, 3)))
    assert {key: hbase.entry(key) for key in map(bytes.decode, hbase.rows)} == before
    assert failed != first.instant.requested_time
    sign = Path(table.storage.root) / ".hoodie/.skep_index_entries" / failed
    assert sign.read_bytes()
    hbase.scannerOpenWithScan = None  # type: ignore[assignment,method-assign]
    writer(table.reload(), address, **REPAIRS, **MOVES).upsert(rows(("a", "q", 4, 4)))
    assert content(table) == [("a", "q", 4), ("b", "q", 3), ("x", "p", 1)]


def test_entries_of_a_write_that_goes_on_are_not_replaced(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    address, hbase = gateway
    writer(table, address).insert(rows(("b", "q", 1, 1)))
    seen: list[tuple[str, str, str]] = []

    class Beside(LocalStorage):
        """Another write is made before this one completes."""

        def create_exclusive(self, path: str, data: bytes, **more: Any) -> None:
            if path.endswith("commit") and not seen:
                seen.append(hbase.entry("a"))
                writer(HudiTable.open(self.root), address, **REPAIRS).upsert(rows(("b", "q", 2, 2)))
                seen.append(hbase.entry("a"))
            super().create_exclusive(path, data, **more)

    writer(HudiTable.open(Beside(table.storage.root)), address).upsert(rows(("a", "p", 1, 1)))
    assert seen[0] == seen[1] == hbase.entry("a")
    assert content(table) == [("a", "p", 1), ("b", "q", 2)]


class Incomplete(LocalStorage):
    """No write on it completes."""

    def create_exclusive(self, path: str, data: bytes, **more: Any) -> None:
        if path.endswith("commit"):
            raise StorageError(f"{path} can't be created", path=path, call="create_exclusive")
        super().create_exclusive(path, data, **more)


SMALL = {"hoodie.keep.max.commits": 4, "hoodie.keep.min.commits": 2, "hoodie.cleaner.commits.retained": 1}


def test_an_entry_of_a_write_that_failed_does_not_count_once_its_instant_could_be_archived(
    table: HudiTable, gateway: tuple[str, Handler]
) -> None:
    """Instants before the start of the timeline count as completed; this one, in a live group, never was."""
    address, hbase = gateway
    writer(table, address).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    failing = HudiTable.open(Incomplete(table.storage.root))
    with pytest.raises(StorageError, match="can't be created"):
        writer(failing, address, **MOVES).upsert(rows(("a", "q", 2, 2)))
    failed, group, partition = hbase.entry("a")
    assert partition == "q" == hbase.entry("b")[2]
    assert group == hbase.entry("b")[1]
    for number in range(6):
        writer(table.reload(), address).upsert(rows(("b", "q", 3 + number, number)))
        archive(table.reload().with_options(SMALL))
    assert table.reload().timeline.is_archived(InstantTime(failed))
    assert hbase.entry("a")[0] == failed
    writer(table.reload(), address, **MOVES).upsert(rows(("a", "q", 9, 9)))
    assert content(table) == [("a", "q", 9), ("b", "q", 5)]


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
def test_keys_in_logs_whose_entries_do_not_count_are_found(tmp_path: Path, gateway: tuple[str, Handler]) -> None:
    """JVM writers with this index put new keys into logs. A move that failed has replaced their entries."""
    address, hbase = gateway
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
    )
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    in_memory = table.with_context(options=Options({"hoodie.index.type": "INMEMORY"}))
    LocalWriter(in_memory).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    (stat, *_) = LocalWriter(in_memory.reload()).upsert(rows(("new", "p", 1, 1))).metadata.stats
    assert ".log." in str(stat.path)
    for key in (b"a", b"b", b"new"):
        hbase.rows[key] = Entry("20991231235959999", stat.file_id, "q").cells()
    writer(table.reload(), address, **MOVES).upsert(rows(("new", "p", 2, 2), ("a", "p", 2, 2)))
    assert content(table) == [("a", "p", 2), ("b", "q", 1), ("new", "p", 2)]


def signs(table: HudiTable) -> set[str]:
    return {path.name for path in (Path(table.storage.root) / ".hoodie/.skep_index_entries").iterdir()} - {"in_use"}


def test_the_sign_of_an_instant_ends_with_it(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    """One that a process left behind whose commit is complete is deleted by the next look-up."""
    address, hbase = gateway
    first = writer(table, address).bulk_insert(rows(("a", "p", 1, 1)))
    assert not signs(table)
    (Path(table.storage.root) / ".hoodie/.skep_index_entries" / first.instant.requested_time).touch()
    writer(table.reload(), address).upsert(rows(("a", "p", 2, 2)))
    assert content(table) == [("a", "p", 2)]
    assert not signs(table)
    assert hbase.entry("a")[0] == first.instant.requested_time


@pytest.mark.parametrize("repairs", [{}, REPAIRS], ids=["left", "replaced"])
def test_entries_of_a_commit_that_is_rolled_back_do_not_count_any_more(
    table: HudiTable, gateway: tuple[str, Handler], repairs: dict[str, Any]
) -> None:
    address, hbase = gateway
    writer(table, address).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    moved = writer(table.reload(), address, **MOVES).upsert(rows(("a", "q", 2, 2)))
    assert content(table) == [("a", "q", 2), ("b", "q", 1)]
    roll_back_instant(table.reload(), moved.instant.requested_time)
    assert content(table) == [("a", "p", 1), ("b", "q", 1)]
    assert signs(table) == {moved.instant.requested_time} == {hbase.entry("a")[0]}
    if repairs:
        writer(table.reload(), address, **repairs).upsert(rows(("b", "q", 2, 1)))
        assert (hbase.entry("a")[2], signs(table)) == ("p", {moved.instant.requested_time})
    writer(table.reload(), address, **MOVES).upsert(rows(("a", "q", 3, 3)))
    assert content(table) == [("a", "q", 3), ("b", "q", 1)]


def test_a_table_whose_keys_hbase_does_not_have_is_refused(table: HudiTable, gateway: tuple[str, Handler]) -> None:
    """All of its keys would count as new. One that another process filled is taken."""
    address, hbase = gateway
    first = LocalWriter(table).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    with pytest.raises(TableMismatchError, match="HBase table keys has no entry of key a"):
        writer(table.reload(), address).upsert(rows(("a", "p", 2, 2)))
    assert content(table) == [("a", "p", 1), ("b", "q", 1)]
    for stat, key in zip(first.metadata.stats, (b"a", b"b"), strict=True):
        names = b"_s:commit_ts", b"_s:file_name", b"_s:partition_path"
        values = first.instant.requested_time, stat.file_id, stat.partition_path
        hbase.rows[key] = dict(zip(names, (value.encode() for value in values), strict=True))
    writer(table.reload(), address).upsert(rows(("a", "p", 2, 2)))
    assert content(table) == [("a", "p", 2), ("b", "q", 1)]


class Dying(LocalStorage):
    """From its nth change on, nothing has any effect: the process was killed."""

    def __init__(self, root: str, at: int) -> None:
        super().__init__(root)
        self.left = at

    def change(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise StorageError("killed", path=self.root, call="any")


def _dying(name: str) -> Any:
    def method(self: Dying, *args: Any, **named: Any) -> Any:
        self.change()
        return getattr(LocalStorage, name)(self, *args, **named)

    return method


for _name in ("open_write", "sync", "create_exclusive", "replace_atomic", "delete", "delete_many", "delete_folder"):
    setattr(Dying, _name, _dying(_name))


@pytest.mark.slow
def test_a_kill_at_any_call_leaves_no_entry_that_counts_later(tmp_path: Path, gateway: tuple[str, Handler]) -> None:
    """A key is moved, and once more when the instant of the first move is older than the timeline."""
    address, hbase = gateway
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    seeded, folder = tmp_path / "seeded", tmp_path / "t"
    writer(create_table(LocalStorage(str(seeded)), spec), address).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    entries = {key: dict(entry) for key, entry in hbase.rows.items()}
    at, done = 1, False
    while not done:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        hbase.rows = {key: dict(entry) for key, entry in entries.items()}
        try:
            storage = Dying(str(folder), at)
            writer(HudiTable.open(storage), address, **MOVES).upsert(rows(("a", "q", 2, 2)))
            done = storage.left > 0
        except StorageError:
            pass
        first = hbase.entry("a")[0]
        for number in range(5):
            writer(HudiTable.open(folder), address).upsert(rows(("b", "q", 3 + number, number)))
            archive(HudiTable.open(folder, SMALL))
        table = HudiTable.open(folder)
        assert table.timeline.is_archived(InstantTime(first))
        writer(table, address, **MOVES).upsert(rows(("a", "q", 9, 9)))
        assert content(table) == [("a", "q", 9), ("b", "q", 4)], f"killed at change {at}"
        at += 1
    assert at > 10
