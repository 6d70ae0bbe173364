"""Pre-commit validators: Hudi's three that ask SQL, and plug-ins. One that objects keeps a write from committing.

SQL is Spark's; the table's context has what answers it, over the rows before the write and those that it would leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from skep_format.errors import EnvironmentMissingError, InputError, OptionError, ValidationError
from skep_format.options import Options
from skep_format.schema.types import META_FIELDS
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.plug_ins import needed_plug_in
from skep_table.preview import Preview
from skep_table.query import ReadRequest
from skep_table.query.filters.text import SqlDialect, parse_reason
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.planning.options import EQUALITY, INEQUALITY, SINGLE_VALUE, VALIDATORS

GROUP: Final = "skep.validators"
_PLACEHOLDER: Final = "<TABLE_NAME>"
_TABLE: Final = "validated"


Validator = Callable[[HudiTable, HudiTable, CommitMetadata], None]
"""What an entry point of the group `skep.validators` is: gets the table before and after the write, and the metadata of
that. Raises ValidationError for a write that must not commit."""


def validate(table: HudiTable, instant: Instant, metadata: CommitMetadata, options: Options) -> None:
    """ValidationError when a validator rejects what the instant is about to commit."""
    checks = list(validators_of(options))
    if checks:
        after = Preview(table, instant, metadata)
        for check in checks:
            check(table, after, metadata)


def validators_of(options: Options) -> Iterator[Validator]:
    """Those that the options name. OptionError for a missing query, UnsupportedError for a missing validator."""
    for name in options.value(VALIDATORS):
        match name.rpartition(".")[2]:
            case "SqlQueryEqualityPreCommitValidator":
                yield _Same(options.needed(EQUALITY, "a validator needs"), same=True)
            case "SqlQueryInequalityPreCommitValidator":
                yield _Same(options.needed(INEQUALITY, "a validator needs"), same=False)
            case "SqlQuerySingleResultPreCommitValidator":
                yield _SingleValue(options.needed(SINGLE_VALUE, "a validator needs"))
            case _:
                yield needed_plug_in(GROUP, name, "validator")


@dataclass(frozen=True, slots=True)
class _Same:
    queries: tuple[str, ...]
    same: bool

    def __call__(self, before: HudiTable, after: HudiTable, metadata: CommitMetadata) -> None:  # noqa: ARG002
        for query in self.queries:
            was, is_now = Counter(_ask(before, query)), Counter(_ask(after, query))
            if (was == is_now) is not self.same:
                wanted = "the same" if self.same else "something else"
                problem = f"{query!r} is to answer {wanted} after the write"
                raise after.error(ValidationError, problem, query=query, before=_shown(was), after=_shown(is_now))


@dataclass(frozen=True, slots=True)
class _SingleValue:
    queries: tuple[str, ...]

    def __call__(self, before: HudiTable, after: HudiTable, metadata: CommitMetadata) -> None:  # noqa: ARG002
        for each in self.queries:
            query, mark, expected = each.rpartition("#")
            if not mark:
                raise OptionError(
                    f"{SINGLE_VALUE.key}: {each!r} is not of the form query#value", option=SINGLE_VALUE.key
                )
            answer = _ask(after, query)
            found = str(answer[0][0]) if len(answer) == 1 and len(answer[0]) == 1 else f"{len(answer)} rows"
            if found != expected.strip():
                problem = f"{query!r} answers {found} after the write, not {expected.strip()}"
                raise after.error(ValidationError, problem, query=query, found=found, expected=expected.strip())


def _ask(table: HudiTable, query: str) -> list[tuple[Any, ...]]:
    """The rows that a query over the table returns."""
    answer = table.context.queries
    if answer is None:
        raise EnvironmentMissingError(
            "SQL validators need an engine for their queries", hint="write through skep", missing="an engine"
        )
    text = query.replace(_PLACEHOLDER, _TABLE)
    try:
        tree = sqlglot.parse_one(text, dialect=SqlDialect)
        rows = read(table, ReadRequest(columns=_columns(tree, table)))
        source = rows.to_reader() if len(list(tree.find_all(exp.Table))) == 1 else rows.to_arrow()
        found = answer(text, {_TABLE: source})
    except (SqlglotError, InputError) as error:
        reason = parse_reason(error) if isinstance(error, SqlglotError) else error.message
        raise OptionError(f"validator query {query!r}: {reason}", option=VALIDATORS.key, found=query) from error
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _columns(tree: Any, table: HudiTable) -> tuple[str, ...] | None:
    """Those of the table that the query can mean; None for all."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    names = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    meta = META_FIELDS if table.config.populate_meta_fields else ()
    every = (*meta, *table.schema().names())
    return tuple(name for name in every if name.lower() in names) or every[:1]


def _shown(rows: Counter[tuple[Any, ...]]) -> str:
    listed = [str(row if len(row) > 1 else row[0]) for row in list(rows)[:5]]
    return ", ".join(listed) + (" …" if len(rows) > 5 else "")
