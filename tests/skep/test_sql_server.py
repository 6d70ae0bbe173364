"""The SQL server: what clients of HiveServer2's protocol get and may do, and what bad ones can't do to others."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pandas
import psutil
import pyarrow as pa
import pytest
import sqlalchemy
import trustme
from ended_process import outcome
from pyhive import exc, hive
from sql_lakes import NoSession
from TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType
from thrift.transport.THttpClient import THttpClient
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TMemoryBuffer, TTransportException
from typer.testing import CliRunner

from skep.base import audit
from skep.cli.main import app
from skep.lake import Lake
from skep.serve.hive.encode import row_set, table_schema
from skep.serve.hive.results import Results
from skep.serve.hive.rights import shown
from skep.serve.hive.run import SqlServer, sql_server
from skep.serve.hive.settings import Limits, SqlServerSettings
from skep.serve.hive.users import User, Users, kept_password, kept_token
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Database
from skep_format.errors import InputError

pytestmark = pytest.mark.metastore

WAIT = 120.0
BIG = 30_000
SLOW = "select count(*) n from big a, big b where a.id + b.id <> 17"  # some seconds
ENDLESS = "select count(*) n from big a, big b, big c where a.id + b.id + c.id <> 17"
V = ttypes.TProtocolVersion
OK, ERROR = ttypes.TStatusCode.SUCCESS_STATUS, ttypes.TStatusCode.ERROR_STATUS
NEXT, FIRST = ttypes.TFetchOrientation.FETCH_NEXT, ttypes.TFetchOrientation.FETCH_FIRST

TYPED = pa.table(
    {
        "n": pa.array([1, 2], pa.int64()),
        "i": pa.array([-5, None], pa.int32()),
        "f": pa.array([0.1, None], pa.float32()),
        "d": pa.array([0.25, None]),
        "b": pa.array([True, None]),
        "t": pa.array(["zoë\n", None]),
        "bin": pa.array([b"\x00\xff", None]),
        "amount": pa.array([Decimal("-0.00000001"), None], pa.decimal128(20, 8)),
        "day": pa.array([dt.date(2026, 1, 2), None]),
        "at": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 120_000), None], pa.timestamp("us", "UTC")),
        "l": pa.array([["a", 'q"'], None]),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "s": pa.array([{"a": 1.5, "day": dt.date(2026, 1, 2)}, None]),
    }
)
SHOWN = (
    *(1, -5, 0.1, 0.25, True, "zoë\n", b"\x00\xff", Decimal("-0.00000001"), "2026-01-02"),
    *(dt.datetime(2026, 1, 2, 3, 4, 5, 120_000), '["a","q\\""]', '{"k":1}', '{"a":1.5,"day":"2026-01-02"}'),
)


@pytest.fixture(scope="module")
def shared(metastore_server: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Tables `typed` and `big`, in a database of their own; without Spark."""
    name, folder = f"db_{uuid.uuid4().hex[:10]}", tmp_path_factory.mktemp("lake")
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
        client.create_database(Database(name, location=f"file://{folder}/{name}.db"))
        lake = Lake(client, str(folder), NoSession(), name)
        lake.create_table("typed", TYPED.schema, key="n").upsert(TYPED)
        big = pa.table({"id": pa.array(range(BIG), pa.int64())})
        lake.create_table("big", big.schema, key="id").bulk_insert(big)
        yield lake
        client.drop_database(name, cascade=True)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


Start = Callable[..., SqlServer]


@pytest.fixture
def start(shared: Lake) -> Iterator[Start]:
    """A server on free ports, for writing clients unless there are users."""
    with contextlib.ExitStack() as stack:

        def serve(*, limits: Limits | None = None, **given: Any) -> SqlServer:
            settings = SqlServerSettings(
                **{"port": 0, "http_port": 0, "anonymous_writes": "users" not in given, **given},
                limits=replace(limits or Limits(), grace_seconds=1),
            )
            return stack.enter_context(sql_server(shared, settings))

        yield serve


def pyhive(server: SqlServer, way: str, **given: Any) -> Any:
    if way == "http":
        return hive.connect("127.0.0.1", port=server.http_port, scheme="http", **given)
    return hive.connect("127.0.0.1", port=server.port, auth=way, **given)


def ask(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return found


class Raw:
    """A client of the generated code: any version of the protocol, any request."""

    def __init__(self, server: SqlServer, shared: Lake, version: int = V.HIVE_CLI_SERVICE_PROTOCOL_V10) -> None:
        self.socket = TSocket("127.0.0.1", server.port)
        self.socket.setTimeout(WAIT * 1000)
        self.transport = TBufferedTransport(self.socket)
        self.transport.open()
        self.client = TCLIService.Client(TBinaryProtocol(self.transport))
        self.opened = self.client.OpenSession(
            ttypes.TOpenSessionReq(version, configuration={"use:database": shared.database})
        )
        self.session = self.opened.sessionHandle

    def execute(self, statement: str, *, wait: bool = True, **given: Any) -> Any:
        return self.client.ExecuteStatement(
            ttypes.TExecuteStatementReq(self.session, statement, runAsync=not wait, **given)
        )

    def handle(self, statement: str, **given: Any) -> Any:
        answer = self.execute(statement, **given)
        assert answer.status.statusCode == OK, answer.status
        return answer.operationHandle

    def fetch(self, handle: Any, rows: int = 100, orientation: int = NEXT, kind: int = 0) -> Any:
        return self.client.FetchResults(ttypes.TFetchResultsReq(handle, orientation, rows, kind))

    def texts(self, handle: Any, **given: Any) -> list[str]:
        answer = self.fetch(handle, **given)
        assert answer.status.statusCode == OK, answer.status
        found: list[str] = answer.results.columns[0].stringVal.values
        return found

    def status(self, handle: Any) -> Any:
        return self.client.GetOperationStatus(ttypes.TGetOperationStatusReq(handle))

    def ended(self, handle: Any) -> Any:
        return until(lambda: (found := self.status(handle)).operationState not in (0, 1, 7) and found)

    def close(self) -> None:
        self.transport.close()


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)
    return found


def audited(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit.audit_file().read_text().splitlines()]


