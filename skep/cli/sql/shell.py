"""The shell of `skep sql`: statements of several lines, a history, names completed by the tab key."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from skep.base.audit import state_folder
from skep.cli import progress
from skep.cli.output import Output
from skep.cli.sql.statements import announce, run_statement, statements
from skep_format.errors import InputError, SkepError

log = logging.getLogger("skep")

if TYPE_CHECKING:
    from skep.lake import Lake

_KEYWORDS: Final = (
    *("ADD", "ALL", "ALTER", "AND", "AS", "ASC", "BETWEEN", "BY", "CALL", "CASE", "COLUMNS", "COUNT", "CREATE"),
    "CROSS",
    *("DATABASE", "DATABASES", "DELETE", "DESC", "DESCRIBE", "DISTINCT", "DROP", "ELSE", "END", "EXISTS", "EXPLAIN"),
    *("FROM", "FULL", "GROUP", "HAVING", "IN", "INNER", "INSERT", "INTO", "IS", "JOIN", "LEFT", "LIKE", "LIMIT"),
    *("MATCHED", "MERGE", "NOT", "NULL", "ON", "OR", "ORDER", "OUTER", "OVERWRITE", "PARTITION", "PARTITIONED"),
    *("PARTITIONS", "RESET", "RIGHT", "SELECT", "SET", "SHOW", "TABLE", "TABLES", "TBLPROPERTIES", "TEMPORARY", "THEN"),
    *("TIMESTAMP", "TRUNCATE", "UNION", "UPDATE", "USE", "USING", "VALUES", "VIEW", "WHEN", "WHERE", "WITH"),
)
_AS_LINES: Final = "\\G"
_LEAVE: Final = ("exit", "quit", "\\q")
_NAME: Final = re.compile(r"[\w.]+$")
_BEFORE_TABLES: Final = r"(?i)\b(?:from|join|into|update|table|describe|overwrite)\s+"
_TABLES_AT: Final = re.compile(rf"{_BEFORE_TABLES}([\w.]+)")
_TABLE_NEXT: Final = re.compile(rf"{_BEFORE_TABLES}$")


class Shell:
    """Reads statements from a terminal and runs them on one lake until its end (Ctrl-D)."""

    def __init__(self, lake: Lake, engine: str, output: Output) -> None:
        self._lake = lake
        self._engine = engine
        self._output = output
        self._names = SqlCompleter(lake)

    def run(self) -> None:
        """Until Ctrl-D, `exit` or `quit`. Ctrl-C gives up a line or the statement that runs."""
        progress.stop()
        session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=self._names,
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, _line, _wrapped: "> ".rjust(width),
        )
        announce(self._lake)
        print(
            "Statements end with a semicolon, or \\G for rows as lines; Tab completes, Ctrl-C cancels, Ctrl-D leaves.",
            file=sys.stderr,
        )
        while True:
            try:
                text = session.prompt(f"{self._lake.database}> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip().rstrip(";").strip().lower() in _LEAVE:
                return
            self._run_all(text)

    def _run_all(self, text: str) -> None:
        """What a line holds; an error or Ctrl-C leaves out the rest of it."""
        try:
            text, output = _without_end(text, self._output)
            for cursor in statements(text):
                print(run_statement(self._lake, cursor, self._engine, output), file=sys.stderr)
        except SkepError as error:
            log.debug("the statement failed", exc_info=error)
            print(f"error: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr)
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            self._names.forget()


class SqlCompleter(Completer):
    """Completes keywords, tables and the columns of the tables that the text names."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tables: list[str] | None = None
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Names are looked up again: a statement may have changed them."""
        self._tables = None
        self._columns.clear()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """The names that go on from the word before the cursor."""
        found = _NAME.search(document.text_before_cursor)
        word = found[0] if found else ""
        if not word:
            return
        seen = set()
        is_table = _TABLE_NEXT.search(document.text_before_cursor[: -len(word)])
        for name in self._of_tables() if is_table else self._all(document.text):
            if name.lower().startswith(word.lower()) and name not in seen:
                seen.add(name)
                yield Completion(name, start_position=-len(word))

    def _all(self, text: str) -> Iterator[str]:
        for table in _TABLES_AT.findall(text):
            yield from self._columns_of(table)
        yield from self._of_tables()
        yield from _KEYWORDS

    def _of_tables(self) -> list[str]:
        """The tables of the current database by their names, all by their full names, and the databases."""
        if self._tables is None:
            self._tables = []
            with contextlib.suppress(SkepError, OSError):  # nothing is completed where nothing is known
                full = self._lake.tables()
                own = [name.partition(".")[2] for name in full if name.partition(".")[0] == self._lake.database]
                self._tables = [*own, *full]
        return self._tables

    def _columns_of(self, table: str) -> list[str]:
        if table not in self._columns:
            self._columns[table] = []
            with contextlib.suppress(SkepError, OSError):
                self._columns[table] = list(self._lake.table(table).read().schema.names)
        return self._columns[table]


def _without_end(text: str, output: Output) -> tuple[str, Output]:
    """The text without `\\G`, by which the rows of its last statement are printed as lines."""
    stripped = text.rstrip()
    if not stripped.endswith(_AS_LINES):
        return text, output
    return stripped.removesuffix(_AS_LINES), Output.VERTICAL


def is_complete(text: str) -> bool:
    """Whether Enter runs the text: it is empty, leaves the shell, or ends with `;` or `\\G` outside of texts."""
    stripped = text.strip()
    if not stripped or stripped.lower() in _LEAVE:
        return True
    text = f"{stripped.removesuffix(_AS_LINES)};" if stripped.endswith(_AS_LINES) else stripped
    if ";" not in text:
        return False
    try:
        before, after = statements(text), statements(f"{text}\nx")
    except InputError:
        return False  # within a text or a comment
    return len(after) > len(before)  # what follows would be a statement of its own


def _history() -> History:
    file = state_folder() / "sql_history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))  # statements may hold what is private
    except OSError as error:
        print(f"warning: no history is kept: {error}", file=sys.stderr)
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @Condition
    def ends() -> bool:
        from prompt_toolkit.application import get_app

        return is_complete(get_app().current_buffer.text)

    @keys.add("enter", filter=ends)
    def run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys
