"""The calls of HiveServer2's protocol for one client: requests in, answers out, errors as statuses with SQLSTATE."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pyarrow as pa
from TCLIService import TCLIService, ttypes
from thrift.Thrift import TType
from thrift.transport.TTransport import TTransportException

from skep.serve.hive import metadata
from skep.serve.hive.encode import row_set, table_schema
from skep.serve.hive.operations import CallError, Handle, HiveOperation, OperationState, failure_of
from skep.serve.hive.results import Results
from skep.serve.hive.sessions import Client, SqlHub, SqlSession
from skep_format.distribution import installed_version

_OWN_VERSION: Final = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10
_STATUS: Final = ttypes.TStatusCode
_KIND: Final = ttypes.TOperationType
_FIRST, _NEXT = ttypes.TFetchOrientation.FETCH_FIRST, ttypes.TFetchOrientation.FETCH_NEXT
_LOGS: Final = 1  # the fetch type
_POLL_SECONDS: Final = 1.0
_OK: Final = ttypes.TStatus(_STATUS.SUCCESS_STATUS)
_LOG_SCHEMA: Final = pa.schema([("operation_log", pa.string())])
_NAME_LENGTHS: Final = (30, 32, 35)  # of columns, schemas and tables
_LONGEST_NAME: Final = 128

Call = TypeVar("Call", bound=Callable[..., Any])


class ConnectionLostError(TTransportException):
    """The client's connection was closed while its statement ran."""


class _OperationStatus(ttypes.TGetOperationStatusResp):
    """With the field for rows that were changed, which the generated code is too old for."""

    thrift_spec = (*ttypes.TGetOperationStatusResp.thrift_spec, (11, TType.I64, "numModifiedRows", None, None))
    numModifiedRows: int | None = None

    def write(self, protocol: Any) -> None:
        """As generated code does."""
        protocol.writeStruct(self, self.thrift_spec)


def _status(error: BaseException) -> Any:
    failure = failure_of(error)
    return ttypes.TStatus(
        _STATUS.ERROR_STATUS, sqlState=failure.sql_state, errorCode=failure.code, errorMessage=failure.message
    )


def _answering(answer: type, **filler: Any) -> Callable[[Call], Call]:
    """Errors of the call become the status of its answer; `filler` is what clients need beside it."""

    def around(call: Call) -> Call:
        @functools.wraps(call)
        def answered(self: HiveCalls, request: Any) -> Any:
            try:
                return call(self, request)
            except ConnectionLostError:
                raise
            except Exception as error:
                return answer(status=_status(error), **filler)

        return answered  # type: ignore[return-value]

    return around


def _listing(answer: type, kind: int, rows: Callable[[SqlSession, Any], pa.Table]) -> Callable[[HiveCalls, Any], Any]:
    """A call whose answer is an operation with rows about the catalog."""

    @_answering(answer)
    def call(self: HiveCalls, request: Any) -> Any:
        session = self._session(request)
        operation = HiveOperation(kind, lambda _: Results.of(rows(session, request)))
        session.add(operation)
        operation.run()
        if operation.failure is not None:
            session.close_operation(operation)
            raise CallError.of(operation.failure)
        return answer(_OK, _operation_handle(operation))

    return call


def _no_tokens(answer: type) -> Callable[[HiveCalls, Any], Any]:
    @_answering(answer)
    def call(_self: HiveCalls, _request: Any) -> Any:
        raise CallError("delegation tokens are not supported", "0A000")

    return call