class TestPyHive:
    @pytest.mark.parametrize("way", ["NOSASL", "NONE", "http"])
    def test_rows_come_with_their_types(self, start: Start, shared: Lake, way: str) -> None:
        connection = pyhive(start(), way, database=shared.database)
        cursor = connection.cursor()
        cursor.execute(f"select {', '.join(TYPED.schema.names)} from typed where n = 1")
        assert [(column[0], column[1].removesuffix("_TYPE")) for column in cursor.description] == [
            *(("n", "BIGINT"), ("i", "INT"), ("f", "FLOAT"), ("d", "DOUBLE"), ("b", "BOOLEAN"), ("t", "STRING")),
            *(("bin", "BINARY"), ("amount", "DECIMAL"), ("day", "DATE"), ("at", "TIMESTAMP")),
            *(("l", "ARRAY"), ("m", "MAP"), ("s", "STRUCT")),
        ]
        assert cursor.fetchall() == [SHOWN]
        assert ask(connection, "select i, f, t, bin, amount, at, l, s from typed where n = 2") == [(None,) * 8]
        connection.close()

    @pytest.mark.parametrize("way", ["NOSASL", "http"])
    def test_a_write_takes_effect(self, start: Start, shared: Lake, way: str) -> None:
        connection = pyhive(start(), way, database=shared.database)
        ask(connection, "create table made (id bigint, name string) tblproperties (primaryKey = 'id')")
        try:
            ask(connection, "insert into made values (1, 'ann')")
            ask(connection, "update made set name = 'bob' where id = 1")
            assert ask(connection, "select id, name from made") == [(1, "bob")]
            assert shared.table("made").read(columns=["name"]).to_arrow().to_pylist() == [{"name": "bob"}]
        finally:
            ask(connection, "drop table made purge")

    def test_all_rows_arrive_page_by_page(self, start: Start, shared: Lake) -> None:
        connection = pyhive(start(limits=Limits(page_rows=7000)), "NONE", database=shared.database)
        cursor = connection.cursor(arraysize=20_000)
        cursor.execute("select id from big")
        assert sorted(row[0] for row in cursor.fetchall()) == list(range(BIG))

    def test_errors_have_a_state(self, start: Start) -> None:
        connection = pyhive(start(), "NONE")
        for statement, state in (
            ("select * from nothing", "42S02"),
            ("selec 1", "42000"),
            ("cache table big", "0A000"),
            ("select reflect('java.lang.System', 'exit', 1)", "42000"),
        ):
            with pytest.raises(exc.OperationalError) as caught:
                ask(connection, statement)
            assert caught.value.args[0].status.sqlState == state, statement
        assert ask(connection, "select 1") == [(1,)]

    @pytest.mark.parametrize("way", ["NOSASL", "NONE", "http"])
    def test_values_of_the_session(self, start: Start, way: str) -> None:
        connection = pyhive(start(), way, username="ann")
        query = "select current_user(), user() as u, current_catalog(), concat(current_user(), '!') as c"
        cursor = connection.cursor()
        cursor.execute(query)
        assert [column[0] for column in cursor.description] == ["current_user()", "u", "current_catalog()", "c"]
        assert cursor.fetchall() == [("ann", "ann", "spark_catalog", "ann!")]

    @pytest.mark.parametrize("hive_style", [True, False])
    def test_partitions_have_the_names_of_the_metastore(self, start: Start, shared: Lake, hive_style: bool) -> None:
        connection = pyhive(start(), "NONE", database=shared.database)
        rows = pa.table({"n": [1, 2], "day": ["2026-01-01", "2026-01-02"], "k": ["a b", "ü"]})
        name = f"days_{hive_style}".lower()
        shared.create_table(name, rows, key="n", partition_by=("day", "k"), hive_style=hive_style).upsert(rows)
        try:
            found = [row[0] for row in ask(connection, f"show partitions {name}")]
            assert found == shared.metastore.partition_names(shared.database, name)
            assert found[0] == "day=2026-01-01/k=a b"
        finally:
            shared.drop_table(name, purge=True)

    def test_types_of_columns_are_those_of_the_protocol(self, start: Start, shared: Lake) -> None:
        connection = pyhive(start(), "NONE", database=shared.database)
        rows = pa.table({"n": [1], "local": pa.array([1], pa.timestamp("us")), "l": [[dt.datetime(2026, 1, 1)]]})
        shared.create_table("local", rows.schema, key="n").upsert(rows)
        try:
            kinds = {row[0]: row[1] for row in ask(connection, "describe extended local")}
            assert (kinds["local"], kinds["l"], kinds["Table"]) == ("timestamp", "array<timestamp>", "local")
            assert ask(connection, "describe local local")[1] == ("data_type", "timestamp")
            engine = sqlalchemy.create_engine("hive://", creator=lambda: connection)
            columns = sqlalchemy.inspect(engine).get_columns("local")
            assert str(next(each["type"] for each in columns if each["name"] == "local")) == "TIMESTAMP"
        finally:
            shared.drop_table("local", purge=True)

    def test_writes_are_explained(self, start: Start, shared: Lake) -> None:
        server = start(anonymous_writes=False)  # who may only read may ask what a write would read
        connection = pyhive(server, "NONE", database=shared.database)
        ((plan,),) = ask(connection, "explain insert into typed (n) select n from typed")
        assert plan.splitlines() == ["INSERT typed", "engine: sail", "typed: 1 of 1 file slices are read"]
        with pytest.raises(exc.OperationalError, match="CREATE FILES VIEW is refused"):
            ask(connection, "create temporary view f using parquet options (path '/etc')")

    def test_the_log_shows_what_a_write_did(self, start: Start, shared: Lake) -> None:
        connection = pyhive(start(), "NONE", database=shared.database)
        cursor = connection.cursor()
        cursor.execute("insert into typed (n, t) values (9, 'new')")
        try:
            assert any("1 inserted" in line for line in cursor.fetch_logs())
        finally:
            cursor.execute("delete from typed where n = 9")


def raw_texts(raw: Raw, statement: str) -> list[str]:
    return raw.texts(raw.handle(statement))


