"""The options of entries: Hudi's own keys of what is registered, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_format.options import at_least, boolean, comma_list, of_option, one_of, option, setting

HIVE: Final = "hoodie.datasource.hive_sync."
"""What Hudi's keys of syncs begin with."""


class Strategy(str, Enum):
    """Which views of a merge-on-read table are registered, by the values of Hudi's `table.strategy`."""

    ALL = "ALL"
    RO = "RO"
    RT = "RT"


@dataclass(frozen=True, slots=True)
class HiveBuckets:
    """The columns whose hash selects the bucket of a row, out of `count`; no columns: the record key's."""

    columns: tuple[str, ...]
    count: int


def properties(text: str) -> Mapping[str, str]:
    """Lines of `key=value`."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, separator, value = line.partition("=")
        if not separator:
            raise ValueError("lines of key=value: one has no =")
        found[key.strip()] = value.strip()
    return found


def bucket_spec(text: str) -> HiveBuckets:
    """Hive's own words for buckets; an order within them is passed over, since Hudi keeps none."""
    pattern = r"\s*clustered\s+by\s*\(([^()]+)\)\s*(?:sorted\s+by\s*\([^()]*\)\s*)?into\s+([1-9]\d*)\s+buckets\s*"
    match = re.fullmatch(pattern, text, re.IGNORECASE)
    if match is None:
        raise ValueError("CLUSTERED BY (columns) INTO n BUCKETS")
    return HiveBuckets(comma_list(match[1].replace("`", "")), int(match[2]))


_no_properties: Mapping[str, str] = {}
_optional_names: Callable[[str], tuple[str, ...] | None] = comma_list
_optional_buckets: Callable[[str], HiveBuckets | None] = bucket_spec
PARTITION_FIELDS = option(HIVE + "partition_fields", _optional_names, None, "Partition keys; else the table's own.")
BUCKETS = option(HIVE + "bucket_sync", boolean, False, "Register the buckets of a bucket index with Hive.")
BUCKET_SPEC = option(
    HIVE + "bucket_sync_spec",
    _optional_buckets,
    None,
    "CLUSTERED BY (columns) INTO n BUCKETS; else by hoodie.bucket.index.*.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    """What is registered and how; the defaults are Hudi's but for timestamps and comments."""

    strategy: Strategy = setting(
        HIVE + "table.strategy", one_of(Strategy), Strategy.ALL, "Views of a merge-on-read table."
    )
    skip_ro_suffix: bool = setting(
        HIVE + "skip_ro_suffix", boolean, False, "The plain name is the read-optimized view."
    )
    snapshot_under_table_name: bool = setting(
        "hoodie.meta.sync.sync_snapshot_with_table_name", boolean, True, "The plain name is the snapshot view."
    )
    omit_metadata_fields: bool = setting(
        HIVE + "omit_metadata_fields", boolean, False, "Leave Hudi's meta columns out."
    )
    timestamps: bool = setting(HIVE + "support_timestamp", boolean, True, "Timestamps as timestamp, else as bigint.")
    comments: bool = setting(HIVE + "sync_comment", boolean, True, "Take column comments along.")
    as_datasource: bool = setting(
        HIVE + "sync_as_datasource", boolean, True, "Spark reads the table through its data source."
    )
    spark_version: str | None = setting(
        "hoodie.meta_sync.spark.version", str, None, "Value of spark.sql.create.version."
    )
    schema_piece_length: int = setting(
        HIVE + "schema_string_length_thresh", at_least(1), 4000, "Length of a piece of Spark's schema."
    )
    managed: bool = setting(HIVE + "create_managed_table", boolean, False, "DROP in Hive then deletes the data.")
    pre_apache_input_format: bool = setting(
        HIVE + "use_pre_apache_input_format", boolean, False, "Input formats of com.uber.hoodie."
    )
    partition_fields: tuple[str, ...] | None = of_option(PARTITION_FIELDS)
    texts_of_timestamps: bool = False  # in folders' names; else they are numbers there
    table_properties: Mapping[str, str] = setting(
        HIVE + "table_properties", properties, _no_properties, "Lines of key=value."
    )
    serde_properties: Mapping[str, str] = setting(
        HIVE + "serde_properties", properties, _no_properties, "Lines of key=value."
    )
    buckets: HiveBuckets | None = None
