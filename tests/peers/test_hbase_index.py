"""The HBASE index in a real HBase, which skep reaches by its Thrift gateway, and JVM Hudi by ZooKeeper: each finds the
keys that the other has written, and both read one table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from engine_launch import ProcessLauncher, Running, free_port
from engine_services import SERVICES, ServiceMissing
from engine_timings import TIMINGS
from peer_arrow import arrow_table
from peer_rows import Row, Source
from peer_shared import META, Shape, Shared, agree, peer_marks

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.errors import OptionError, StorageError
from skep_format.instant_time import InstantTime
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.table import HudiTable
from skep_table.write.indexes.hbase_gateway import Entry, Gateway
from skep_table.write.local import LocalWriter

happybase = pytest.importorskip("happybase")

Start = Callable[[str], Jvm]
RELEASE = "0.15.0"
COW = Shape("keys_in_hbase", partitions=("north", "south"))
MOR = replace(COW, name="mor_keys_in_hbase", type=TableType.MERGE_ON_READ)
MOVES = {"hbase__index__update__partition__path": "true"}
REPAIRS = {"index__hbase__rollback__sync": "true"}


@dataclass(frozen=True)
class HBase:
    """The ports of a running one, both of 127.0.0.1."""

    gateway: int
    zookeeper: int

    def make(self, table: str, family: str = "_s") -> None:
        with contextlib.closing(happybase.Connection("127.0.0.1", self.gateway)) as connection:
            connection.create_table(table, {family: {}})

    def entries(self, table: str) -> dict[str, Entry | None]:
        with contextlib.closing(happybase.Connection("127.0.0.1", self.gateway)) as connection:
            return {key.decode(): Entry.of(cells) for key, cells in connection.table(table).scan()}


@pytest.fixture(scope="module")
def hbase(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """ZooKeeper, master, region server and Thrift gateway in one process, for the tests of this module."""
    running, zookeeper = list[Running](), free_port()
    logs, timings = Path(pytestconfig.cache.mkdir("engines")), pytestconfig.stash[TIMINGS]
    launcher = ProcessLauncher(tmp_path_factory.mktemp("hbase"), logs, timings, running)

    def ready(port: int) -> None:
        with contextlib.closing(happybase.Connection("127.0.0.1", port, timeout=20_000)) as connection:
            connection.tables()

    try:
        started = launcher.start(SERVICES["hbase-2.6.1"], ready, {"ZOOKEEPER": str(zookeeper)})
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    yield HBase(started.port, zookeeper)
    started.stop()


class Both:
    """A table that both write by one HBase table of keys."""

    def __init__(self, path: Path, shape: Shape, hbase: HBase, hudi: Jvm, *, is_thorough: bool) -> None:
        self.shared, self.hbase, self.hudi, self.name = Shared.make(path, shape), hbase, hudi, shape.name
        self.is_thorough = is_thorough
        self.source = self.shared.source
        hbase.make(self.name)

    def writer(self, *, storage: LocalStorage | None = None, **more: str) -> LocalWriter:
        table = self.shared.open() if storage is None else HudiTable.open(storage)
        return LocalWriter(table.with_context(options=options(self.hbase, self.name, **more)))

    def ours(self, operation: str, rows: list[Row], **more: str) -> None:
        self.shared.ours(operation, rows, writer=self.writer(**more))
        self.agree()

    def theirs(self, operation: str, rows: list[Row], **more: str) -> None:
        index = {
            "index__type": "HBASE",
            "index__hbase__zkquorum": "127.0.0.1",
            "index__hbase__zkport": str(self.hbase.zookeeper),
            "index__hbase__zknode__path": "/hbase",
            "index__hbase__table": self.name,
            "index__hbase__put__batch__size": "1000",
        }
        self.shared.theirs(self.hudi, operation, rows, **index, **more)
        self.agree()

    def agree(self) -> None:
        """The rows that must be there are read, and the entry of each key leads to where it is."""
        if self.is_thorough:
            agree(self.shared, self.hudi)
        else:
            assert not (found := difference(self.shared.read(), self.shared.expected(), without=META)), found
        table, entries = self.shared.open(), self.hbase.entries(self.name)
        for row in self.shared.read():
            entry = entries[row["_hoodie_record_key"]]
            assert entry is not None
            assert table.timeline.is_completed_or_archived(InstantTime(entry.commit))
            assert (entry.partition, entry.group) == (row["_hoodie_partition_path"], _group_of(row)), row


def moved(source: Source, count: int) -> list[Row]:
    """Rows for keys written before, in the other partition."""
    rows = source.again(count)
    for row in rows:  # the source has these, too
        row["part"] = "south" if row["part"] == "north" else "north"
    return rows


def places(entries: dict[str, Entry | None]) -> dict[str, tuple[str, str] | None]:
    """By key, partition and file group."""
    return {key: entry and (entry.partition, entry.group) for key, entry in entries.items()}


def _group_of(row: Row) -> str:
    """Of a base file's name, or a log file's own form of it, which is the group's id."""
    return str(row["_hoodie_file_name"]).partition("_")[0]