class TestSessions:
    def test_database_settings_and_views_are_each_client_s_own(self, start: Start, shared: Lake) -> None:
        server = start()
        one, other = Raw(server, shared), pyhive(server, "NONE")
        one.handle("set hoodie.some.key=1")
        one.handle("create temporary view v as select 7 as x")
        assert one.fetch(one.handle("select x from v")).results.columns[0].i32Val.values == [7]
        assert ask(other, "set hoodie.some.key") == [("hoodie.some.key", "<undefined>")]
        with pytest.raises(exc.OperationalError, match="no table v"):
            ask(other, "select x from v")
        with pytest.raises(exc.OperationalError, match="no table typed"):
            ask(other, "select n from typed")
        assert ask(other, "select current_database(), current_schema() as s") == [("default", "default")]
        assert raw_texts(one, "select current_database()") == [shared.database]

    def test_settings_of_a_session_and_of_one_statement(self, start: Start, shared: Lake) -> None:
        given = {"set:hiveconf:hoodie.a": "1", "hoodie.b": "2"}
        connection = pyhive(start(), "NONE", configuration=given)
        assert ask(connection, "set hoodie.a") == [("hoodie.a", "1")]
        assert ask(connection, "set hoodie.b") == [("hoodie.b", "2")]
        raw = Raw(start(), shared)
        overlaid = raw.handle("set hoodie.a", confOverlay={"hoodie.a": "9"})
        assert raw.fetch(overlaid).results.columns[1].stringVal.values == ["9"]
        assert raw.fetch(raw.handle("set hoodie.a")).results.columns[1].stringVal.values == ["<undefined>"]

    def test_variables_and_unknown_databases_are_refused(self, start: Start) -> None:
        server = start()
        for given in ({"set:hivevar:x": "1"}, {"use:database": "nowhere"}):
            with pytest.raises(exc.OperationalError):
                pyhive(server, "NONE", configuration=given)

    @pytest.mark.parametrize("version", [0, 4, 5, 9])
    def test_every_version_of_the_protocol(self, start: Start, shared: Lake, version: int) -> None:
        raw = Raw(start(http_port=None), shared, version)
        assert raw.opened.serverProtocolVersion == version
        results = raw.fetch(raw.handle("select n, i, t, bin, b, f from typed order by n")).results
        if version >= V.HIVE_CLI_SERVICE_PROTOCOL_V6:
            assert results.rows == []
            assert results.columns[0].i64Val.values == [1, 2]
            assert results.columns[1].i32Val.nulls == b"\x02"
            assert results.columns[3].binaryVal.values == [b"\x00\xff", b""]
        else:
            assert not results.columns
            first, second = (
                [next(filter(None, vars(cell).values())).value for cell in row.colVals] for row in results.rows
            )
            assert first == [1, -5, "zoë\n", "\x00�", True, 0.1]
            assert second == [2, None, None, None, None, None]

    def test_a_newer_client_gets_the_newest_version(self, start: Start, shared: Lake) -> None:
        assert Raw(start(), shared, 40).opened.serverProtocolVersion == V.HIVE_CLI_SERVICE_PROTOCOL_V10

    def test_rows_are_fetched_again_from_the_first(self, start: Start, shared: Lake) -> None:
        raw = Raw(start(), shared)
        handle = raw.handle("select id from big where id < 5 order by id")

        def ids(answer: Any) -> tuple[int, list[int]]:
            return answer.results.startRowOffset, answer.results.columns[0].i64Val.values

        assert ids(raw.fetch(handle, 2)) == (0, [0, 1])
        assert ids(raw.fetch(handle, 2)) == (2, [2, 3])
        assert ids(raw.fetch(handle, 3, FIRST)) == (0, [0, 1, 2])
        assert ids(raw.fetch(handle, 9)) == (3, [3, 4])
        assert ids(raw.fetch(handle, 9)) == (5, [])
        back = raw.fetch(handle, 1, ttypes.TFetchOrientation.FETCH_PRIOR)
        assert back.status.statusCode == ERROR

    def test_unknown_handles_are_errors(self, start: Start, shared: Lake) -> None:
        server = start()
        raw, other = Raw(server, shared), Raw(server, shared)
        handle = raw.handle("select 1")
        assert other.status(handle).status.statusCode == OK  # handle and secret are what it takes
        handle.operationId.secret = b"x" * 16
        assert "Invalid OperationHandle" in raw.status(handle).status.errorMessage
        assert raw.client.CloseSession(ttypes.TCloseSessionReq(raw.session)).status.statusCode == OK
        assert "Invalid SessionHandle" in raw.execute("select 1").status.errorMessage
        for wrong in (None, ttypes.TOperationHandle(), ttypes.TOperationHandle(ttypes.THandleIdentifier(None, None))):
            assert raw.status(wrong).status.statusCode == ERROR

    def test_calls_that_there_are_not(self, start: Start, shared: Lake) -> None:
        server = start()
        raw = Raw(server, shared)
        got = raw.client.GetDelegationToken(ttypes.TGetDelegationTokenReq(raw.session, "a", "b"))
        assert got.status.sqlState == "0A000"
        raw.session.sessionId.guid = b"\xff" * 16  # handles are bytes, which need not be a text
        http = TBinaryProtocol(THttpClient(f"http://127.0.0.1:{server.http_port}/cliservice"))
        for protocol in (raw.client._oprot, http):
            protocol.writeMessageBegin("SetClientInfo", 1, 0)
            protocol.writeFieldBegin("req", TType.STRUCT, 1)
            ttypes.TCloseSessionReq(raw.session).write(protocol)
            protocol.writeFieldStop()
            protocol.writeMessageEnd()
            protocol.trans.flush()
            assert protocol.readMessageBegin()[1] == 3  # an exception
            unknown = ttypes.TApplicationException()
            unknown.read(protocol)
            assert unknown.type == ttypes.TApplicationException.UNKNOWN_METHOD
        raw.session = raw.client.OpenSession(ttypes.TOpenSessionReq(9)).sessionHandle
        assert raw.handle("select 1")

    def test_info(self, start: Start, shared: Lake) -> None:
        raw = Raw(start(), shared)

        def info(number: int) -> Any:
            return raw.client.GetInfo(ttypes.TGetInfoReq(raw.session, number))

        assert info(17).infoValue.stringValue == "skep"
        assert info(18).infoValue.stringValue[0].isdigit()
        assert info(30).infoValue.lenValue == 128
        assert info(99).status.statusCode == ERROR


