"""What the options of a write choose whatever the table is, read once where the write begins."""

# ruff: noqa: RUF009 - what a setting is read by is declared beside it

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from skep_format.basefile import BaseFileOptions
from skep_format.logfile.options import APPEND, COMPRESSION_RATIO, POSITIONS, LogFileOptions
from skep_format.options import Options, of_option
from skep_format.schema.exact import Casts
from skep_format.schema.policy import CASE_SENSITIVE, OPERATION_FIELD, SchemaPolicy
from skep_format.schema.untyped import DROP_UNTYPED
from skep_table.commit.options import CONFLICT_RETRIES
from skep_table.commit.parts.metadata_table import keeps_metadata_table
from skep_table.write.context import Memory
from skep_table.write.planning import options as known
from skep_table.write.planning.merge_options import deletes_rows
from skep_table.write.planning.options import AmbiguousKeys, Duplicates
from skep_table.write.planning.profile import LogSizing, Sizing

T = TypeVar("T")


def _read(how: Callable[[Options], T]) -> T:
    found: T = field(metadata={"read": how})
    return found


def _extra(options: Options) -> Mapping[str, str]:
    prefix = options.value(known.COMMIT_METADATA_PREFIX)
    return {key: text for key, text in options.items() if prefix and key.startswith(prefix)}


def _sizing(options: Options) -> Sizing:
    value = options.value
    split_rows = None if value(known.AUTO_SPLIT) else value(known.SPLIT_ROWS)
    sizes = value(known.SMALL_FILE_BYTES), value(known.MAX_FILE_BYTES), value(known.RECORD_BYTES)
    return Sizing(*sizes, split_rows=split_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """`options` are all that were given: plans read there what depends on the table, too, and plug-ins what is theirs.

    `case_sensitive`: None where it was not given. `sizing`: where its `record_bytes` and the number of small file
    groups were given, `record_bytes_given` and `small_groups_given` are set, and commits are not read for them.
    `positions_given`: they are looked up, whatever it takes. The last three are for Spark.
    """

    options: Options
    memory: Memory = _read(lambda o: o.read(Memory))
    case_sensitive: bool | None = _read(lambda o: o.value(CASE_SENSITIVE) if o.is_set(CASE_SENSITIVE) else None)
    deletes_rows: bool = _read(deletes_rows)
    extra_metadata: Mapping[str, str] = _read(_extra)
    conflict_retries: int = of_option(CONFLICT_RETRIES)
    duplicates: Duplicates = _read(
        lambda o: Duplicates.DROP if o.value(known.DUPLICATES_DROPPED) else o.value(known.DUPLICATES)
    )
    keeps_equal_keys: bool = of_option(known.ALLOW_DUPLICATE_INSERTS)
    combine_upsert: bool = of_option(known.COMBINE_UPSERT)
    combine_insert: bool = of_option(known.COMBINE_INSERT)
    ambiguous: bool = _read(lambda o: o.value(known.AMBIGUOUS_KEYS) is AmbiguousKeys.ALLOW)
    partial_merge: bool = of_option(known.PARTIAL_MERGE)
    casts: Casts = _read(lambda o: o.read(Casts))
    policy: SchemaPolicy = _read(SchemaPolicy.of)
    drop_untyped: bool = of_option(DROP_UNTYPED)
    operation_field: bool = of_option(OPERATION_FIELD)
    files: BaseFileOptions = _read(BaseFileOptions.of)
    logs: LogFileOptions = _read(lambda o: o.read(LogFileOptions))
    appends_to_logs: bool = of_option(APPEND)
    positions_given: bool = _read(lambda o: o.is_set(POSITIONS))
    event_time: str = of_option(known.EVENT_TIME)
    keeps_metadata_table: bool = _read(keeps_metadata_table)
    sizing: Sizing = _read(_sizing)
    log_sizing: LogSizing = _read(lambda o: LogSizing(o.value(known.SMALL_GROUPS), o.value(COMPRESSION_RATIO)))
    record_bytes_given: bool = _read(lambda o: o.is_set(known.RECORD_BYTES))
    small_groups_given: bool = _read(lambda o: o.is_set(known.SMALL_GROUPS))
    measured_share: float = of_option(known.RECORD_BYTES_THRESHOLD)
    commit_on_errors: bool = of_option(known.COMMIT_ON_ERRORS)
    empty_commits: bool = of_option(known.EMPTY_COMMITS)
    validates: bool = _read(lambda o: o.is_set(known.VALIDATORS))
    rows_per_batch: int = of_option(known.ROWS_PER_BATCH)
    collected_bytes: int = of_option(known.COLLECTED_BYTES)
    tagged_level: str = of_option(known.TAGGED_LEVEL)

    @classmethod
    def of(cls, options: Options) -> WriteSettings:
        """OptionError for a value that an option does not take."""
        computed = {f.name: f.metadata["read"](options) for f in fields(cls) if "read" in f.metadata}
        return options.read(cls, options=options, **computed)
