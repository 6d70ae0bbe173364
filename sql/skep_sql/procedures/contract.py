"""What a procedure is: arguments in the order of positions, columns of the result, and what computes its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from skep_format.errors import InputError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.timeline import completion_times
from skep_sql.bind import Scope, look_up
from skep_sql.parsing.statements import Name
from skep_sql.protocols import TargetTable
from skep_sql.settings import SessionSettings
from skep_table.table import HudiTable

TEXT, INT, LONG, BOOL, DOUBLE = pa.string(), pa.int32(), pa.int64(), pa.bool_(), pa.float64()
REQUIRED: Final = object()

Column = tuple[str, pa.DataType]
Rows = Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Argument:
    """One of a procedure's; without a default it is required.

    `built` False: it is known, and refused with any other value than the default.
    """

    name: str
    kind: type = str
    default: Any = REQUIRED
    built: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """What a procedure works with."""

    scope: Scope
    settings: SessionSettings
    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @property
    def target(self) -> TargetTable:
        """The table that the argument names."""
        return self.scope.catalog.table(self.full_name)

    @property
    def full_name(self) -> str:
        """Of the table that the argument names. NoSuchTableError where there is none."""
        return look_up(self.scope.catalog, Name.of(str(self["table"])))

    def limited(self, rows: Rows) -> Rows:
        """As many as the argument `limit` allows; a negative one allows all."""
        return rows[: self["limit"]] if self["limit"] >= 0 else rows

    def options(self) -> dict[str, str]:
        """The argument `options`, texts as `key=value,key=value`. InputError for one without a value."""
        found = {}
        for pair in str(self["options"] or "").split(","):
            key, separator, value = pair.partition("=")
            if pair.strip() and not (separator and key.strip()):
                raise InputError(
                    f"options: {pair!r}", option="options", found=pair, expected="key=value, commas between them"
                )
            if pair.strip():
                found[key.strip()] = value.strip()
        return found


@dataclass(frozen=True, slots=True)
class Procedure:
    """See the module. `run` gives the rows in the order of `columns`."""

    arguments: tuple[Argument, ...]
    columns: tuple[Column, ...]
    run: Callable[[Context], Rows]


TABLE: Final = Argument("table")
PATH: Final = Argument("path", str, None, built=False)  # instead of a name, which the metastore has
FILTER: Final = Argument("filter", str, None, built=False)  # of Hudi 1.2, over the rows of the result
LIMIT: Final = Argument("limit", int, 10)
OPTIONS: Final = Argument("options", str, None)


def columns(kind: pa.DataType, names: str) -> tuple[Column, ...]:
    """Columns of one type, by their names with blanks between them."""
    return tuple((name, kind) for name in names.split())


def completed_times(table: HudiTable) -> dict[InstantTime, CompletionTime]:
    """When the completed instants completed."""
    return completion_times(table.storage, table.timeline, table.config.timezone)


def time_of(times: Mapping[InstantTime, CompletionTime], instant: Instant) -> str:
    """The completion time, or the requested one where it is not known."""
    return str(times.get(instant.requested_time, instant.requested_time))


def write_at(context: Context, table: HudiTable) -> tuple[Instant, CommitMetadata]:
    """The completed write that the argument `instant_time` names. InputError for any other time."""
    time = str(context["instant_time"])
    for instant in table.timeline.data().completed().instants:
        if instant.requested_time == time:
            return instant, table.commit_metadata(instant)
    raise InputError(f"table {table.config.name}: commit {time} is not on the active timeline", instant=time)
