"""The words of a statement, read one after the other; errors name line and column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from skep_format.errors import InputError
from skep_sql.names import without_catalog
from skep_sql.parsing.statements import Name, Node
from skep_sql.parsing.words import Word, words_of
from skep_sql.parsing.written import as_written
from skep_table.query.filters.text import SqlDialect, parse_reason

T = TypeVar("T")
_OPEN: Final = {"(": 1, "[": 1, ")": -1, "]": -1}


def statements_of(text: str) -> list[Cursor]:
    """One cursor for each statement of a text; statements end with semicolons. InputError for what has no tokens."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the statement is no text of Unicode: {error.reason}", found=text) from error
    try:
        tokens = list(words_of(text))
    except SqlglotError as error:
        raise InputError(f"the statement can't be parsed: {parse_reason(error)}", found=text) from error
    found: list[list[Word]] = [[]]
    for token in tokens:
        if token.text == ";" and not (token.is_string or token.is_quoted):
            found.append([])
        else:
            found[-1].append(token)
    return [Cursor(text, each) for each in found if each]


class Cursor:
    """A position in the tokens of one statement."""

    def __init__(self, text: str, tokens: Sequence[Word]) -> None:
        self._text = text
        self._tokens = list(tokens)
        self._at = 0

    @property
    def token(self) -> Word | None:
        """The next one; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def line(self) -> int:
        """Line of the next token, from 1."""
        return (self.token or self._tokens[-1]).line

    @property
    def column(self) -> int:
        """Column of the next token, from 1; behind the last one at the end."""
        last = self._tokens[-1]
        return self.token.column if self.token else last.column + last.end - last.start + 1

    def text(self) -> str:
        """The whole statement as written."""
        return self._text[self._tokens[0].start : self._tokens[-1].end + 1]

    def rest_text(self) -> str:
        """What is left of the statement as written."""
        return self._text[self._tokens[self._at].start : self._tokens[-1].end + 1] if self.token else ""

    def fail(self, expected: str) -> InputError:
        """The error for a token that does not fit here."""
        token = self.token
        found = "the end of the statement" if token is None else repr(self._text[token.start : token.end + 1])
        return InputError(
            f"line {self.line}, column {self.column}: expected {expected}, found {found}",
            line=self.line,
            column=self.column,
            found=found,
            expected=expected,
        )

    # -- words

    def peek(self, *words: str) -> bool:
        """Whether the next tokens are these words or signs, in any case."""
        ahead = self._tokens[self._at : self._at + len(words)]
        return len(ahead) == len(words) and all(
            not token.is_string and not token.is_quoted and token.text.upper() == word
            for token, word in zip(ahead, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Takes these words if they are next."""
        if not self.peek(*words):
            return False
        self._at += len(words)
        return True

    def need(self, *words: str) -> Cursor:
        """Takes these words, and is the cursor behind them. InputError where others are next."""
        if not self.take(*words):
            raise self.fail(" ".join(words))
        return self

    def take_one(self, *words: str) -> str | None:
        """Takes one of several words, if it is next."""
        return next((word for word in words if self.take(word)), None)

    def end(self) -> None:
        """InputError where words are left."""
        if self.token is not None:
            raise self.fail("the end of the statement")

    # -- names

    def identifier(self, expected: str = "a name") -> str:
        """One name, in backticks or bare."""
        token = self.token
        if token is None or token.is_string or not (token.is_quoted or token.text.replace("_", "a").isalnum()):
            raise self.fail(expected)
        self._at += 1
        return token.text

    def path(self, expected: str) -> tuple[str, ...]:
        """Names with dots between them."""
        parts = [self.identifier(expected)]
        while self.take("."):
            parts.append(self.identifier(expected))
        return tuple(parts)

    def name(self, expected: str = "the name of a table") -> Name:
        """A name of one part or several, with its place."""
        line, column = self.line, self.column
        return Name(without_catalog(self.path(expected)), line, column)

    def dotted(self, expected: str) -> str:
        """A path as one text."""
        return ".".join(self.path(expected))

    def column_name(self) -> str:
        """The name of a column."""
        return self.identifier("a column")

    def column_path(self) -> str:
        """The name of a column, which may be within structs."""
        return self.dotted("a column")

    # -- lists

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """What `read` reads, once or more often, with commas between."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return tuple(found)

    def enclosed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """The same in parentheses."""
        self.need("(")
        found = self.listed(read)
        self.need(")")
        return found

    def listed_or_enclosed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """The same with parentheses or without."""
        return self.enclosed(read) if self.peek("(") else self.listed(read)

    # -- literals

    def string(self, expected: str = "a text in quotes") -> str:
        """A text in quotes."""
        token = self.token
        if token is None or not token.is_string:
            raise self.fail(expected)
        self._at += 1
        return token.text

    def is_string(self) -> bool:
        """Whether a text in quotes is next."""
        return self.token is not None and self.token.is_string

    def literal_text(self) -> str:
        """A setting's value: a text in quotes, a number or a word."""
        if self.is_string():
            return self.string()
        sign = "-" if self.take("-") else ""
        token = self.token
        if token is None or not token.text:
            raise self.fail("a value")
        self._at += 1
        return sign + token.text

    # -- parts that sqlglot parses

    def span(self, *ends: str, commas: bool = True) -> tuple[int, int]:
        """The tokens up to one of some words outside of parentheses and CASE … END, or to the end."""
        start, depth = self._at, 0
        while (token := self.token) is not None:
            if depth == 0 and (self._is_one(ends) or (commas and self.peek(","))):
                break
            plain = not token.is_string and not token.is_quoted
            step = _OPEN.get(token.text, 0) if plain else 0
            step += 1 if self.peek("CASE") else -1 if self.peek("END") else 0
            if depth + step < 0:
                break
            depth += step
            self._at += 1
        return start, self._at

    def _is_one(self, words: Sequence[str]) -> bool:
        return any(self.peek(*word.split(" ")) for word in words)

    def slice(self, span: tuple[int, int], expected: str) -> str:
        """The text of a span, as written. InputError for an empty one."""
        first, last = span
        if first == last:
            raise self.fail(expected)
        return self._text[self._tokens[first].start : self._tokens[last - 1].end + 1]

    def expression(self, *ends: str, commas: bool = True) -> Node:
        """An expression up to one of some words."""
        line, column = self.line, self.column
        text = self.slice(self.span(*ends, commas=commas), "an expression")
        # In its own place, so that errors name line and column of the statement.
        before = "\n" * (line - 1) + "SELECT ".rjust(column - 1)
        tree = parsed(before + text)
        given = [name for name, value in tree.args.items() if value]
        if not isinstance(tree, exp.Select) or given != ["expressions"] or len(tree.expressions) != 1:
            raise InputError(
                f"line {line}, column {column}: {text!r} is no expression", line=line, column=column, found=text
            )
        return as_written(tree.expressions[0], before + text, len(before))

    def query(self) -> exp.Query:
        """A query: all that is left."""
        start = self._at
        self.skip()
        return self.query_in((start, self._at))

    def query_in(self, span: tuple[int, int]) -> exp.Query:
        """The query of a span."""
        self._at, at = span[0], self._at
        line, column = self.line, self.column
        try:
            if self.take("TABLE"):
                found: Any = exp.select("*").from_(exp.to_table(str(self.name()), dialect=SqlDialect))
                if self._at != span[1]:
                    raise self.fail("the end of the query")
                return found
        finally:
            self._at = at
        text = self.slice(span, "a query")
        before = "\n" * (line - 1) + " " * (column - 1)
        tree = parsed(before + text)
        if isinstance(tree, exp.Values):
            tree = values_query(tree)
        if isinstance(tree, exp.Query):
            return as_written(tree, before + text, len(before))
        raise InputError(f"line {line}, column {column}: expected a query", line=line, column=column, found=text)

    def parenthesized(self) -> tuple[int, int]:
        """The span between parentheses, which are taken."""
        self.need("(")
        span = self.span(commas=False)
        self.need(")")
        return span

    def follows_parentheses(self, *words: str) -> bool:
        """Whether these words are next behind what is in parentheses here. Takes nothing."""
        at = self._at
        self.parenthesized()
        found, self._at = self.peek(*words), at
        return found

    def skip(self) -> None:
        """Takes all words that are left."""
        self._at = len(self._tokens)

    def type_text(self, *ends: str) -> str:
        """A column's type as written, up to a comma, a closing parenthesis or one of some words."""
        start, depth = self._at, 0
        while (token := self.token) is not None:
            if depth == 0 and (self.peek(",") or self._is_one(ends)):
                break
            step = {"<": 1, "(": 1, ">": -1, ")": -1, ">>": -2}.get(token.text, 0)
            if depth + step < 0:
                break
            depth += step
            self._at += 1
        return self.slice((start, self._at), "a type")


def values_query(values: exp.Values) -> exp.Query:
    """VALUES as a query whose columns have names."""
    first = values.expressions[0]
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    if not values.alias:
        names = [exp.to_identifier(f"col{at + 1}") for at in range(width)]
        values = values.copy()
        values.set("alias", exp.TableAlias(this=exp.to_identifier("given"), columns=names))
    query: exp.Query = exp.select("*").from_(values)
    return query


def parsed(text: str) -> Node:
    """One tree of sqlglot. InputError with line and column for what it can't parse."""
    try:
        trees = [tree for tree in sqlglot.parse(text, read=SqlDialect) if tree is not None]
    except SqlglotError as error:
        where: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
        line, column = where.get("line"), where.get("col")
        place = f"line {line}, column {column}: " if line else ""
        raise InputError(
            f"{place}the statement can't be parsed: {parse_reason(error)}", found=text.strip(), line=line, column=column
        ) from error
    if len(trees) != 1:
        raise InputError(f"one statement is expected, found {len(trees)}", found=text)
    tree: Node = trees[0]
    return tree
