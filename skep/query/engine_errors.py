"""Errors of engines as errors of skep: Spark's own message and error class, at the place of the user's text."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from skep_format.errors import EngineError, InputError, SkepError, StorageError
from skep_format.nearest import did_you_mean
from skep_sql.bind import known_columns
from skep_sql.parsing.written import spark_text, written_place
from skep_sql.protocols import Relation
from skep_table.query.cleaned import DELETED

if TYPE_CHECKING:
    from skep_writer.failures import SparkFailure

log = logging.getLogger("skep.spark")

# Part of the errors of Spark's reader and of skep's tasks for a deleted file.
_MISSING_FILE: Final = ("FileNotFoundException", "FILE_NOT_EXIST", DELETED)
_PLACEHOLDER: Final = re.compile(r"skep_\d+_[0-9a-f]{8}")
_SUGGESTION: Final = re.compile(r" Did you mean one of the following\? \[.*?\]\.?", re.DOTALL)
_UNKNOWN_COLUMN: Final = re.compile(r"UNRESOLVED_COLUMN|UNRESOLVED_USING_COLUMN")
_UNKNOWN_FUNCTION: Final = "UNRESOLVED_ROUTINE"
_FIRST_NAME: Final = re.compile(r"`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*")
_MEMORY: Final = "spark.driver.memory below [spark] of skep.toml, or in the conf of the session, is 1g by default"


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """The query that Spark was given, and its relations: where in the statement an error is, and what it may mean."""

    query: exp.Query
    relations: Mapping[str, Relation]


@contextmanager
def engine_errors(asked: Sequence[SparkQuery] = ()) -> Iterator[None]:
    """Whatever Spark raises is one error of skep: InputError where the query or its values are at fault, else
    EngineError. Java's trace is in the log.

    With what was `asked`, the last first, the error names line and column of the statement as it was written, and the
    nearest known name for a column that is not there.
    """
    try:
        yield
    except SkepError:
        raise
    except Exception as error:
        found = _found(error, asked)
        if found is None:
            raise
        log.debug("Spark failed", exc_info=error)
        raise found from None


def _found(error: Exception, asked: Sequence[SparkQuery]) -> BaseException | None:
    from skep_writer.failures import spark_failure
    from skep_writer.task_errors import behind

    own = behind(error)
    if own is not None:
        return own
    failure = spark_failure(error)
    if failure is None:
        return None
    if any(sign in str(error) for sign in _MISSING_FILE):
        return StorageError(
            f"a file that the query reads was {DELETED}",
            hint="run the query again; hoodie.cleaner.commits.retained has to outlast the longest query",
        )
    if failure.is_ended:
        hint = _MEMORY if failure.is_out_of_memory else None
        return EngineError(failure.message, hint=hint)
    if failure.is_out_of_memory:
        return EngineError(failure.message, hint=_MEMORY)
    return _described(failure, next((each for each in asked if _is_of(failure, each)), None))


def _is_of(failure: SparkFailure, asked: SparkQuery) -> bool:
    """Whether the place of the failure is one in this query: frames are computed within later ones."""
    if failure.line is None or failure.shown is None:
        return True
    lines = spark_text(asked.query).split("\n")
    return failure.line <= len(lines) and failure.shown.strip().strip(".") in lines[failure.line - 1]


def _described(failure: SparkFailure, asked: SparkQuery | None) -> SkepError:
    message, name, meant = failure.message, None, None
    query = None if asked is None else asked.query
    if failure.error_class is not None:
        name = _unknown_name(message)
        if name is not None and _UNKNOWN_COLUMN.match(failure.error_class):
            columns = () if asked is None else known_columns(asked.query, asked.relations)
            meant = did_you_mean(name, sorted(columns, key=lambda each: (each.startswith("_hoodie_"), each)))
            message = _SUGGESTION.sub("", message)  # among the columns that the query reads
        elif name is not None and failure.error_class.startswith(_UNKNOWN_FUNCTION):
            meant = did_you_mean(name, _functions())
    place = None
    if query is not None:
        message = _with_names(message, query)
        if failure.line is not None and failure.column is not None:
            place = written_place(query, failure.line, failure.column)
    line, column = place or (None, None)
    at = "" if place is None else f"line {line}, column {column}: "
    what = "the query does not fit the tables" if failure.is_of_analysis else "the query failed"
    kind = InputError if failure.is_of_query else EngineError
    return kind(
        f"{at}{what}: {message}",
        hint=meant,
        error_class=failure.error_class,
        sql_state=failure.sql_state,
        line=line,
        column=column,
        found=name or (None if query is None else _with_names(spark_text(query), query)),
    )


def _unknown_name(message: str) -> str | None:
    """The last part of the first name in backticks."""
    found = _FIRST_NAME.search(message)
    return None if found is None else found[0].rpartition(".`")[2].strip("`")


def _functions() -> list[str]:
    from skep_writer.failures import function_names

    return function_names()


def _with_names(text: str, query: exp.Query) -> str:
    """With the names of tables in place of those that the query got for them."""
    names = {node.name: node.alias for node in query.find_all(exp.Table) if node.alias}
    return _PLACEHOLDER.sub(lambda found: names.get(found[0], found[0]), text)
