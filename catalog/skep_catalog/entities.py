"""What a metastore holds, as frozen values: databases, tables, partitions and their names, locks.

Tables and partitions remember the Thrift object they were read from (`origin`), so that what skep has no name for
(privileges, skew, rewrite flags) goes back unchanged when an altered copy is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from skep_format.escaping import escape, unescape
from skep_format.names import DEFAULT_PARTITION


@dataclass(frozen=True, slots=True)
class Database:
    """A database; `location` is the folder of its managed tables."""

    name: str
    description: str | None = None
    location: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column or partition key; `type` is Hive's type text."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class StorageDescriptor:
    """Where the data of a table or partition lies and with which classes Hive reads it."""

    columns: tuple[Column, ...] = ()
    location: str | None = None
    input_format: str | None = None
    output_format: str | None = None
    serde_library: str | None = None
    serde_parameters: Mapping[str, str] = field(default_factory=dict)
    serde_name: str | None = None
    bucket_columns: tuple[str, ...] = ()
    num_buckets: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    stored_as_subdirectories: bool = False


@dataclass(frozen=True, slots=True)
class TableEntry:
    """`create_time`: epoch seconds, by the server. `table_type`: EXTERNAL_TABLE, MANAGED_TABLE or VIRTUAL_VIEW.

    `view_query` and `view_written` are a view's query, with all names complete and as it was written.
    """

    database: str
    name: str
    storage: StorageDescriptor = field(default_factory=StorageDescriptor)
    partition_keys: tuple[Column, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    table_type: str | None = None
    owner: str | None = None
    create_time: int = 0
    view_query: str | None = None
    view_written: str | None = None
    origin: Any = field(default=None, repr=False, compare=False)

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: one value per partition key, its descriptor and parameters."""

    values: tuple[str, ...]
    storage: StorageDescriptor = field(default_factory=StorageDescriptor)
    parameters: Mapping[str, str] = field(default_factory=dict)
    create_time: int = 0
    origin: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionIndexes:
    """What indexes of a table's partitions lack: columns of those to add, names of those to drop."""

    add: tuple[tuple[str, ...], ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What a planner uses: of numbers, decimals and dates the least and the greatest value, of text and binary the
    lengths, of booleans the counts. None: unknown."""

    column: str
    type: str
    nulls: int = 0
    distinct: int | None = None
    low: int | float | Decimal | date | None = None
    high: int | float | Decimal | date | None = None
    average_length: float | None = None
    max_length: int | None = None
    trues: int | None = None
    falses: int | None = None


class LockState(Enum):
    """States of a metastore lock, by Thrift's numbers."""

    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


@dataclass(frozen=True, slots=True)
class LockAnswer:
    """The id of a requested lock, and whether it was granted."""

    lock_id: int
    state: LockState


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock as `show_locks` lists it. Times: epoch milliseconds, the metastore's clock; `blocked_by`: a lock id."""

    lock_id: int
    state: LockState
    type: str
    database: str
    table: str | None
    partition: str | None
    user: str
    host: str
    agent_info: str | None
    last_heartbeat_ms: int
    acquired_at_ms: int | None
    blocked_by: int | None


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """The name by which the metastore knows a partition: `k=v/…`, keys in lower case, both escaped."""
    return "/".join(
        f"{escape(key.lower())}={escape(value) or DEFAULT_PARTITION}" for key, value in zip(keys, values, strict=True)
    )


def values_of_name(name: str) -> tuple[str, ...]:
    """The values in a metastore's partition name."""
    return tuple(unescape(level.partition("=")[2]) for level in name.split("/"))
