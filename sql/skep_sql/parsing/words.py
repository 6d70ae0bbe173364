"""The words of a text in Spark's SQL, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokens import TokenType  # type: ignore[attr-defined,unused-ignore]

from skep_table.query.filters.text import SqlDialect


class _WordsDialect(SqlDialect):
    """Where no word makes the rest of a statement one token."""

    class Tokenizer(SqlDialect.Tokenizer):
        """Without commands."""

        COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True, slots=True)
class Word:
    """A word or sign of a statement: `start` and `end` are positions in the text, the latter that of its last sign."""

    text: str
    start: int
    end: int
    line: int
    column: int
    is_string: bool = False
    is_quoted: bool = False


def words_of(text: str) -> Iterator[Word]:
    """Names, signs and constants in turn. sqlglot's error for what has no tokens."""
    for token in _WordsDialect().tokenize(text):
        column = max(1, token.col - (token.end - token.start))
        kind = token.token_type
        if kind not in (TokenType.STRING, TokenType.IDENTIFIER) and " " in token.text:  # words that sqlglot joins
            written = text[token.start : token.end + 1]
            for part in re.finditer(r"\S+", written):
                at = token.start + part.start()
                yield Word(part[0], at, at + len(part[0]) - 1, token.line, column + part.start())
        else:
            strings = kind in (TokenType.STRING, TokenType.RAW_STRING)
            yield Word(token.text, token.start, token.end, token.line, column, strings, kind is TokenType.IDENTIFIER)