class TestMetadata:
    def rows(self, raw: Raw, answer: Any) -> list[tuple[Any, ...]]:
        assert answer.status.statusCode == OK, answer.status
        columns = []
        for column in raw.fetch(answer.operationHandle).results.columns:
            member = next(filter(None, vars(column).values()))
            nulls = int.from_bytes(member.nulls, "little")
            columns.append([None if nulls >> at & 1 else value for at, value in enumerate(member.values)])
        return list(zip(*columns, strict=True))

    def test_databases_tables_columns_and_keys(self, start: Start, shared: Lake) -> None:
        raw = Raw(start(), shared)
        client, session, database = raw.client, raw.session, shared.database
        assert self.rows(raw, client.GetSchemas(ttypes.TGetSchemasReq(session, schemaName=database[:-1] + "_"))) == [
            (database, "")
        ]
        assert self.rows(raw, client.GetCatalogs(ttypes.TGetCatalogsReq(session))) == []
        raw.handle("create temporary view tv as select 1 x")
        tables = ttypes.TGetTablesReq(session, schemaName=database, tableName="T%", tableTypes=["TABLE"])
        assert [row[1:4] for row in self.rows(raw, client.GetTables(tables))] == [(database, "typed", "TABLE")]
        views = ttypes.TGetTablesReq(session, tableName=r"t\_%", tableTypes=["VIEW"])
        assert self.rows(raw, client.GetTables(views)) == []
        views = ttypes.TGetTablesReq(session, tableName="t_", tableTypes=["VIEW"])
        assert [row[1:4] for row in self.rows(raw, client.GetTables(views))] == [("", "tv", "VIEW")]
        columns = ttypes.TGetColumnsReq(session, schemaName=database, tableName="typed", columnName="%amount")
        ((*_, name, number, text, size, _, digits, radix, nullable),) = (
            row[:11] for row in self.rows(raw, client.GetColumns(columns))
        )
        assert (name, number, text, size, digits, radix, nullable) == ("amount", 3, "DECIMAL(20,8)", 20, 8, 10, 1)
        every = self.rows(
            raw, client.GetColumns(ttypes.TGetColumnsReq(session, schemaName=database, tableName="typed"))
        )
        assert [row[16] for row in every] == list(range(1, len(every) + 1))
        shared.sql("create view kept (number, sum) as select n, amount from typed")
        try:
            of_view = ttypes.TGetColumnsReq(session, schemaName=database, tableName="kept")
            found = [(row[3], row[5], row[16]) for row in self.rows(raw, client.GetColumns(of_view))]
            assert found == [("number", "BIGINT", 1), ("sum", "DECIMAL(20,8)", 2)]
        finally:
            shared.sql("drop view kept")
        keys = ttypes.TGetPrimaryKeysReq(session, schemaName=database, tableName="typed")
        assert [row[2:5] for row in self.rows(raw, client.GetPrimaryKeys(keys))] == [("typed", "n", 1)]
        assert self.rows(raw, client.GetCrossReference(ttypes.TGetCrossReferenceReq(session))) == []
        types = self.rows(raw, client.GetTypeInfo(ttypes.TGetTypeInfoReq(session)))
        assert ("DECIMAL", 3, 38) in [row[:3] for row in types]
        assert self.rows(raw, client.GetTableTypes(ttypes.TGetTableTypesReq(session))) == [("TABLE",), ("VIEW",)]
        functions = self.rows(raw, client.GetFunctions(ttypes.TGetFunctionsReq(session, functionName="hudi_table%")))
        assert [row[2] for row in functions] == ["hudi_table_changes"]

    @pytest.mark.parametrize("every", [".*", "%", "*", "", None])
    def test_patterns_for_all(self, start: Start, shared: Lake, every: str | None) -> None:
        raw = Raw(start(), shared)
        raw.handle("create temporary view tv as select 1 x")
        names = self.rows(raw, raw.client.GetSchemas(ttypes.TGetSchemasReq(raw.session, schemaName=every)))
        assert (shared.database, "") in names
        asked = ttypes.TGetTablesReq(raw.session, schemaName=every, tableName=every)
        tables = {row[1:3] for row in self.rows(raw, raw.client.GetTables(asked))}
        assert {(shared.database, "typed"), (shared.database, "big"), ("", "tv")} <= tables
        part = ttypes.TGetTablesReq(raw.session, schemaName=shared.database, tableName="ty.*")
        assert [row[2] for row in self.rows(raw, raw.client.GetTables(part))] == ["typed"]

    def test_keys_have_their_order(self, start: Start, shared: Lake) -> None:
        raw = Raw(start(), shared)
        raw.handle("create table keyed (a int, b int, c int) tblproperties (primaryKey = 'c,a')")
        try:
            asked = ttypes.TGetPrimaryKeysReq(raw.session, schemaName=shared.database, tableName="keyed")
            assert [row[3:5] for row in self.rows(raw, raw.client.GetPrimaryKeys(asked))] == [("c", 1), ("a", 2)]
        finally:
            raw.handle("drop table keyed purge")


class TestStatements:
    def test_the_rows_that_a_write_changed(self, start: Start, shared: Lake) -> None:
        """In the field that Hive 3 added to the answer."""
        raw = Raw(start(), shared)
        counts = []
        for statement in (
            "insert into typed (n) values (7), (8), (9)",
            "update typed set i = 1 where n > 6",
            "delete from typed where n > 6",
            "select 1",
        ):
            raw.client.send_GetOperationStatus(ttypes.TGetOperationStatusReq(raw.handle(statement)))
            protocol = raw.client._iprot
            protocol.readMessageBegin()
            fields = {}
            protocol.readFieldBegin()  # of the answer
            while (field := protocol.readFieldBegin())[1] != TType.STOP:
                if field[1] == TType.I64:
                    fields[field[2]] = protocol.readI64()
                else:
                    protocol.skip(field[1])
            protocol.readFieldBegin()
            protocol.readMessageEnd()
            counts.append(fields.get(11))
        assert counts == [3, 3, 3, None]

    def test_without_waiting(self, start: Start, shared: Lake) -> None:
        raw = Raw(start(), shared)
        handle = raw.handle("select count(*) c from big", wait=False)
        assert handle.hasResultSet
        assert raw.ended(handle).operationState == 2
        assert raw.fetch(handle).results.columns[0].i64Val.values == [BIG]
        failed = raw.handle("select * from nothing", wait=False)
        status = raw.ended(failed)
        assert (status.operationState, status.sqlState) == (5, "42S02")
        assert "no table nothing" in status.errorMessage
        assert raw.fetch(failed).status.sqlState == "42S02"
        lines = raw.texts(handle, kind=1)
        assert any("1 rows" in line for line in lines)
        assert raw.texts(handle, kind=1) == []

    def test_a_query_is_cancelled_at_once(self, start: Start, shared: Lake, state: Path) -> None:
        raw = Raw(start(), shared)
        handle = raw.handle(ENDLESS, wait=False)
        waiting = raw.handle("select 1", wait=False)  # statements of a session run one by one
        until(lambda: raw.status(handle).operationState == 1)
        assert raw.client.CancelOperation(ttypes.TCancelOperationReq(waiting)).status.statusCode == OK
        assert raw.client.CancelOperation(ttypes.TCancelOperationReq(handle)).status.statusCode == OK
        assert [raw.status(one).operationState for one in (handle, waiting)] == [3, 3]
        assert raw.fetch(handle).status.sqlState == "57014"
        assert [line["state"] for line in audited(state)] == ["canceled", "canceled"]
        assert raw.ended(raw.handle("select 2", wait=False)).operationState == 2

    @pytest.mark.parametrize("statement", [ENDLESS, f"insert into typed (n) {ENDLESS}"], ids=["query", "write"])
    def test_a_cancelled_statement_of_sail_ends(self, start: Start, shared: Lake, statement: str) -> None:
        raw = Raw(start(), shared)
        handle = raw.handle(statement, wait=False)
        until(lambda: raw.status(handle).operationState == 1)
        time.sleep(0.3)  # it is under way
        raw.client.CancelOperation(ttypes.TCancelOperationReq(handle))
        assert raw.ended(handle).operationState == 3
        assert raw.fetch(raw.handle("select count(*) c from typed")).results.columns[0].i64Val.values == [2]

    def test_a_query_that_takes_too_long_ends(self, start: Start, shared: Lake) -> None:
        raw = Raw(start(), shared)
        status = raw.ended(raw.handle(SLOW, wait=False, queryTimeout=1))
        assert (status.operationState, status.sqlState) == (8, "HYT00")

    def test_a_closed_connection_ends_its_sessions_and_statements(
        self, start: Start, shared: Lake, state: Path
    ) -> None:
        server = start()
        other = Raw(server, shared)
        idle, waiting = Raw(server, shared), Raw(server, shared)
        handle = idle.handle(SLOW, wait=False)
        assert other.status(handle).status.statusCode == OK
        idle.close()
        until(lambda: other.status(handle).status.statusCode == ERROR)
        # while the server carries out a statement that the client waits for
        threading.Timer(0.3, waiting.socket.handle.shutdown, [socket.SHUT_RDWR]).start()
        with pytest.raises(Exception, match=r"read 0 bytes|Bad file|reset|closed"):
            waiting.execute(SLOW)
        until(lambda: [line["state"] for line in audited(state)] == ["canceled", "canceled"])

    def test_each_statement_leaves_a_line_without_secrets(self, start: Start, shared: Lake, state: Path) -> None:
        connection = pyhive(start(), "NONE", username="ann")
        ask(connection, "set hoodie.some.password=hunter2")
        ask(connection, "select 'hunter3' as x")
        with pytest.raises(exc.OperationalError):
            ask(connection, "select 'hunter4")
        lines = audited(state)
        assert [(line["statement"], line["state"]) for line in lines] == [
            ("USE `default`", "finished"),
            ("SET hoodie.some.password=****", "finished"),
            ("select '…' as x", "finished"),
            ("select '…'", "refused"),
        ]
        assert {(line["user"], line["client"], line["what"]) for line in lines} == {("ann", "127.0.0.1", "sql")}
        assert "hunter" not in audit.audit_file().read_text()


