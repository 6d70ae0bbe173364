"""The embedded metastore: one a warehouse, shared by processes, kept through restarts, kills and stale files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore, EmbeddedWhenNeeded, local_folder, running
from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_format.errors import CatalogError, InputError, MetastoreStartError, MetastoreUnreachableError

pytestmark = pytest.mark.metastore


def make_table(server: EmbeddedMetastore, name: str, folder: Path) -> None:
    storage = StorageDescriptor((Column("a", "int"),), location=f"file://{folder}")
    with Metastore.connect(server.uri) as client:
        client.create_table(TableEntry("default", name, storage, table_type="EXTERNAL_TABLE"))


def tables(server: EmbeddedMetastore) -> list[str]:
    with Metastore.connect(server.uri) as client:
        return client.tables("default")


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def user_process(warehouse: Path) -> subprocess.Popen[str]:
    """Another process that joins, prints the address and whether it started the server; a line of input ends it."""
    program = """
        import sys
        from skep_catalog.embedded import EmbeddedMetastore
        server = EmbeddedMetastore.start_or_join(sys.argv[1])
        print(server.uri, server.started, flush=True)
        sys.stdin.readline()
        print(server.stop(), flush=True)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(warehouse)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leave(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    answer = first_line(process)
    process.wait(timeout=20)
    return answer


class TestOneLife:
    @pytest.mark.engine("metastore")
    def test_it_survives_kills_and_restarts_with_its_data(self, tmp_path: Path) -> None:
        """Start, stop, start at the same port, kill, start again, a stale Derby lock, an odd folder name."""
        warehouse = tmp_path / "wäre house;x"
        with EmbeddedMetastore.start_or_join(warehouse) as first:
            assert first.started
            make_table(first, "kept", tmp_path / "t")
            port = first.server.port
        assert running(warehouse / ".metastore") is None

        second = EmbeddedMetastore.start_or_join(warehouse)
        assert (second.started, second.server.port) == (True, port)
        assert tables(second) == ["kept"]
        os.kill(second.server.pid, signal.SIGKILL)
        assert wait_for(lambda: not second.is_alive())
        # A JVM that is killed closes its sockets thread by thread: the connection is refused, or closed.
        with pytest.raises(MetastoreUnreachableError, match=second.uri):
            Metastore.connect(second.uri, attempts=1).databases()
        assert (warehouse / ".metastore" / "derby" / "db.lck").exists()

        third = EmbeddedMetastore.start_or_join(warehouse)
        assert third.started
        assert tables(third) == ["kept"]
        assert not second.stop(), "the third use still needs it"
        assert third.is_alive()
        assert third.stop()
        assert not third.is_alive()
        assert not third.stop(), "stopping again is no error"
        log = third.server.log.read_text()
        assert "WARN HiveMetaStore" in log
        assert "TThreadPoolServer" not in log, "of connections that end"
        assert "AcidHouseKeeperService" not in log, "it ends before the database does"

    def test_it_listens_on_loopback_only(self, metastore_server: EmbeddedMetastore) -> None:
        listening = f"0100007F:{metastore_server.server.port:04X}"
        table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        sockets = [line.split()[1] for line in table.splitlines() if line.split()[3] == "0A"]
        mine = [address for address in sockets if address.endswith(listening[-5:])]
        assert mine
        assert all(address.endswith(listening) for address in mine)


class TestSharing:
    def test_processes_share_one_server_and_the_last_one_stops_it(self, tmp_path: Path) -> None:
        one, two = user_process(tmp_path), user_process(tmp_path)
        try:
            answers = [first_line(one), first_line(two)]
            uris = {answer.split()[0] for answer in answers}
            assert len(uris) == 1
            assert sorted(answer.split()[1] for answer in answers) == ["False", "True"]
            starter, joined = (one, two) if answers[0].endswith("True") else (two, one)
            assert leave(starter) == "False"
            server = running(tmp_path / ".metastore")
            assert server is not None
            assert Metastore.connect(server.uri).databases() == ["default"]
            assert leave(joined) == "True"
            assert running(tmp_path / ".metastore") is None
        finally:
            for process in (one, two):
                process.kill()

    @pytest.mark.engine("metastore")
    def test_the_server_ends_when_its_only_user_is_killed(self, tmp_path: Path) -> None:
        process = user_process(tmp_path)
        assert first_line(process)
        server = running(tmp_path / ".metastore")
        assert server is not None
        process.kill()
        process.wait()
        assert wait_for(lambda: running(tmp_path / ".metastore") is None)

    def test_uses_in_one_process_are_counted(self, metastore_server: EmbeddedMetastore) -> None:
        warehouse = metastore_server.server.folder.parent
        again = EmbeddedMetastore.start_or_join(warehouse)
        assert not again.started
        assert again.uri == metastore_server.uri
        assert not again.stop()
        assert metastore_server.is_alive()


def test_the_server_has_none_of_sparks_own_jars(metastore_server: EmbeddedMetastore) -> None:
    command = Path(f"/proc/{metastore_server.server.pid}/cmdline").read_text().split("\0")
    own, *jars = [Path(each) for each in command[command.index("-cp") + 1].split(os.pathsep)]
    names = [each.name for each in jars]
    assert {"hive-metastore", "hive-serde", "parquet-hadoop"} <= {each.rpartition("-")[0] for each in names}
    assert not [each for each in names if each.startswith(("spark-", "scala-", "kubernetes-"))]
    with zipfile.ZipFile(own) as first:
        assert first.read("yarn-default.xml") == b"<configuration/>"


class TestRefusals:
    def test_a_port_in_use_is_named(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            message = f"can't listen on 127.0.0.1:{port}: the port is in use"
            with pytest.raises(MetastoreStartError, match=message) as error:
                EmbeddedMetastore.start_or_join(tmp_path, port=port)
        assert error.value.fields["port"] == port
        assert running(tmp_path / ".metastore") is None

    def test_another_port_than_the_running_ones_is_refused(self, metastore_server: EmbeddedMetastore) -> None:
        other = metastore_server.server.port + 1
        with pytest.raises(MetastoreStartError, match=rf"already runs on port .*, not {other}"):
            EmbeddedMetastore.start_or_join(metastore_server.server.folder.parent, port=other)
        assert metastore_server.is_alive()

    @pytest.mark.engine("metastore")
    def test_a_damaged_database_shows_the_end_of_the_log(
        self, tmp_path: Path, metastore_server: EmbeddedMetastore
    ) -> None:
        folder = tmp_path / ".metastore"
        folder.mkdir()
        (folder / "derby").write_text("not a database")
        with pytest.raises(MetastoreStartError, match=r"the end of .*metastore\.log:\n(.*\n)*.*derby") as error:
            EmbeddedMetastore.start_or_join(tmp_path)
        assert Path(str(error.value.fields["log"])).is_file()
        (folder / "derby").unlink()
        with EmbeddedMetastore.start_or_join(tmp_path) as server:
            assert tables(server) == []

    def test_a_warehouse_elsewhere(self) -> None:
        with pytest.raises(InputError, match="needs a warehouse on this machine, not s3://b/w"):
            EmbeddedMetastore.start_or_join("s3://b/w")
        assert local_folder("file:///a%20b/c") == Path("/a b/c")

    def test_a_warehouse_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(MetastoreStartError, match="can't make the metastore's folder"):
            EmbeddedMetastore.start_or_join(tmp_path / "file")


class TestWhenNeeded:
    def test_it_starts_when_a_client_calls(self, tmp_path: Path) -> None:
        steps: list[str] = []

        @contextmanager
        def noted() -> Iterator[None]:
            steps.append("start")
            yield

        use = EmbeddedWhenNeeded(str(tmp_path / "lake"), noted)
        client = Metastore.connect(None, revived=use.address)
        other = client.own_connection()
        assert not (tmp_path / "lake").exists()
        assert client.databases() == other.databases() == ["default"]
        assert steps == ["start"]
        assert use.use is not None
        assert client.uri == use.use.uri
        use.stop()
        use.stop()
        assert running(tmp_path / "lake" / ".metastore") is None

    def test_it_can_begin_in_the_background(self, tmp_path: Path, metastore_server: EmbeddedMetastore) -> None:
        warehouse = str(metastore_server.server.folder.parent)
        use = EmbeddedWhenNeeded(warehouse)
        use.begin()
        use.begin()
        assert use.address() == metastore_server.uri
        use.stop()
        assert metastore_server.is_alive()

        (tmp_path / "file").touch()
        failing = EmbeddedWhenNeeded(str(tmp_path / "file"))
        failing.begin()
        for _ in range(2):
            with pytest.raises(MetastoreStartError, match="can't make the metastore's folder"):
                failing.address()
        failing.stop()

    def test_one_that_was_stopped_does_not_begin(self, tmp_path: Path) -> None:
        use = EmbeddedWhenNeeded(str(tmp_path / "lake"))
        use.stop()
        use.begin()
        with pytest.raises(CatalogError, match="the lake was closed"):
            use.address()
        assert not (tmp_path / "lake").exists()


class TestLeftovers:
    def test_a_stale_state_file_with_a_running_process_is_not_believed(self, tmp_path: Path) -> None:
        """A process id may belong to another program by now: only the server's own lock counts."""
        folder = tmp_path / ".metastore"
        folder.mkdir()
        (folder / "server.json").write_text(f'{{"pid": {os.getpid()}, "port": 1}}')
        (folder / "server.lock").touch()
        assert running(folder) is None
        with EmbeddedMetastore.start_or_join(tmp_path) as server:
            assert server.server.pid != os.getpid()

    def test_the_default_database_lies_in_the_warehouse(
        self, metastore: Metastore, metastore_server: EmbeddedMetastore
    ) -> None:
        location = metastore.database("default").location
        assert location == f"file:{metastore_server.server.folder.parent}"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_a_warehouse_whose_metastore_is_another_users_is_refused_with_its_name(tmp_path: Path) -> None:
    folder = tmp_path / ".metastore"
    folder.mkdir(mode=0o755)
    (folder / "start.lock").touch(mode=0o644)
    for parent in (folder, *folder.parents[:-1]):
        if parent.stat().st_mode & 0o055 != 0o055 and "pytest-of-" in str(parent):
            parent.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(MetastoreStartError, match=r"Permission denied.*belongs to user root") as raised:
            EmbeddedMetastore.start_or_join(tmp_path)
    finally:
        os.seteuid(0)
    assert "choose another warehouse" in str(raised.value)
