"""Glue's objects ↔ values. What has no name here (sort columns, retention, notes of crawlers) goes back as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from skep_catalog.entities import Column, Database, Partition, StorageDescriptor, TableEntry

Raw = Mapping[str, Any]

_TABLE: Final = ("Description", "LastAccessTime", "LastAnalyzedTime", "Retention", "TargetTable")
_PARTITION: Final = ("LastAccessTime", "LastAnalyzedTime")
"""What Glue's input of an entry takes of its answer as it is."""


def database_of(raw: Raw) -> Database:
    """From an answer."""
    return Database(raw["Name"], raw.get("Description"), raw.get("LocationUri"), raw.get("Parameters") or {})


def database_input(database: Database) -> dict[str, Any]:
    """A `DatabaseInput`."""
    return _set(
        Name=database.name.lower(),
        Description=database.description,
        LocationUri=database.location,
        Parameters=dict(database.parameters) or None,
    )


def table_of(raw: Raw) -> TableEntry:
    """From an answer, which it remembers."""
    return TableEntry(
        database=raw["DatabaseName"],
        name=raw["Name"],
        storage=_storage_of(raw.get("StorageDescriptor") or {}),
        partition_keys=_columns_of(raw.get("PartitionKeys") or ()),
        parameters=raw.get("Parameters") or {},
        table_type=raw.get("TableType"),
        owner=raw.get("Owner"),
        create_time=_seconds(raw.get("CreateTime")),
        view_query=raw.get("ViewExpandedText"),
        view_written=raw.get("ViewOriginalText"),
        origin=raw,
    )


def table_input(table: TableEntry) -> dict[str, Any]:
    """A `TableInput`."""
    origin: Raw = table.origin or {}
    return _set(
        **kept(origin),
        Name=table.name.lower(),
        Owner=table.owner,
        StorageDescriptor=_storage_to(table.storage, origin.get("StorageDescriptor") or {}),
        PartitionKeys=_columns_to(table.partition_keys, origin.get("PartitionKeys") or ()),
        Parameters=dict(table.parameters),
        TableType=table.table_type,
        ViewExpandedText=table.view_query,
        ViewOriginalText=table.view_written,
    )


def kept(raw: Raw) -> dict[str, Any]:
    """Of an entry as it is what an entry that was not read from it does not know."""
    return {key: raw[key] for key in _TABLE if key in raw}


def partition_of(raw: Raw) -> Partition:
    """From an answer, which it remembers."""
    return Partition(
        tuple(raw.get("Values") or ()),
        _storage_of(raw.get("StorageDescriptor") or {}),
        raw.get("Parameters") or {},
        _seconds(raw.get("CreationTime")),
        raw,
    )


def partition_input(partition: Partition) -> dict[str, Any]:
    """A `PartitionInput`."""
    origin: Raw = partition.origin or {}
    return _set(
        **{key: origin[key] for key in _PARTITION if key in origin},
        Values=list(partition.values),
        StorageDescriptor=_storage_to(partition.storage, origin.get("StorageDescriptor") or {}),
        Parameters=dict(partition.parameters),
    )


def _storage_of(raw: Raw) -> StorageDescriptor:
    serde = raw.get("SerdeInfo") or {}
    return StorageDescriptor(
        columns=_columns_of(raw.get("Columns") or ()),
        location=raw.get("Location"),
        input_format=raw.get("InputFormat"),
        output_format=raw.get("OutputFormat"),
        serde_library=serde.get("SerializationLibrary"),
        serde_parameters=serde.get("Parameters") or {},
        serde_name=serde.get("Name"),
        bucket_columns=tuple(raw.get("BucketColumns") or ()),
        num_buckets=raw.get("NumberOfBuckets") or 0,
        parameters=raw.get("Parameters") or {},
        stored_as_subdirectories=bool(raw.get("StoredAsSubDirectories")),
    )


def _storage_to(storage: StorageDescriptor, origin: Raw) -> dict[str, Any]:
    return _set(
        **{
            **origin,
            "Columns": _columns_to(storage.columns, origin.get("Columns") or ()),
            "Location": storage.location,
            "InputFormat": storage.input_format,
            "OutputFormat": storage.output_format,
            "SerdeInfo": _set(
                Name=storage.serde_name,
                SerializationLibrary=storage.serde_library,
                Parameters=dict(storage.serde_parameters),
            ),
            "BucketColumns": list(storage.bucket_columns) or None,
            "NumberOfBuckets": storage.num_buckets,
            "Parameters": dict(storage.parameters) or None,
            "StoredAsSubDirectories": storage.stored_as_subdirectories,
        }
    )


def _columns_of(raws: Sequence[Raw]) -> tuple[Column, ...]:
    return tuple(Column(raw["Name"], raw.get("Type") or "", raw.get("Comment")) for raw in raws)


def _columns_to(columns: Sequence[Column], origin: Sequence[Raw]) -> list[dict[str, Any]]:
    parameters = {raw["Name"]: raw.get("Parameters") for raw in origin}
    return [_set(Name=c.name, Type=c.type, Comment=c.comment, Parameters=parameters.get(c.name)) for c in columns]


def _set(**fields: Any) -> dict[str, Any]:
    """Glue takes no nulls."""
    return {key: value for key, value in fields.items() if value is not None}


def _seconds(time: datetime | None) -> int:
    return 0 if time is None else int(time.timestamp())
