"""The server of Sail in a process that answers queries without Spark, and how it gets rows and is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from skep.query.over_rows import query_of
from skep.query.sail import LeftToSpark, QueryStoppedError, SailEngine, stoppable
from skep.query.sail_server import _settings, run
from skep.query.shared import SHARED
from skep_sql.protocols import Relation
from skep_table.write.input.row_input import RereadInput

CROSS = "select count(*) as n from t as x cross join t as y where (x.a * y.a) % 7 = 3"
MANY = pa.table({"a": range(60_000)})


def asked(text: str, relations: Mapping[str, Relation]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = SailEngine().rows(query_of(text), relations).to_pylist()
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file of a query, and no view, but those that queries share."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    SHARED.clear()
    assert not list(tmp_path.iterdir())
    assert run("SHOW VIEWS").num_rows == 0


def process(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process with this code, and `asked` as above."""
    script = """
    import os, signal, sys, threading, time
    import pyarrow as pa
    from skep.query.over_rows import query_of
    from skep.query.sail import LeftToSpark, SailEngine

    def asked(text, relations={}):
        return SailEngine().rows(query_of(text), relations).to_pylist()
    """
    command = [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(code)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_a_relation_is_written_once_for_all_its_names() -> None:
    reads = []

    def batches() -> Iterator[pa.RecordBatch]:
        reads.append(1)
        yield from MANY.to_batches()

    rows = RereadInput(MANY.schema, batches)
    found = asked("select count(*) as n from t join u on t.a = u.a join t as v on v.a = u.a", {"t": rows, "u": rows})
    assert (found, reads) == ([{"n": 60_000}], [1])


def test_relations_that_the_query_does_not_name_are_not_read() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise AssertionError

    other = RereadInput(MANY.schema, batches)
    assert asked("select max(a) as m from t", {"t": MANY, "other": other}) == [{"m": 59_999}]


@pytest.mark.parametrize(
    ("text", "batches"),
    [
        ("select * from t limit 5", 1),
        ("select a as b from t limit 60000 offset 1", 2),
        ("select a from t where a = 3 limit 5", 3),
        ("select distinct a from t limit 5", 3),
        ("select max(a) m from t limit 5", 3),
        ("select a from (select a from t where a = 3) limit 5", 3),
        ("select a from t order by a limit 5", 3),
        ("select t.a from t join t as u on t.a = u.a limit 5", 3),
    ],
)
def test_a_limit_bounds_what_is_read(text: str, batches: int) -> None:
    read = []

    def parts() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            read.append(1)
            yield MANY.to_batches()[0]

    assert asked(text, {"t": RereadInput(MANY.schema, parts)})
    assert len(read) == batches


def test_what_reading_fails_with_is_no_failure_of_sail() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield MANY.to_batches()[0]
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        asked("select max(a) as m from t", {"t": RereadInput(MANY.schema, batches)})


def test_a_folder_that_takes_no_files_leaves_a_query_to_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(LeftToSpark, match="No such file"):
        asked("select max(a) as m from t", {"t": MANY})


def test_paths_with_signs_of_sql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "it's\\a [%20]*?"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert asked("select max(a) as m from t", {"t": MANY}) == [{"m": 59_999}]
    folder.rmdir()


def test_queries_of_many_threads_have_their_own_rows() -> None:
    def one(at: int) -> object:
        return asked("select sum(a) as s from t", {"t": pa.table({"a": [at, at]})})

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(40))) == [[{"s": 2 * at}] for at in range(40)]


def test_names_of_tables_mean_what_they_did() -> None:
    tables = {"t": pa.table({"a": [1, 2]}), "U": pa.table({"a": [2, 3]})}
    assert asked("select t.a, u.* from t join u on T.a = U.a", tables) == [{"a": 2}]
    assert asked("select (select max(b) from u as t(b)) as m, sum(a) as s from t", tables) == [{"m": 3, "s": 3}]
    with pytest.raises(LeftToSpark, match="WITH"):
        asked("with t as (select a + 1 as a from t) select * from t", tables)


def test_queries_that_are_nested_deeply_are_left_to_spark() -> None:
    """The server's threads have a stack, and its end is the end of the process."""
    assert len(asked(" union all ".join(["select 1 as n"] * 60), {})) == 60
    with pytest.raises(LeftToSpark, match="deeply"):
        asked(" union all ".join(["select 1 as n"] * 1000), {})