class TestSqlAlchemy:
    """By PyHive's dialect, as pandas and many tools use it."""

    @pytest.fixture
    def engine(self, start: Start, shared: Lake) -> Iterator[sqlalchemy.Engine]:
        made = sqlalchemy.create_engine(f"hive://127.0.0.1:{start().port}/{shared.database}")
        yield made
        made.dispose()

    def test_tables_are_reflected(self, engine: sqlalchemy.Engine, shared: Lake) -> None:
        found = sqlalchemy.inspect(engine)
        assert shared.database in found.get_schema_names()
        assert {"typed", "big"} <= set(found.get_table_names()) == set(found.get_table_names(schema=shared.database))
        assert found.has_table("typed")
        assert not found.has_table("nothing")
        assert not found.has_table("nothing", schema=shared.database)
        tables = sqlalchemy.MetaData()
        tables.reflect(engine)
        kinds = {column.name: str(column.type) for column in tables.tables["typed"].columns}
        assert (kinds["n"], kinds["i"], kinds["t"], kinds["b"]) == ("BIGINT", "INTEGER", "VARCHAR", "BOOLEAN")

    def test_rows_are_selected_and_written(self, engine: sqlalchemy.Engine, shared: Lake) -> None:
        with engine.connect() as connection:
            connection.execute(
                sqlalchemy.text("create table made (id bigint, t string) tblproperties (primaryKey = 'id')")
            )
            made = sqlalchemy.Table("made", sqlalchemy.MetaData(), autoload_with=engine)
            connection.execute(made.insert().values([{"id": 1, "t": "it's"}, {"id": 2, "t": None}]))
            connection.execute(made.update().where(made.c.id == 2).values(t="two"))
            rows = connection.execute(sqlalchemy.select(made.c.id, made.c.t).order_by(made.c.id)).fetchall()
            assert rows == [(1, "it's"), (2, "two")]
            connection.execute(sqlalchemy.text("drop table made purge"))

    def test_pandas_reads_queries_and_tables(self, engine: sqlalchemy.Engine, shared: Lake) -> None:
        text = sqlalchemy.text("select n, at from typed where n = :n and i < :i")
        frame = pandas.read_sql(text, engine, params={"n": 1, "i": 0})
        assert frame.to_dict("list") == {"n": [1], "at": [pandas.Timestamp("2026-01-02 03:04:05.12")]}
        assert pandas.read_sql_table("typed", engine, columns=["n", "i"]).shape == (2, 2)


LONG = "select count(*) from range(100000000000) where cast(id as string) like '%x'"


@pytest.mark.spark
@pytest.mark.engine("spark")
@pytest.mark.parametrize("end", ["cancel", "time-out"])
@pytest.mark.parametrize("statement", [LONG, f"insert into t {LONG}"], ids=["query", "write"])
@pytest.mark.parametrize("known", [True, False], ids=["session given", "session found"])
def test_ending_a_statement_ends_spark_s_jobs(
    spark_lake: Lake, spark: Any, statement: str, end: str, known: bool
) -> None:
    lake = spark_lake if known else Lake(spark_lake.metastore, spark_lake.warehouse, database=spark_lake.database)
    spark_lake.sql("create table t (n bigint) tblproperties (primaryKey = 'n')")
    with sql_server(lake, SqlServerSettings(port=0, anonymous_writes=True, limits=Limits(grace_seconds=1))) as server:
        raw = Raw(server, spark_lake)
        tracker = spark.sparkContext.statusTracker()
        if end == "cancel":
            handle = raw.handle(statement, wait=False)
            (job,) = until(lambda: list(tracker.getActiveJobsIds()))
            raw.client.CancelOperation(ttypes.TCancelOperationReq(handle))
            assert raw.ended(handle).operationState == 3
            until(lambda: tracker.getJobInfo(job).status == "FAILED")
        else:  # it may come before there is a job, which is not to run then
            handle = raw.handle(statement, wait=False, queryTimeout=1)
            assert raw.ended(handle).operationState == 8
        counted = "select count(*) c from range(10)"  # begins when the statement has ended
        assert raw.fetch(raw.handle(counted)).results.columns[0].i64Val.values == [10]
        until(lambda: not tracker.getActiveJobsIds())
    assert spark_lake.table("t").read().to_arrow().num_rows == 0


def test_statements_are_shown_without_texts() -> None:
    assert shown("""select 'it\\'s' , "a b" from t""") == "select '…' , '…' from t"
    assert shown("SET a.password=secret and more") == "SET …"
    assert len(shown("x" * 100_000)) < 3000