class HiveCalls:
    """The handler of the generated processor, one for each client. Methods have the protocol's names."""

    def __init__(self, hub: SqlHub, client: Client) -> None:
        self._hub, self._client = hub, client

    # -- sessions

    @_answering(ttypes.TOpenSessionResp, serverProtocolVersion=_OWN_VERSION)
    def OpenSession(self, request: Any) -> Any:
        """The version of the protocol is the client's, or the newest one here."""
        version = min(max(request.client_protocol, 0), _OWN_VERSION)
        session = self._hub.open(self._client, version, request.configuration or {}, request.username or "")
        return ttypes.TOpenSessionResp(
            status=_OK,
            serverProtocolVersion=version,
            sessionHandle=ttypes.TSessionHandle(_identifier(session.handle)),
            configuration={"hive.server2.thrift.resultset.default.fetch.size": "1000"},
        )

    @_answering(ttypes.TCloseSessionResp)
    def CloseSession(self, request: Any) -> Any:
        """Its operations are cancelled."""
        self._hub.close_session(self._session(request))
        return ttypes.TCloseSessionResp(_OK)

    @_answering(ttypes.TGetInfoResp, infoValue=ttypes.TGetInfoValue(stringValue=""))
    def GetInfo(self, request: Any) -> Any:
        """The server's name and version, and how long names may be."""
        self._session(request)
        kind = ttypes.TGetInfoType
        if request.infoType in (kind.CLI_SERVER_NAME, kind.CLI_DBMS_NAME):
            value = ttypes.TGetInfoValue(stringValue="skep")
        elif request.infoType == kind.CLI_DBMS_VER:
            value = ttypes.TGetInfoValue(stringValue=installed_version() or "from source")
        elif request.infoType in _NAME_LENGTHS:
            value = ttypes.TGetInfoValue(lenValue=_LONGEST_NAME)
        else:
            raise CallError(f"GetInfo of type {request.infoType} is not supported", "0A000")
        return ttypes.TGetInfoResp(_OK, value)

    # -- statements

    @_answering(ttypes.TExecuteStatementResp)
    def ExecuteStatement(self, request: Any) -> Any:
        """Returns when the statement has ended, or at once with `runAsync`."""
        session = self._session(request)
        # Older clients' generated code has no time-out.
        seconds = float(getattr(request, "queryTimeout", 0) or 0)
        operation = session.execute(request.statement, request.confOverlay or {}, seconds)
        if not request.runAsync:
            self._wait(session, operation)
            if operation.failure is not None:
                session.close_operation(operation)
                raise CallError.of(operation.failure)
        return ttypes.TExecuteStatementResp(_OK, _operation_handle(operation))

    def _wait(self, session: SqlSession, operation: HiveOperation) -> None:
        """Until the operation ends, which is not idle meanwhile. ConnectionLostError where the client leaves."""
        while not operation.wait(0.5):
            session.last_used = operation.last_used
            if self._client.has_left():
                session.close_operation(operation)
                raise ConnectionLostError(message="the client closed its connection")
            operation.used()

    @_answering(ttypes.TGetOperationStatusResp)
    def GetOperationStatus(self, request: Any) -> Any:
        """Waits a moment for the end, so that clients need not ask all the time."""
        _, operation = self._operation(request)
        operation.wait(_POLL_SECONDS)
        failure = operation.failure
        answer = _OperationStatus(
            status=_OK,
            operationState=int(operation.state),
            sqlState=failure and failure.sql_state,
            errorCode=failure and failure.code,
            errorMessage=failure and failure.message,
            operationStarted=int(operation.began * 1000),
            operationCompleted=int(operation.completed * 1000),
            hasResultSet=operation.has_rows,
        )
        answer.numModifiedRows = operation.changed
        return answer

    @_answering(ttypes.TCancelOperationResp)
    def CancelOperation(self, request: Any) -> Any:
        """Of a write the engine is asked to stop; where that is too late the write finishes, and is reported so."""
        _, operation = self._operation(request)
        operation.cancel()
        return ttypes.TCancelOperationResp(_OK)

    @_answering(ttypes.TCloseOperationResp)
    def CloseOperation(self, request: Any) -> Any:
        """Frees its rows."""
        session, operation = self._operation(request)
        session.close_operation(operation)
        return ttypes.TCloseOperationResp(_OK)

    @_answering(ttypes.TGetResultSetMetadataResp)
    def GetResultSetMetadata(self, request: Any) -> Any:
        """Names and types of the columns, once the statement has ended."""
        session, operation = self._operation(request)
        if not operation.has_rows:
            raise CallError("the statement has no result set", "24000")
        self._wait(session, operation)
        return ttypes.TGetResultSetMetadataResp(_OK, table_schema(_results(operation).schema))

    @_answering(ttypes.TFetchResultsResp)
    def FetchResults(self, request: Any) -> Any:
        """The next page of rows, or of the log; an empty one is the end."""
        session, operation = self._operation(request)
        if request.orientation not in (_FIRST, _NEXT):
            raise CallError("rows are fetched from the first one, or the next ones", "HY106")
        limits = self._hub.limits
        count = min(max(request.maxRows or 0, 1), limits.page_rows)
        first = request.orientation == _FIRST
        if getattr(request, "fetchType", 0) == _LOGS:
            lines = operation.lines(count, first=first)
            found = row_set(pa.table([lines], schema=_LOG_SCHEMA), 0, session.protocol)
            return ttypes.TFetchResultsResp(_OK, False, found)
        self._wait(session, operation)
        with operation.reading:
            results = _results(operation)
            if first:
                results.rewind()
            offset = results.position
            page = results.page(count, limits.page_bytes)
            found = row_set(page, offset, session.protocol)
        return ttypes.TFetchResultsResp(_OK, False, found)

    @_answering(ttypes.TGetLogResp, log="")
    def GetLog(self, request: Any) -> Any:
        """The lines of the log since it was last asked for."""
        _, operation = self._operation(request)
        return ttypes.TGetLogResp(_OK, "\n".join(operation.lines(self._hub.limits.page_rows)))

    # -- metadata

    GetTypeInfo = _listing(ttypes.TGetTypeInfoResp, _KIND.GET_TYPE_INFO, lambda *_: metadata.type_info())
    # databases are schemas, there are no catalogs
    GetCatalogs = _listing(ttypes.TGetCatalogsResp, _KIND.GET_CATALOGS, lambda *_: metadata.CATALOGS.empty_table())
    GetSchemas = _listing(
        ttypes.TGetSchemasResp, _KIND.GET_SCHEMAS, lambda session, asked: metadata.schemas(session, asked.schemaName)
    )
    GetTables = _listing(
        ttypes.TGetTablesResp,
        _KIND.GET_TABLES,
        lambda session, asked: metadata.tables(session, asked.schemaName, asked.tableName, asked.tableTypes),
    )
    GetTableTypes = _listing(ttypes.TGetTableTypesResp, _KIND.GET_TABLE_TYPES, lambda *_: metadata.TABLE_TYPES)
    GetColumns = _listing(
        ttypes.TGetColumnsResp,
        _KIND.GET_COLUMNS,
        lambda session, asked: metadata.columns(session, asked.schemaName, asked.tableName, asked.columnName),
    )
    GetFunctions = _listing(
        ttypes.TGetFunctionsResp, _KIND.GET_FUNCTIONS, lambda _, asked: metadata.functions(asked.functionName)
    )
    GetPrimaryKeys = _listing(
        ttypes.TGetPrimaryKeysResp,
        _KIND.UNKNOWN,
        lambda session, asked: metadata.primary_keys(session, asked.schemaName, asked.tableName),
    )
    GetCrossReference = _listing(
        ttypes.TGetCrossReferenceResp, _KIND.UNKNOWN, lambda *_: metadata.CROSS_REFERENCE.empty_table()
    )

    # -- tokens of Kerberos

    GetDelegationToken = _no_tokens(ttypes.TGetDelegationTokenResp)
    CancelDelegationToken = _no_tokens(ttypes.TCancelDelegationTokenResp)
    RenewDelegationToken = _no_tokens(ttypes.TRenewDelegationTokenResp)

    # -- handles

    def _session(self, request: Any) -> SqlSession:
        return self._hub.session(self._client, *_named(request.sessionHandle, "session"))

    def _operation(self, request: Any) -> tuple[SqlSession, HiveOperation]:
        return self._hub.operation(self._client, *_named(request.operationHandle, "operation"))


def _named(handle: Any, what: str) -> tuple[bytes, bytes]:
    """The parts of a handle that a client gives. CallError where it gives none."""
    found = getattr(handle, f"{what}Id", None)
    if found is None:
        raise CallError(f"Invalid {what.capitalize()}Handle: none is given")
    return found.guid or b"", found.secret or b""


def _results(operation: HiveOperation) -> Results:
    """CallError where there are none, or none any more."""
    if operation.results is not None:
        return operation.results
    if operation.failure is not None:
        raise CallError.of(operation.failure)
    if operation.state is OperationState.CLOSED:
        raise CallError("the operation is closed", "24000")
    raise CallError("the statement has no result set", "24000")


def _identifier(handle: Handle) -> Any:
    return ttypes.THandleIdentifier(handle.guid, handle.secret)


def _operation_handle(operation: HiveOperation) -> Any:
    return ttypes.TOperationHandle(_identifier(operation.handle), operation.kind, operation.has_rows)


def processor(hub: SqlHub, client: Client) -> Any:
    """Reads a call, carries it out, writes its answer."""
    return TCLIService.Processor(HiveCalls(hub, client))
