"""What a procedure is: its signature, by Hudi's names, and the function that computes its rows."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from skep_format.errors import InputError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.timeline import completion_times
from skep_sql.answer import Column, columns_of
from skep_sql.bind import look_up
from skep_sql.parsing.statements import Name
from skep_sql.protocols import TargetTable
from skep_sql.session import Session
from skep_table.table import HudiTable

T = TypeVar("T")
REQUIRED: Final = object()

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

    session: Session
    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @property
    def target(self) -> TargetTable:
        """The table that the argument names."""
        return self.session.catalog.table(self.full_name)

    @property
    def table(self) -> HudiTable:
        """A new snapshot of it."""
        return self.target.hudi

    @property
    def services(self) -> Any:
        """The same as `target`, for its services: they are methods with the names and arguments of skep's Python."""
        return self.target

    @property
    def full_name(self) -> str:
        """Of the table that the argument names. NoSuchTableError where there is none."""
        return look_up(self.session.catalog, Name.of(str(self["table"])))

    def limited(self, rows: Sequence[T]) -> Sequence[T]:
        """As many as the argument `limit` allows; a negative one allows all."""
        return rows[: self["limit"]] if self["limit"] >= 0 else rows

    def options(self, named: Mapping[str, str] | None = None) -> dict[str, str]:
        """The session's options, those of arguments that stand for one (argument → option), and those of the argument
        `options`, texts as `key=value,key=value`. InputError for one without a value."""
        found = dict(self.session.settings.hoodie)
        found |= {key: str(self[name]) for name, key in (named or {}).items() if self[name] is not None}
        for pair in str(self.given.get("options") or "").split(","):
            key, separator, value = pair.partition("=")
            if pair.strip() and not (separator and key.strip()):
                raise InputError(
                    f"options: {pair!r}", option="options", found=pair, expected="key=value, commas between them"
                )
            if pair.strip():
                found[key.strip()] = value.strip()
        return found


def one_of(option: str, value: str, known: Iterable[str]) -> str:
    """The value of an argument. InputError where it is none of those known."""
    if value not in known:
        raise InputError(f"{option} is {value!r}", option=option, found=value, expected=", ".join(known))
    return value


@dataclass(frozen=True, slots=True)
class Procedure:
    """See the module. Arguments have the order of positions; `run` gives the rows in the order of `columns`, None
    of what answers that it is done."""

    name: str
    arguments: tuple[Argument, ...]
    columns: tuple[Column, ...]
    run: Callable[[Context], Rows | None]


def procedure(signature: str) -> Callable[[Callable[[Context], Rows | None]], Procedure]:
    """Makes a function the procedure of a signature: `name(table, limit=10, op?, instant:int, path!) -> column, n:int`.

    What has no type is a text. `?`: null by default. `!`: known, and refused with any other value than the default.
    """
    name, arguments, columns = re.fullmatch(r"(\w+)\((.*?)\) -> (.*)", " ".join(signature.split())).groups()  # type: ignore[union-attr]
    return partial(Procedure, name, tuple(map(_argument, arguments.split(", "))), columns_of(columns))


def _argument(text: str) -> Argument:
    name, kind, given, is_optional, is_refused = _ARGUMENT.fullmatch(text).groups()  # type: ignore[union-attr]
    default = literal_eval(given) if given else None if is_optional or is_refused else REQUIRED
    return Argument(name, type(default) if given else _ARGUMENT_KINDS[kind], default, not is_refused)


_ARGUMENT: Final = re.compile(r"(\w+)(?::(\w+))?(?:=(.*?))?(\?)?(!)?")
_ARGUMENT_KINDS: Final = {None: str, "int": int}


def completed_times(table: HudiTable) -> dict[InstantTime, CompletionTime]:
    """When the completed instants completed."""
    return completion_times(table.storage, table.timeline, table.config.timezone)


def time_of(times: Mapping[InstantTime, CompletionTime], instant: Instant) -> str:
    """The completion time, or the requested one where it is not known."""
    return str(times.get(instant.requested_time, instant.requested_time))


def completed_plans(table: HudiTable, kind: type[T], action: Action) -> Iterator[tuple[Instant, T]]:
    """The completed instants of an action with their plans, newest first."""
    for instant in reversed(table.timeline.completed().of(action).instants):
        found = table.plan(instant)
        if isinstance(found, kind):
            yield instant, found


def write_at(context: Context) -> tuple[Instant, CommitMetadata]:
    """The completed write that the argument `instant_time` names. InputError for any other time."""
    table, time = context.table, str(context["instant_time"])
    for instant in table.timeline.data().completed().instants:
        if instant.requested_time == time:
            return instant, table.commit_metadata(instant)
    raise table.error(InputError, f"commit {time} is not on the active timeline", instant=time)