class TestUsers:
    @pytest.fixture
    def users(self, tmp_path: Path) -> Users:
        file = tmp_path / "users"
        file.write_text(
            f"# people\nann:write:{kept_password('correct horse')}\nrob:read:{kept_password('battery staple')}\n\n"
            f"bot:read:{kept_token('a-long-random-token')}\n"
        )
        return Users.from_file(file)

    def test_who_is_known_gets_in(self, start: Start, users: Users) -> None:
        server = start(users=users)
        for name, password in (("ann", "correct horse"), ("bot", "a-long-random-token")):
            connection = hive.connect("127.0.0.1", port=server.port, auth="LDAP", username=name, password=password)
            assert ask(connection, "select 1") == [(1,)]
            web = hive.connect("127.0.0.1", port=server.http_port, scheme="http", username=name, password=password)
            assert ask(web, "select 1") == [(1,)]

    def test_nobody_else_does(self, start: Start, shared: Lake, users: Users) -> None:
        server = start(users=users)
        for name, password in (("ann", "battery staple"), ("eve", "correct horse"), ("", "a-long-random-token")):
            with pytest.raises(Exception, match=r"wrong|Bad status|401|Unauthorized|SASL|TSocket") as caught:
                hive.connect("127.0.0.1", port=server.port, auth="LDAP", username=name or "\t", password=password)
            assert "correct" not in str(caught.value)
            answer = httpx.post(f"http://127.0.0.1:{server.http_port}/cliservice", auth=(name, password), content=b"")
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
        bare = Raw(server, shared)  # without SASL nobody can prove who they are
        assert bare.session is None
        assert bare.opened.status.sqlState == "28000"

    def test_a_token_over_http(self, start: Start, users: Users) -> None:
        server = start(users=users)
        for token, works in (("a-long-random-token", True), ("another", False)):
            transport = THttpClient(f"http://127.0.0.1:{server.http_port}/cliservice")
            transport.setCustomHeaders({"Authorization": f"Bearer {token}"})
            client = TCLIService.Client(TBinaryProtocol(transport))
            if works:
                assert client.OpenSession(ttypes.TOpenSessionReq(5)).status.statusCode == OK
            else:
                with pytest.raises(Exception, match=r".*"):
                    client.OpenSession(ttypes.TOpenSessionReq(5))

    @pytest.mark.parametrize(
        "statement",
        [
            "insert into typed (n) values (5)",
            "delete from typed",
            "create table t2 (id int)",
            "drop table typed",
            "alter table typed set tblproperties ('a' = 'b')",
            "call rollback_to_instant(table => 'typed', instant_time => '1')",
            "truncate table typed",
            "refresh table typed",
        ],
    )
    def test_who_may_only_read_changes_nothing(self, start: Start, shared: Lake, users: Users, statement: str) -> None:
        given = {"username": "rob", "password": "battery staple", "database": shared.database}
        connection = hive.connect("127.0.0.1", port=start(users=users).port, auth="LDAP", **given)
        before = shared.table("typed").hudi.timeline.instants
        with pytest.raises(exc.OperationalError, match="may read, and not write") as caught:
            ask(connection, statement)
        assert caught.value.args[0].status.sqlState == "42501"
        assert shared.table("typed").hudi.timeline.instants == before
        assert ask(connection, "set hoodie.x=1") == [("hoodie.x", "1")]
        assert len(ask(connection, "call show_commits(table => 'typed', limit => 1)")) == 1

    def test_another_user_s_handle_is_unknown(self, start: Start, users: Users) -> None:
        server = start(users=users)

        def client(name: str, password: str) -> Any:
            transport = THttpClient(f"http://127.0.0.1:{server.http_port}/cliservice")
            hive.Connection._set_authorization_header(transport, name, password)
            return TCLIService.Client(TBinaryProtocol(transport))

        ann, rob = client("ann", "correct horse"), client("rob", "battery staple")
        session = ann.OpenSession(ttypes.TOpenSessionReq(9)).sessionHandle
        taken = rob.ExecuteStatement(ttypes.TExecuteStatementReq(session, "select 1"))
        assert "Invalid SessionHandle" in taken.status.errorMessage
        assert ann.ExecuteStatement(ttypes.TExecuteStatementReq(session, "select 1")).status.statusCode == OK

    def test_users_of_a_function(self, start: Start) -> None:
        users = Users(lambda name, password: User(name, may_write=False) if password == name[::-1] else None)
        connection = hive.connect("127.0.0.1", port=start(users=users).port, auth="LDAP", username="ab", password="ba")
        with pytest.raises(exc.OperationalError, match="ab may read"):
            ask(connection, "create database d")

    def test_without_users_nobody_writes_unless_allowed(self, start: Start) -> None:
        connection = pyhive(start(anonymous_writes=False), "NONE", username="ann")
        with pytest.raises(exc.OperationalError, match="ann may read"):
            ask(connection, "create database d")

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "names no user"),
            ("ann:write:secret", "line 1: not a user"),
            ("ann:admin:sha256$" + "0" * 64, "line 1: not a user"),
            (f"a:read:sha256${'0' * 64}\na:write:sha256${'1' * 64}", "line 2: user a occurs twice"),
        ],
    )
    def test_a_file_that_is_wrong_is_refused(self, tmp_path: Path, text: str, reason: str) -> None:
        (tmp_path / "users").write_text(text)
        with pytest.raises(InputError, match=reason) as caught:
            Users.from_file(tmp_path / "users")
        assert "secret" not in str(caught.value)

    def test_others_than_this_machine_s_users_are_asked(self, users: Users) -> None:
        with pytest.raises(InputError, match="only loopback"):
            SqlServerSettings(host="0.0.0.0").check()
        SqlServerSettings(host="0.0.0.0", users=users).check()
        with pytest.raises(InputError, match="right to write"):
            SqlServerSettings(users=users, anonymous_writes=True).check()


def connected(server: SqlServer) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port or 0), timeout=WAIT)
    made.settimeout(WAIT)
    return made


