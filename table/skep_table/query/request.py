"""What a read asks for, checked, and the times in it as users write them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from zoneinfo import ZoneInfo

import pyarrow as pa

from skep_format.errors import InputError
from skep_format.instant_time import BEGINNING, InstantTime
from skep_format.options import Options
from skep_table.query.filters.among import OneOf
from skep_table.query.filters.predicate import Predicate
from skep_table.query.options import (
    AS_OF_INSTANT,
    BEGIN_INSTANT,
    DATA_SKIPPING,
    END_INSTANT,
    EXTRACT_PARTITION_VALUES,
    FALL_BACK_TO_FULL_SCAN,
    INCREMENTAL_FORMAT,
    INCREMENTAL_PATH_GLOB,
    QUERY_TYPE,
    IncrementalFormat,
    QueryType,
)

Where: TypeAlias = "str | Predicate | Callable[[pa.Schema], Predicate]"
"""A condition: its text, what it is over the columns of the table, or a function that makes it for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """One read of a table. `query` may be given as text.

    `since` is exclusive and `until` inclusive: requested times in table version 6, completion times from 8 on; they
    belong to incremental and cdc queries, and so does `max_commits`, which ends the range with the first so many.
    `as_of` (a requested time) belongs to snapshot and read_optimized ones. Times are instants (17 or 14 digits), dates
    or ISO times. `columns` None is all of them, meta columns first. `where` is a SQL predicate, as text or read for the
    table's columns. `path_glob` keeps the files of an incremental or cdc query whose path below the table matches.
    `metadata` False lists storage even where there is a metadata table. `partitions_from_path` True takes the values of
    partition columns from the folders; None lets table and query decide as Hudi does. `full_scan` True answers an
    incremental query from the table as it is when files that it needs were cleaned; None as the table's release.
    `only`: of rows that fail this condition it does not matter whether they are in the answer. `positions` adds the
    column POSITION: the numbers of rows in their base file, null where it has logs or is not of Parquet. Beside a
    number, the columns of the file's name and of the partition path are those of where the row was read.
    """

    query: QueryType = QueryType.SNAPSHOT
    as_of: str | None = None
    since: str | None = None
    until: str | None = None
    max_commits: int | None = None
    columns: tuple[str, ...] | None = None
    where: Where | None = None
    limit: int | None = None
    metadata: bool = True
    path_glob: str | None = None
    data_skipping: bool = True
    partitions_from_path: bool | None = None
    full_scan: bool | None = None
    only: OneOf | None = None
    positions: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "query", QueryType(str(getattr(self.query, "value", self.query)).lower()))
        except ValueError:
            known = ", ".join(kind.value for kind in QueryType)
            raise InputError(f"unknown query {self.query!r}; there are: {known}", found=self.query) from None
        changes = self.query in (QueryType.INCREMENTAL, QueryType.CDC)
        if changes and self.as_of is not None:
            raise InputError(f"as_of does not go with the {self.query.value} query; use until", option="as_of")
        if not changes:
            for name in ("since", "until", "max_commits", "path_glob"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} goes with the incremental and cdc queries only", option=name)
        if self.max_commits is not None and self.max_commits < 1:
            raise InputError(f"max_commits must be 1 at least: {self.max_commits}", option="max_commits")
        if self.limit is not None and self.limit < 0:
            raise InputError(f"limit must not be negative: {self.limit}", option="limit")
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
            if len(set(self.columns)) < len(self.columns):
                raise InputError(f"a column is asked for twice: {', '.join(self.columns)}", option="columns")

    @property
    def uses_indexes(self) -> bool:
        """Whether indexes of the metadata table may leave files out."""
        return self.metadata and self.data_skipping

    @classmethod
    def of(cls, options: Options, **more: object) -> ReadRequest:
        """From Hudi's read keys; `more` are fields of the request and win."""
        query = options.value(QUERY_TYPE)
        if query is QueryType.INCREMENTAL and options.value(INCREMENTAL_FORMAT) is IncrementalFormat.CDC:
            query = QueryType.CDC
        given: dict[str, object] = {
            "options": options,
            "query": query,
            "as_of": options.value(AS_OF_INSTANT) or None,
            "since": options.value(BEGIN_INSTANT) or None,
            "until": options.value(END_INSTANT) or None,
            "path_glob": options.value(INCREMENTAL_PATH_GLOB) or None,
            "data_skipping": options.value(DATA_SKIPPING),
            "partitions_from_path": options.value(EXTRACT_PARTITION_VALUES) or None,
            "full_scan": options.value(FALL_BACK_TO_FULL_SCAN) if options.is_set(FALL_BACK_TO_FULL_SCAN) else None,
        }
        return cls(**given | {name: value for name, value in more.items() if value is not None})  # type: ignore[arg-type]


_INSTANT = re.compile(r"\d{14}(\d{3})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SPECIAL = re.compile(r"0+\d{0,3}|\d{18,}")


def instant_text(text: str, timezone: str) -> InstantTime:
    """The instant that `text` means: an instant as it is, a date or ISO time in the table's time zone.

    `timezone` is the table's timeline zone, "UTC" or "LOCAL". A time without a zone is in that zone; one without
    milliseconds is the first of its second. Raises InputError for anything else.
    """
    text = text.strip()
    if _INSTANT.fullmatch(text) or _SPECIAL.fullmatch(text):
        return InstantTime(text)
    if text.lower() == "earliest":
        return BEGINNING
    try:
        if not _DATE.match(text):
            raise ValueError(text)
        moment = dt.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise InputError(
            f"{text!r} is no time: expected an instant (yyyyMMddHHmmss[SSS]), a date (yyyy-MM-dd) or an ISO time",
            found=text,
        ) from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(ZoneInfo("UTC") if timezone == "UTC" else None)
    return InstantTime(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}")
