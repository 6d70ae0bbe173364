"""Thrift objects of the Hive Metastore ↔ skep's frozen values."""

from __future__ import annotations

import copy
import functools
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from hmsclient.genthrift.hive_metastore import ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TType

from skep_catalog.entities import (
    Column,
    ColumnStatistics,
    Database,
    LockInfo,
    LockState,
    Partition,
    StorageDescriptor,
    TableEntry,
)
from skep_format.errors import UnsupportedError


class ThriftTable(ttypes.Table):
    """With the fields of metastores from 3.1 on, which the generated class lacks.

    Without them an entry that is read, altered and written back would lose them: the server would take an owner that
    is a role for a user. (Thrift's C code reads and writes by these specs; its Python one, used where C is missing,
    drops them.)
    """

    thrift_spec = (
        *ttypes.Table.thrift_spec,
        None,
        (17, TType.STRING, "catName", "UTF8", None),
        (18, TType.I32, "ownerType", None, None),
    )
    catName = ownerType = None


class MetastoreProtocol(TBinaryProtocolAccelerated):
    """Passes Thrift's C code the specs of the generated classes, with `ThriftTable` for that of tables."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport, fallback=True)
        for name in ("_fast_decode", "_fast_encode"):
            setattr(self, name, _with_specs(getattr(self, name)))


def _with_specs(code: Any) -> Any:
    return code and (lambda *given: code(*given[:-1], _spec_of(given[-1][0])))


@functools.cache
def _spec_of(kind: Any) -> Any:
    return _newer([kind, kind.thrift_spec])


def _newer(spec: Any) -> Any:
    if isinstance(spec, list) and spec[:1] == [ttypes.Table]:
        return [ThriftTable, ThriftTable.thrift_spec]
    return type(spec)(map(_newer, spec)) if isinstance(spec, list | tuple) else spec


def database_of(raw: Any) -> Database:
    """A database as read."""
    return Database(raw.name, raw.description, raw.locationUri, raw.parameters or {}, raw.ownerName)


def database_to(database: Database) -> Any:
    """A database to write."""
    return ttypes.Database(
        name=database.name,
        description=database.description,
        locationUri=database.location,
        parameters=dict(database.parameters),
    )


def columns_of(raw: Any) -> tuple[Column, ...]:
    """Columns as read; none for None."""
    return tuple(Column(field.name, field.type, field.comment) for field in raw or ())


def _columns_to(columns: tuple[Column, ...]) -> list[Any]:
    return [ttypes.FieldSchema(name=c.name, type=c.type, comment=c.comment) for c in columns]


def storage_of(raw: Any) -> StorageDescriptor:
    """A storage descriptor as read; an empty one for None."""
    if raw is None:  # a view's
        return StorageDescriptor()
    serde = raw.serdeInfo or ttypes.SerDeInfo()
    return StorageDescriptor(
        columns=columns_of(raw.cols),
        location=raw.location,
        input_format=raw.inputFormat,
        output_format=raw.outputFormat,
        serde_library=serde.serializationLib,
        serde_parameters=serde.parameters or {},
        serde_name=serde.name,
        bucket_columns=tuple(raw.bucketCols or ()),
        num_buckets=raw.numBuckets or 0,
        parameters=raw.parameters or {},
        stored_as_subdirectories=bool(raw.storedAsSubDirectories),
    )


def storage_to(storage: StorageDescriptor, origin: Any = None) -> Any:
    """`origin` is the descriptor that was read; what skep has no name for stays as there."""
    raw = origin if origin is not None else ttypes.StorageDescriptor(compressed=False, sortCols=[])
    raw.cols = _columns_to(storage.columns)
    raw.location = storage.location
    raw.inputFormat = storage.input_format
    raw.outputFormat = storage.output_format
    raw.serdeInfo = ttypes.SerDeInfo(
        name=storage.serde_name,
        serializationLib=storage.serde_library,
        parameters=dict(storage.serde_parameters),
    )
    raw.bucketCols = list(storage.bucket_columns)
    raw.numBuckets = storage.num_buckets
    raw.parameters = dict(storage.parameters)
    raw.storedAsSubDirectories = storage.stored_as_subdirectories
    return raw


def table_of(raw: Any) -> TableEntry:
    """A table as read; `origin` keeps the fields that `TableEntry` lacks."""
    return TableEntry(
        database=raw.dbName,
        name=raw.tableName,
        storage=storage_of(raw.sd),
        partition_keys=columns_of(raw.partitionKeys),
        parameters=raw.parameters or {},
        table_type=raw.tableType,
        owner=raw.owner,
        create_time=raw.createTime or 0,
        view_query=raw.viewExpandedText or None,
        view_written=raw.viewOriginalText or None,
        origin=raw,
    )


def table_to(table: TableEntry) -> Any:
    """A table to write; fields that `TableEntry` lacks are those of its `origin`."""
    raw = copy.deepcopy(table.origin) if table.origin is not None else ThriftTable(lastAccessTime=0, retention=0)
    raw.dbName, raw.tableName = table.database, table.name
    raw.owner, raw.createTime, raw.tableType = table.owner, table.create_time, table.table_type
    raw.sd = storage_to(table.storage, raw.sd)
    raw.partitionKeys = _columns_to(table.partition_keys)
    raw.parameters = dict(table.parameters)
    raw.viewExpandedText, raw.viewOriginalText = table.view_query, table.view_written
    return raw


def partition_of(raw: Any) -> Partition:
    """A partition as read; `origin` keeps the fields that `Partition` lacks."""
    return Partition(
        tuple(raw.values),
        storage_of(raw.sd),
        raw.parameters or {},
        raw.createTime or 0,
        raw,
    )


def partition_to(partition: Partition, database: str, table: str) -> Any:
    """A partition to write; fields that `Partition` lacks are those of its `origin`."""
    raw = copy.deepcopy(partition.origin) if partition.origin is not None else ttypes.Partition(lastAccessTime=0)
    raw.values = list(partition.values)
    raw.dbName, raw.tableName = database, table
    raw.createTime = partition.create_time
    raw.sd = storage_to(partition.storage, raw.sd)
    raw.parameters = dict(partition.parameters)
    return raw


def lock_of(raw: Any) -> LockInfo:
    """One lock of a `show_locks` answer."""
    return LockInfo(
        lock_id=raw.lockid,
        state=LockState(raw.state),
        type=ttypes.LockType._VALUES_TO_NAMES.get(raw.type, str(raw.type)),
        database=raw.dbname,
        table=raw.tablename,
        partition=raw.partname,
        user=raw.user,
        host=raw.hostname,
        agent_info=raw.agentInfo,
        last_heartbeat_ms=raw.lastheartbeat,
        acquired_at_ms=raw.acquiredat or None,
        blocked_by=raw.blockedByExtId or None,
    )


# -- statistics: the union's field by the kind of a column's type

_EPOCH: Final = date(1970, 1, 1)
_KINDS: Final = {
    "boolean": ("booleanStats", ttypes.BooleanColumnStatsData),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "timestamp"), ("longStats", ttypes.LongColumnStatsData)),
    **dict.fromkeys(("float", "double"), ("doubleStats", ttypes.DoubleColumnStatsData)),
    **dict.fromkeys(("string", "varchar", "char"), ("stringStats", ttypes.StringColumnStatsData)),
    "binary": ("binaryStats", ttypes.BinaryColumnStatsData),
    "decimal": ("decimalStats", ttypes.DecimalColumnStatsData),
    "date": ("dateStats", ttypes.DateColumnStatsData),
}
_FIELDS: Final = {
    "nulls": "numNulls",
    "distinct": "numDVs",
    "low": "lowValue",
    "high": "highValue",
    "average_length": "avgColLen",
    "max_length": "maxColLen",
    "trues": "numTrues",
    "falses": "numFalses",
}


def statistics_of(raw: Any) -> ColumnStatistics:
    """The statistics of one column as read."""
    data = next(value for name, _ in _KINDS.values() if (value := getattr(raw.statsData, name)) is not None)
    values = {mine: _value_of(getattr(data, theirs, None)) for mine, theirs in _FIELDS.items()}
    return ColumnStatistics(raw.colName, raw.colType, **{**values, "nulls": values["nulls"] or 0})


def statistics_to(statistics: ColumnStatistics) -> Any:
    """UnsupportedError for a type of which metastores keep none."""
    kind = statistics.type.partition("(")[0].lower()
    if kind not in _KINDS:
        raise UnsupportedError(
            f"column {statistics.column}: metastores keep no statistics of {statistics.type}", column=statistics.column
        )
    name, make = _KINDS[kind]
    known = {field[2] for field in make.thrift_spec if field}
    values = {theirs: _value_to(getattr(statistics, mine)) for mine, theirs in _FIELDS.items() if theirs in known}
    required = {theirs: 0 for theirs in values if theirs not in ("lowValue", "highValue")}
    data = make(**required | {theirs: value for theirs, value in values.items() if value is not None})
    return ttypes.ColumnStatisticsObj(statistics.column, statistics.type, ttypes.ColumnStatisticsData(**{name: data}))


def _value_of(raw: Any) -> Any:
    if isinstance(raw, ttypes.Decimal):
        unscaled = int.from_bytes(raw.unscaled, "big", signed=True)
        return Decimal(unscaled).scaleb(-raw.scale)
    if isinstance(raw, ttypes.Date):
        return _EPOCH + timedelta(days=raw.daysSinceEpoch)
    return raw


def _value_to(value: Any) -> Any:
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        unscaled = int(value.scaleb(scale))
        return ttypes.Decimal(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True), scale)
    if isinstance(value, date):
        return ttypes.Date((value - _EPOCH).days)
    return value
