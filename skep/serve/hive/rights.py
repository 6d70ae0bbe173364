"""What a statement may do: whether it only reads, answers rows, and calls nothing outside of SQL."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from skep_format.errors import InputError, SkepError
from skep_format.options import mask
from skep_sql.parsing import statements as sql
from skep_sql.parsing.paths import path_of

_ANSWERS_ROWS: Final = (sql.Query, sql.Show, sql.Describe, sql.DescribeQuery, sql.Explain, sql.SetOption, sql.Call)
_READS: Final = (*_ANSWERS_ROWS, sql.Use, sql.ResetOption, sql.CreateView, sql.Uncache)  # of calls those that show
_JAVA: Final = frozenset({"reflect", "java_method", "try_reflect"})
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?", re.DOTALL)
_LONGEST: Final = 2000


class RightMissingError(SkepError):
    """The user may not do this."""


def changes_nothing(statement: sql.Statement, views: Collection[str] = ()) -> bool:
    """Whether it leaves tables, files and the metastore as they are. Settings and `views` are those of the session."""
    if isinstance(statement, sql.Drop):
        return statement.kind == "view" and str(statement.name).lower() in views
    if isinstance(statement, sql.CreateView):
        return statement.temporary
    if isinstance(statement, sql.Call):
        return statement.name.startswith("show_")
    return isinstance(statement, _READS)


def answers_rows(statement: sql.Statement) -> bool:
    """Whether there is a result set, an empty one too."""
    return isinstance(statement, _ANSWERS_ROWS)


def check_right(statement: sql.Statement, user: str, may_write: bool, views: Collection[str] = ()) -> None:
    """RightMissingError for what the user may not do; InputError for functions that reach beyond SQL."""
    if not may_write and not changes_nothing(statement, views):
        raise RightMissingError(
            f"{user or 'anonymous'} may read, and not write: {sql.words_of_kind(statement)} is refused",
            hint="users with the right `write` may; without users the server's option --anonymous-writes",
        )
    for node in _expressions(statement):
        path = next((found for table in node.find_all(exp.Table) if (found := path_of(table))), None)
        if path is not None and not may_write:
            raise RightMissingError(f"{user or 'anonymous'} may read tables by name, not files: {path[0]}.`{path[1]}`")
        for function in node.find_all(exp.Func):
            name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
            if name in _JAVA:
                raise InputError(f"{name}(…) calls methods of the server's process, which clients may not", found=name)


def _expressions(value: Any) -> Iterator[Any]:
    """The trees within a statement."""
    if isinstance(value, exp.Expression):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _expressions(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _expressions(tuple(value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for each in value:
            yield from _expressions(each)


def shown(text: str, statement: sql.Statement | None = None) -> str:
    """A statement as logs may show it: without the texts in it, which may be secrets, and not too long."""
    if isinstance(statement, sql.SetOption) and statement.key is not None and statement.value is not None:
        return f"SET {statement.key}={mask(statement.key, statement.value)}"
    if statement is None and text.lstrip()[:4].lower() == "set ":
        return "SET …"
    plain = " ".join(_TEXT.sub("'…'", text[: 4 * _LONGEST]).split())
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"
