"""A partition's own descriptor, as engines read it, compared with that of its table's entry.

Hive opens a partition with the classes, columns and serde parameters of the partition, not with those of the table;
Presto's and Trino's hive connectors take the input format from there. A partition's location is compared elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from skep_catalog.entities import StorageDescriptor
from skep_catalog.entries import READ_OPTIMIZED
from skep_sync.planning.columns import same_columns
from skep_sync.planning.locations import lies_below, registered_there

COLUMNS: Final = "columns"
_PATH: Final = "path"
_OF_THE_TABLE: Final = (_PATH, READ_OPTIMIZED)
CLASSES: Final = ("input_format", "output_format", "serde_library", "stored_as_subdirectories")
"""With what engines read the files."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """A partition by its name, and which aspects of its descriptor are not as the table's entry has them."""

    name: str
    aspects: tuple[str, ...]


def drift(storage: StorageDescriptor, table: StorageDescriptor) -> tuple[str, ...]:
    """The aspects in which a partition's descriptor is not the table's. Foreign serde parameters do not count."""
    found = [name.replace("_", " ") for name in CLASSES if getattr(storage, name) != getattr(table, name)]
    if _parameters(storage, table) != storage.serde_parameters:
        found.append("serde parameters")
    if _buckets(storage) != _buckets(table):
        found.append("buckets")
    if storage.columns != table.columns and not same_columns(storage.columns, table.columns):
        found.append(COLUMNS)
    return tuple(found)


def aligned(storage: StorageDescriptor, table: StorageDescriptor, *, columns: bool = True) -> StorageDescriptor:
    """A partition's descriptor as its table's entry has it, at the partition's own location."""
    return replace(
        storage,
        columns=table.columns if columns and not same_columns(storage.columns, table.columns) else storage.columns,
        **{name: getattr(table, name) for name in CLASSES},
        serde_parameters=_parameters(storage, table),
        bucket_columns=table.bucket_columns,
        num_buckets=storage.num_buckets if _buckets(storage) == _buckets(table) else table.num_buckets,
    )


def of_partition(table: StorageDescriptor, location: str) -> StorageDescriptor:
    """The descriptor of a new partition: its table's, without what Spark reads at the table only.

    A metastore keeps each serde parameter in a row per partition: these two would be two more to insert and to delete.
    """
    parameters = {key: value for key, value in table.serde_parameters.items() if key not in _OF_THE_TABLE}
    return replace(table, location=location, serde_parameters=parameters)


def _parameters(storage: StorageDescriptor, table: StorageDescriptor) -> Mapping[str, str]:
    """A partition's serde parameters with the table's values.

    Of Spark's own two, which Spark reads at the table only, a partition need have none; its path may be its own.
    """
    found = dict(storage.serde_parameters)
    for key, value in table.serde_parameters.items():
        if key in _OF_THE_TABLE and key not in found:
            continue
        if key == _PATH and (registered_there(found[key], value) or lies_below(found[key], value)):
            continue
        found[key] = value
    return found


def _buckets(storage: StorageDescriptor) -> tuple[tuple[str, ...], int]:
    return (storage.bucket_columns, storage.num_buckets) if storage.bucket_columns else ((), 0)