def is_closed(connection: socket.socket) -> bool:
    """Reads to the end of what the server sends."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass
    return True


def call(name: str, body: bytes) -> bytes:
    return struct.pack("!iI", -2147418111, len(name)) + name.encode() + struct.pack("!i", 0) + body


class TestBadClients:
    @pytest.mark.parametrize(
        "sent",
        [
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",  # of TLS
            b"\x00\x00\x00\x05hello",
            b"\x80\x01\x00\x01\x7f\xff\xff\xff",  # a name of two gigabytes
            b"\x80\x01\x00\x01\xff\xff\xff\xff",
            call("OpenSession", b"\x63\x00\x01"),  # no such type
            call("OpenSession", b"\x0c\x00\x01" + b"\x0c\x00\x63" * 5000),  # structs in structs
            call("OpenSession", b"\x0c\x00\x01\x0d\x00\x04\x0b\x0b\x7f\xff\xff\xff"),  # a map of 2^31 entries
            call("ExecuteStatement", b"\x0c\x00\x01\x0b\x00\x02\x3f\xff\xff\xff"),  # a statement of a gigabyte
            b"\x01\x00\x00\x00\x05PLAIN\x02\x7f\xff\xff\xff",
            b"\x01\x00\x00\x00\x06GSSAPI",
            b"\x01\x00\x00\x00\x05PLAIN\x05\x00\x00\x00\x03abc",
            b"\x01\x00\x00\x00\x05PLAIN\x05\x00\x00\x00\x04\0a\0\xff",
            b"\x01\x00\x00\x00\x05PLAIN\x05\x00\x00\x00\x05b\0a\0x",
            b"\x01\x00\x00\x00\x05PLAIN\x05\x00\x00\x00\x04\0a\0x\xff\xff\xff\xff",  # a frame of four gigabytes
            b"\x01\x00\x00\x00\x05PLAIN\x05\x00\x00\x00\x04\0a\0x\0\0\0\0",
        ],
    )
    def test_bad_bytes_end_their_connection_and_no_other(self, start: Start, shared: Lake, sent: bytes) -> None:
        server = start(http_port=None)
        other = Raw(server, shared)
        before = psutil.Process().memory_info().rss
        with connected(server) as connection:
            connection.sendall(sent)
            assert is_closed(connection)
        assert psutil.Process().memory_info().rss - before < 64 << 20
        assert other.handle("select 1")

    def test_giant_statements_are_refused(self, start: Start, shared: Lake) -> None:
        server = start(limits=Limits(message_bytes=1 << 20))
        raw = Raw(server, shared)
        assert raw.execute("select" + " " * 900_000 + "1").status.statusCode == OK
        with pytest.raises((TTransportException, OSError)):
            raw.execute("select" + " " * (2 << 20) + "1")
        url = f"http://127.0.0.1:{server.http_port}/cliservice"
        assert httpx.post(url, content=b"x" * (2 << 20)).status_code == 413
        assert httpx.post(url, content=b"x" * 100).status_code == 400
        assert httpx.get(url).status_code == 405

    def test_half_open_connections_are_closed(self, start: Start, shared: Lake) -> None:
        server = start(limits=Limits(handshake_seconds=0.3, message_seconds=0.5))
        with contextlib.ExitStack() as stack:
            halves = [b"", b"\x80", b"\x01\x00\x00", call("OpenSession", b"\x0c\x00\x01")]
            opened = [stack.enter_context(connected(server)) for _ in halves]
            for connection, half in zip(opened, halves, strict=True):
                connection.sendall(half)
            assert all(map(is_closed, opened))
        assert Raw(server, shared).handle("select 1")

    def test_slow_readers_keep_nobody_waiting(self, start: Start, shared: Lake) -> None:
        slow, other, handle = self.slow(start(), shared)
        assert other.handle("select 1")
        assert other.status(handle).status.statusCode == OK, "it was disconnected"
        slow.close()

    def test_slow_readers_are_disconnected(self, start: Start, shared: Lake) -> None:
        _slow, other, handle = self.slow(start(limits=Limits(message_seconds=1.0)), shared)
        until(lambda: other.status(handle).status.statusCode == ERROR)

    def slow(self, server: SqlServer, shared: Lake) -> tuple[Raw, Raw, Any]:
        """Two connections and a statement of the first, which asks for many pages and reads none."""
        slow, other = Raw(server, shared), Raw(server, shared)
        handle = slow.handle("select * from big")
        request = TMemoryBuffer()
        for _ in range(20):  # pages that are never read
            TCLIService.Client(TBinaryProtocol(request)).send_FetchResults(
                ttypes.TFetchResultsReq(handle, FIRST, 10_000)
            )
        slow.socket.handle.sendall(request.getvalue())
        return slow, other, handle

    def test_limits_of_connections_sessions_and_operations(self, start: Start, shared: Lake) -> None:
        server = start(limits=Limits(connections=4, sessions=2, operations=3))
        raw, other = Raw(server, shared), Raw(server, shared)
        refused = Raw(server, shared)
        assert refused.opened.status.sqlState == "08004"
        handles = [raw.handle("select 1") for _ in range(3)]
        assert raw.execute("select 1").status.sqlState == "54000"
        raw.client.CloseOperation(ttypes.TCloseOperationReq(handles[0]))
        assert raw.handle("select 1")
        with connected(server), connected(server) as fifth:
            assert is_closed(fifth)
        other.close()
        until(lambda: refused.client.OpenSession(ttypes.TOpenSessionReq(9)).sessionHandle)

    def test_what_nobody_uses_is_closed(self, start: Start, shared: Lake) -> None:
        server = start(limits=Limits(idle_session_seconds=0.6, idle_operation_seconds=0.1))
        raw = Raw(server, shared)
        handle = raw.handle("select 1")
        time.sleep(0.4)
        assert "Invalid OperationHandle" in raw.status(handle).status.errorMessage
        time.sleep(1.1)
        assert "Invalid SessionHandle" in raw.execute("select 1").status.errorMessage

    @pytest.mark.slow
    def test_no_client_fails_by_another(self, start: Start, shared: Lake) -> None:
        server = start()
        shared.create_table("hot", pa.schema([("id", pa.int64()), ("n", pa.int64())]), key="id", type="mor")
        ask(pyhive(server, "NONE", database=shared.database), "insert into hot values (1, 0), (2, 0)")

        def client(number: int) -> None:
            with contextlib.closing(pyhive(server, "NONE", database=shared.database)) as connection:
                for _ in range(3):
                    ask(connection, f"update hot set n = n + 1 where id <= {1 + number % 2}")
                    ask(connection, f"insert into hot values ({10 + number}, 0)")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(client, range(6)))
        counts = pyhive(server, "NONE", database=shared.database)
        assert ask(counts, "select id, n from hot where id < 10 order by id") == [(1, 18), (2, 9)]
        assert ask(counts, "select count(distinct id) from hot where id >= 10") == [(6,)]

    def test_fifty_clients_at_once(self, start: Start, shared: Lake) -> None:
        server = start(limits=Limits(statements=2))
        process = psutil.Process()
        before = process.memory_info().rss

        def one(number: int) -> list[tuple[Any, ...]]:
            way = ("NOSASL", "NONE", "http")[number % 3]
            connection = pyhive(server, way, database=shared.database)
            found = ask(connection, f"select id from big where id = {number}")
            connection.close()
            return found

        with ThreadPoolExecutor(50) as threads:
            assert list(threads.map(one, range(50))) == [[(number,)] for number in range(50)]
        assert process.memory_info().rss - before < 256 << 20
        until(lambda: sum("skep-sql-127" in thread.name for thread in threading.enumerate()) == 0)


class TestTls:
    def test_both_transports(self, start: Start, tmp_path: Path) -> None:
        authority = trustme.CA()
        made = authority.issue_cert("127.0.0.1")
        certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
        made.cert_chain_pems[0].write_to_path(str(certificate))
        made.private_key_pem.write_to_path(str(key))
        server = start(certificate=str(certificate), key=str(key))
        assert all(";ssl=true" in url for url in server.urls)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        secured = context.wrap_socket(connected(server), server_hostname="127.0.0.1")
        transport = TBufferedTransport(TSocket())
        transport._TBufferedTransport__trans.handle = secured
        client = TCLIService.Client(TBinaryProtocol(transport))
        session = client.OpenSession(ttypes.TOpenSessionReq(9)).sessionHandle
        assert client.ExecuteStatement(ttypes.TExecuteStatementReq(session, "select 1")).status.statusCode == OK
        web = hive.connect("127.0.0.1", port=server.http_port, scheme="https", ssl_cert="none", check_hostname="false")
        assert ask(web, "select 1") == [(1,)]
        with connected(server) as plain:  # not for clients without TLS
            plain.sendall(call("OpenSession", b"\x00" * 64))
            assert is_closed(plain)

    def test_a_certificate_that_is_none_is_refused(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "no.pem").write_text("nothing")
        with pytest.raises(InputError, match="can't be used"):
            start(certificate=str(tmp_path / "no.pem"))


class TestEncoding:
    def encoded(self, values: pa.Array, protocol: int = 9) -> Any:
        """Written and read by the generated code."""
        made = TMemoryBuffer()
        row_set(pa.table({"x": values}), 0, protocol).write(TBinaryProtocol(made))
        found = ttypes.TRowSet()
        found.read(TBinaryProtocol(TMemoryBuffer(made.getvalue())))
        return next(filter(None, vars(found.columns[0]).values()))

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (pa.array([1, None, 3, 4, 5, 6, 7, 8, None], pa.int8()), ([1, 0, 3, 4, 5, 6, 7, 8, 0], b"\x02\x01")),
            (pa.array([2**40, -1], pa.int64()), ([2**40, -1], b"")),
            (pa.array([2**31], pa.uint32()), ([2**31], b"")),
            (pa.array([2**63], pa.uint64()), ([str(2**63)], b"")),
            (pa.array(["", None, "é", "x" * 300]), (["", "", "é", "x" * 300], b"\x02")),
            (pa.array(["a", "b", "c"])[1:], (["b", "c"], b"")),
            (pa.array(["a", "a"]).dictionary_encode(), (["a", "a"], b"")),
            (pa.array([], pa.string()), ([], b"")),
            (pa.nulls(2), (["", ""], b"\x03")),
            (pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("s")), (["2026-01-01 00:00:00"], b"")),
            (pa.array([dt.datetime(2026, 1, 1, 0, 0, 10)], pa.timestamp("us")), (["2026-01-01 00:00:10"], b"")),
            (pa.array([1], pa.timestamp("ns")), (["1970-01-01 00:00:00.000000001"], b"")),
            (pa.array([dt.time(1, 2, 3)], pa.time64("us")), (["01:02:03.000000"], b"")),
            (
                pa.array([dt.timedelta(1, 3661, 5), -dt.timedelta(0, 1), None], pa.duration("us")),
                (["1 01:01:01.000005000", "-0 00:00:01.000000000", ""], b"\x04"),
            ),
            (pa.array([Decimal("1E+3")], pa.decimal128(10, 2)), (["1000.00"], b"")),
            (
                pa.array([[{"a": b"\x00", "b": dt.datetime(2026, 1, 1)}]]),
                (['[{"a":"AA==","b":"2026-01-01 00:00:00"}]'], b""),
            ),
        ],
        ids=str,
    )
    def test_values(self, values: pa.Array, expected: tuple[list[Any], bytes]) -> None:
        found = self.encoded(values)
        assert (found.values, found.nulls) == expected

    @pytest.mark.spark
    @pytest.mark.engine("spark")
    def test_intervals_are_texts_as_of_spark_s_server(self, spark_lake: Lake, spark: Any) -> None:
        query = "select interval '-1 02:03:04.5' day to second as i, interval '3' minute as m"
        rows = spark_lake.sql(query).to_arrow()
        plan = spark.sql(query)._jdf.queryExecution().executedPlan()
        shown = spark._jvm.org.apache.spark.sql.execution.HiveResult.hiveResultString(plan)
        assert [self.encoded(column.combine_chunks()).values[0] for column in rows.columns] == shown.head().split("\t")

    def test_special_floats(self) -> None:
        for kind in (pa.float32(), pa.float64()):
            values = self.encoded(pa.array([float("inf"), float("-inf"), float("nan"), -0.0, 0.1], kind)).values
            assert [str(value) for value in values] == ["inf", "-inf", "nan", "-0.0", "0.1"]

    def test_types(self) -> None:
        schema = pa.schema([("a", pa.decimal128(12, 3)), ("b", pa.list_(pa.int32()))])
        first, second = table_schema(schema).columns
        entry = first.typeDesc.types[0].primitiveEntry
        assert (first.columnName, first.position, entry.type) == ("a", 1, ttypes.TTypeId.DECIMAL_TYPE)
        assert {name: value.i32Value for name, value in entry.typeQualifiers.qualifiers.items()} == {
            "precision": 12,
            "scale": 3,
        }
        assert second.typeDesc.types[0].primitiveEntry.type == ttypes.TTypeId.ARRAY_TYPE


class TestResults:
    def test_many_rows_are_in_a_file_and_come_back_whole(self) -> None:
        table = pa.table({"n": range(1_200_000)})
        results = Results(table.schema, table.to_batches(), 1 << 30)
        assert results._file is not None
        name = Path(results._file.name)
        for _ in range(2):
            pages = list(iter(lambda: results.page(400_000, 1 << 20), table.schema.empty_table()))
            assert all(page.num_rows <= 140_000 for page in pages)  # by bytes
            assert pa.concat_tables(pages).equals(table)
            results.rewind()
        results.close()
        results.close()
        assert not name.exists()

    def test_too_many_bytes_are_an_error(self) -> None:
        table = pa.table({"n": range(1_200_000)})
        with pytest.raises(InputError, match="more than 4 MiB"):
            Results(table.schema, table.to_batches(), 4 << 20)


def run(arguments: Sequence[str], **given: Any) -> subprocess.Popen[str]:
    skep = str(Path(sys.executable).parent / "skep")
    return subprocess.Popen([skep, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given)


class TestCommandLine:
    @pytest.fixture
    def metastore_flags(self, metastore_server: EmbeddedMetastore, tmp_path: Path) -> list[str]:
        return ["--metastore", metastore_server.uri, "--warehouse", str(tmp_path / "lake")]

    def test_sql_server(self, metastore_flags: list[str], tmp_path: Path) -> None:
        made = CliRunner().invoke(app, ["sql-user", "ann", "--write"], input="correct horse\n")
        (tmp_path / "users").write_text(made.stdout)
        users = ["--users-file", str(tmp_path / "users"), "--port", "0", "--http-port", "0"]
        process = run(["sql-server", *users, *metastore_flags])
        try:
            assert process.stdout is not None
            url, web = process.stdout.readline().strip(), process.stdout.readline().strip()
            assert url.startswith("jdbc:hive2://127.0.0.1:")
            assert web.endswith("/default;transportMode=http;httpPath=cliservice")
            port = int(url.removeprefix("jdbc:hive2://127.0.0.1:").partition("/")[0])
            given = {"username": "ann", "password": "correct horse", "auth": "LDAP"}
            connection = hive.connect("127.0.0.1", port=port, **given)
            assert ask(connection, "select 1 + 1") == [(2,)]
        finally:
            process.send_signal(signal.SIGTERM)
            out, err = outcome(process)
        assert (process.returncode, out, err) == (0, "", "")

    @pytest.mark.slow
    def test_beside_the_http_service(self, metastore_flags: list[str], tmp_path: Path) -> None:
        flags = ["--no-token", "--port", "0", "--sql", "--sql-port", "0", *metastore_flags]
        process = run(["serve", *flags], env={**os.environ, "SKEP_SERVE_TOKEN": ""})
        try:
            assert process.stdout is not None
            addresses = [process.stdout.readline().strip() for _ in range(2)]
            port = int(addresses[0].removeprefix("jdbc:hive2://127.0.0.1:").partition("/")[0])
            assert httpx.get(f"{addresses[1]}/healthz").json() == {"status": "ok"}
            assert ("default",) in ask(hive.connect("127.0.0.1", port=port), "show databases")
        finally:
            process.send_signal(signal.SIGTERM)
            outcome(process)
        assert process.returncode == 0

    def test_wrong_usage(self) -> None:
        for arguments, reason in (
            (["sql-server", "--host", "0.0.0.0"], "only loopback"),
            (["serve", "--no-token", "--anonymous-writes"], "without --sql"),
            (["sql-user", "a:b"], "can't be a user's name"),
        ):
            found = CliRunner().invoke(app, arguments)
            assert reason in found.stderr
            assert found.exit_code == 2