def test_a_query_is_stopped_while_it_runs() -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with stoppable(stop), pytest.raises(QueryStoppedError):
        asked(CROSS, {"t": MANY})


def test_a_query_is_stopped_while_its_rows_are_written() -> None:
    stop = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        stop.set()
        while True:
            yield MANY.to_batches()[0]

    with stoppable(stop), pytest.raises(QueryStoppedError):
        asked("select max(a) as m from t", {"t": RereadInput(MANY.schema, batches)})


def test_the_first_rows_come_before_the_last_are_computed() -> None:
    rows = SailEngine().planned(query_of("select x.a from t as x cross join t as y"), {"t": MANY}).batches()
    assert next(rows).num_rows
    rows.close()  # type: ignore[attr-defined]


def test_ctrl_c_ends_the_query_and_not_the_server() -> None:
    done = process(f"""
    asked("select 1 as n")
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        asked({CROSS!r}, {{"t": pa.table({{"a": range(60_000)}})}})
    except KeyboardInterrupt:
        print(asked("select 2 as n"))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[{'n': 2}]\n", "")


def test_a_fork_has_no_server_and_ends() -> None:
    done = process("""
    from skep.query import sail
    relations = {"t": pa.table({"a": range(60_000)})}
    plan = SailEngine().planned(query_of("select x.a from t as x cross join t as y"), relations)
    batches = plan.batches()
    next(batches)
    child = os.fork()
    if not child:
        try:
            asked("select 1 as n")
        except LeftToSpark as error:
            assert "fork" in str(error)
            sys.exit(7)  # with the handlers that run at the end of a process
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), next(batches).num_rows > 0, asked("select 1 as n"))
    """)
    assert (done.returncode, done.stdout) == (0, "7 True [{'n': 1}]\n"), done.stderr


def test_a_process_ends_with_a_query_that_is_not_read_to_its_end(tmp_path: Path) -> None:
    done = process(
        """
        relations = {"t": pa.table({"a": range(60_000)})}
        query = query_of("select x.a from t as x cross join t as y")
        batches = SailEngine().planned(query, relations).batches()
        next(batches)
        print(os.environ.get("RUST_LOG"))
        """,
        TMPDIR=str(tmp_path),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are found by /proc")
def test_nobody_else_reaches_the_server() -> None:
    done = process(
        """
        from pathlib import Path
        asked("select 1 as n")
        names = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
        lines = [each.split() for table in ("tcp", "tcp6") for each in open(f"/proc/self/net/{table}")]
        print([each for each in lines if each[3] == "0A" and f"socket:[{each[9]}]" in names])
        """
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


OTHER = """
import socket, sys
other = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("there", flush=True)
while other.recv(1000):
    pass
"""


def test_a_connection_that_came_before_is_cut_off() -> None:
    done = process(f"""
    import subprocess
    from skep.query import sail_server
    others, closed = [], sail_server._close_port

    def close_port(port):
        command = [sys.executable, "-S", "-c", {OTHER!r}, str(port)]
        others.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        others[0].stdout.readline()
        time.sleep(0.2)
        closed(port)

    sail_server._close_port = close_port
    print(asked("select 1 as n"), others[0].wait(20))
    """)
    assert (done.returncode, done.stdout) == (0, "[{'n': 1}] 0\n"), done.stderr


def test_the_users_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    done = process('print(asked("select 1 as n"))', RUST_LOG="info")
    assert done.stdout == "[{'n': 1}]\n"
    assert "Flight SQL server" in done.stderr
    assert int(_settings()["SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE"]) > 2**20


def test_a_server_that_does_not_start_leaves_queries_to_spark() -> None:
    done = process("""
    from skep.query import sail_server
    def close_port(port):
        raise RuntimeError(f"port {port} stays open")
    sail_server._close_port = close_port
    try:
        asked("select 1 as n")
    except LeftToSpark as error:
        print(str(error).replace("1", ""))
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Sail does not start: port ")


def test_a_lost_connection_is_followed_by_another_server() -> None:
    done = process("""
    import socket
    from skep.query.sail_server import _sockets
    asked("select 1 as n")
    for _, each in _sockets():
        if each.family == socket.AF_INET:
            each.shutdown(socket.SHUT_RDWR)
    found = []
    for _ in range(2):
        try:
            found.append(asked("select 1 as n"))
        except LeftToSpark as error:
            found.append(str(error)[:6])
    print(found)
    """)
    assert done.stdout == "['Sail: ', [{'n': 1}]]\n", done.stderr