def options(hbase: HBase, table: str, **more: Any) -> Options:
    given = {"index__type": "HBASE", "index__hbase__table": table, **more}
    return Options(
        {
            "skep.hbase.thrift": f"127.0.0.1:{hbase.gateway}",
            **{f"hoodie.{key.replace('__', '.')}": value for key, value in given.items()},
        }
    )


class Incomplete(LocalStorage):
    """No write on it completes."""

    def create_exclusive(self, path: str, data: bytes, **more: Any) -> None:
        if path.endswith("commit"):
            raise StorageError(f"{path} can't be created", path=path, call="create_exclusive")
        super().create_exclusive(path, data, **more)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(COW, marks=peer_marks(RELEASE, sampled=True)),
        pytest.param(MOR, marks=peer_marks(RELEASE, sampled=False)),
    ],
    ids=str,
)
def test_each_finds_the_keys_of_the_other(
    shape: Shape, hbase: HBase, jvm: Start, tmp_path: Path, is_thorough: bool
) -> None:
    both = Both(tmp_path / "shared", shape, hbase, jvm(RELEASE), is_thorough=is_thorough)
    source = both.source
    both.ours("insert", source.new(12))
    both.theirs("upsert", source.mixed(6, 6))
    both.ours("upsert", source.mixed(8, 4))
    # rows that move: each deletes what the other has written
    both.ours("upsert", moved(source, 5), **MOVES)
    both.theirs("upsert", moved(source, 5), **MOVES)
    # keys that the one deletes come back by the other
    deleted = source.again(3)
    both.theirs("delete", deleted)
    both.ours("upsert", deleted)
    deleted = source.again(3)
    both.ours("delete", deleted)
    both.theirs("upsert", deleted)
    # a write that failed, whose entries are replaced before JVM Hudi could take them for those of an old commit
    entries, born = hbase.entries(both.name), dict(source.born)
    rows = arrow_table([*moved(source, 2), *source.new(2)], source.ddl())
    source.born = born
    failing = both.writer(storage=Incomplete(str(both.shared.path)), **MOVES)
    with pytest.raises(StorageError, match="can't be created"):
        failing.upsert(rows)
    assert len(places(hbase.entries(both.name)).items() - places(entries).items()) == 4
    both.ours("upsert", source.again(2), **REPAIRS)
    assert places(hbase.entries(both.name)) == places(entries)
    both.theirs("upsert", source.mixed(4, 2))
    agree(both.shared, both.hudi)


@pytest.mark.peer(f"hudi-{RELEASE}")  # beside the other test, so that HBase is started once
def test_what_the_gateway_answers_is_what_the_index_expects(hbase: HBase) -> None:
    """Batches, rates by the number of region servers, a scan by commits, changes at a time, errors."""
    hbase.make("plain")
    gateway = Gateway.of(options(hbase, "plain", index__hbase__put__batch__size__autocompute=True))
    gateway.check()
    keys = [f"k{number:03}" for number in range(250)]
    first, second = Entry("20260101000000000", "a", "p"), Entry("20260102000000000", "b", "ü/x")
    gateway.put(keys, first)
    gateway.put(keys[:130], second)
    assert list(gateway.get(["missing", *keys])) == [(at + 1, second if at < 130 else first) for at in range(250)]
    found = list(gateway.of_commits([second.commit, "20270101000000000"], 100))
    assert [keys for keys, _ in found] == [keys[:100], keys[100:130]]
    later = Entry("20260103000000000", "c", "p")
    gateway.put(keys[1:2], later)
    for keys_found, time in found:
        gateway.replace({key: first if key < "k100" else None for key in keys_found}, time)
    assert hbase.entries("plain") == dict.fromkeys([*keys[:100], *keys[130:]], first) | {keys[1]: later}
    assert not list(gateway.of_commits([second.commit], 100))
    hbase.make("other", "info")
    with pytest.raises(OptionError, match="has no column family _s in table other"):
        Gateway.of(options(hbase, "other")).check()
    with pytest.raises(StorageError, match=r"table other: .*NoSuchColumnFamilyException"):
        Gateway.of(options(hbase, "other")).put(["a"], first)
    with pytest.raises(StorageError, match=r"table none: .*none"):
        Gateway.of(options(hbase, "none")).put(["a"], first)
