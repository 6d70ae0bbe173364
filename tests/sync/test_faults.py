"""The line to the metastore cut at each call in turn, before it is sent or before its answer arrives.

Whatever was done by then is well-formed, no marker is ahead of its partitions, and the next sync ends in sync.
"""

from __future__ import annotations

import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.metastore_proxy import close_sockets
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entries import MARKER
from skep_format.errors import CatalogError, SyncError
from skep_sync import sync as sync_module
from skep_sync.sync import plan_sync, sync_table
from skep_table.table import HudiTable

pytestmark = pytest.mark.metastore
Write = Callable[..., HudiTable]

GREETING = "set_ugi"  # each connection begins with it


@dataclass
class _Turn:
    """Whose turn it is on a connection, and whether its call is the one that is cut."""

    begins: bool = True
    is_cut: bool = False


class CuttingProxy:
    """Passes a metastore's calls on, until the chosen one: then the connection is dead until it is repaired."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._guard = threading.Lock()
        self._left: int | None = None
        self._after = False
        self.dead = False
        self.cut: str | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        close_sockets(self._listener)

    def cut_at(self, call: int, *, after: bool) -> None:
        """Cuts at the call of this number, counted from now; `after`: the server did it, and its answer is lost."""
        with self._guard:
            self._left, self._after, self.dead, self.cut = call, after, False, None

    def mend(self) -> None:
        with self._guard:
            self._left, self.dead = None, False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """A client sends nothing until it was answered: what comes first after an answer begins a call."""
        with client, suppress(OSError), socket.create_connection(self._target) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            turn = _Turn()
            back = threading.Thread(target=self._answers, args=(server, client, turn), daemon=True)
            back.start()
            try:
                while data := client.recv(1 << 16):
                    if turn.begins:
                        turn.begins = False
                        turn.is_cut = self._is_now(name_of(data))
                    if self.dead and not (turn.is_cut and self._after):
                        return
                    server.sendall(data)
            finally:
                close_sockets(server, client)
                back.join()

    def _answers(self, server: socket.socket, client: socket.socket, turn: _Turn) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if turn.is_cut or self.dead:
                    client.shutdown(socket.SHUT_RDWR)
                    return
                turn.begins = True
                client.sendall(data)

    def _is_now(self, name: str) -> bool:
        with self._guard:
            if self._left is None or self.dead or name == GREETING:
                return False
            self._left -= 1
            if self._left >= 0:
                return False
            self.dead, self.cut = True, name
            return True


def name_of(request: bytes) -> str:
    _, length = struct.unpack_from(">II", request)
    return request[8 : 8 + length].decode()


@pytest.fixture
def line(metastore_server: EmbeddedMetastore) -> Iterator[CuttingProxy]:
    with closing(CuttingProxy(metastore_server.server.port)) as proxy:
        yield proxy


@pytest.fixture
def states(write: Write, tmp_path: Path) -> tuple[Path, Path]:
    """A table after its first commit, and after one that brings a column and a partition and empties none."""
    table = write("t", 1, 2)
    folder = Path(table.storage.root)
    shutil.copytree(folder, tmp_path / "first")
    write("t", 3, day="2026-01-02", note="new")
    shutil.copytree(folder, tmp_path / "second")
    return tmp_path / "first", tmp_path / "second"


def free_locks(metastore: Metastore, database: str) -> None:
    """What a server does by itself when no heartbeat comes any more."""
    for lock in metastore.locks(database):
        metastore.unlock(lock.lock_id)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("first", "after", "calls"),
    [
        pytest.param(False, True, range(0, 60, 4), id="some calls, after"),
        pytest.param(True, False, range(60), id="first sync, before", marks=SLOW),
        pytest.param(True, True, range(60), id="first sync, after", marks=SLOW),
        pytest.param(False, False, range(60), id="next sync, before", marks=SLOW),
        pytest.param(False, True, range(60), id="next sync, after", marks=SLOW),
    ],
)
def test_cut_at_a_call(
    line: CuttingProxy,
    states: tuple[Path, Path],
    metastore: Metastore,
    database: str,
    tmp_path: Path,
    first: bool,
    after: bool,
    calls: range,
) -> None:
    cuts: list[str] = []
    place = tmp_path / "table"
    for call in calls:
        if not first:
            shutil.copytree(states[0], place)
            sync_table(HudiTable.open(place), metastore, database)
            shutil.rmtree(place)
        shutil.copytree(states[1], place)
        table = HudiTable.open(place)
        line.cut_at(call, after=after)
        with Metastore.connect(line.uri, attempts=1, timeout=60) as client:
            try:
                sync_table(table, client, database)
            except SyncError:
                if line.cut is None:
                    raise
        line.mend()
        free_locks(metastore, database)
        check_marker(table, metastore, database)
        sync_table(table, metastore, database)
        assert not plan_sync(table, metastore, database, full=True), f"after a cut at {line.cut}"
        metastore.drop_table(database, "t")
        shutil.rmtree(place)
        if line.cut is None:
            break
        cuts.append(line.cut)
    assert line.cut is None, "a sync ended at last"
    if calls.step > 1:
        return
    assert {"lock", "unlock", "alter_table_with_environment_context"} <= set(cuts)
    assert ("create_table" if first else "get_partitions_by_names") in cuts
    assert "add_partitions_req" in cuts


def check_marker(table: HudiTable, metastore: Metastore, database: str) -> None:
    """An entry that is marked as synced is synced."""
    entry = metastore.find_table(database, "t")
    newest = table.timeline.data().completed().instants[-1].requested_time
    if entry is not None and entry.parameters.get(MARKER) == newest:
        assert not plan_sync(table, metastore, database, full=True)


class TestTogether:
    @pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("locks", [True, False], ids=["with locks", "without locks"])
    def test_many_syncs_at_once_lose_nothing(
        self,
        write: Write,
        metastore: Metastore,
        database: str,
        monkeypatch: pytest.MonkeyPatch,
        count: int,
        locks: bool,
    ) -> None:
        """Each with its own client, over commits that come meanwhile; also where the server has no lock tables."""
        if not locks:

            def refused(*_: object, **__: object) -> None:
                raise CatalogError("no lock tables", call="lock", error="MetaException")

            monkeypatch.setattr(Metastore, "lock", refused)
            monkeypatch.setattr(sync_module, "_ATTEMPTS", 30)
        table = write("t", 1)
        start = threading.Barrier(count + 1)
        done = threading.Event()

        def sync() -> int:
            rounds = 0
            with Metastore.connect(metastore.uri) as client:
                start.wait()
                while not done.is_set() or rounds == 0:
                    sync_table(table.reload(), client, database)
                    rounds += 1
            return rounds

        with ThreadPoolExecutor(count) as pool:
            running = [pool.submit(sync) for _ in range(count)]
            start.wait()
            for number in range(2, 6):
                write("t", number, day=f"2026-01-{number:02}")
            done.set()
            assert all(one.result() for one in running)
        sync_table(table.reload(), metastore, database)
        assert not plan_sync(table.reload(), metastore, database, full=True)
        assert len(metastore.partition_names(database, "t")) == 5
        newest = table.reload().timeline.data().completed().instants[-1].requested_time
        assert metastore.table(database, "t").parameters[MARKER] == newest
