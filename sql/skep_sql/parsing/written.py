"""Queries and expressions for Spark in the characters in which they were written.

skep looks at sqlglot's tree of a query, but what sqlglot prints may mean something else to Spark. So a tree keeps its
text, and Spark gets that, with what was replaced in the tree replaced at its place. Parts of a query that were not
written by a user are printed from the tree.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeAlias

from sqlglot import exp

from skep_format.schema.types import quoted
from skep_sql.parsing.statements import Node
from skep_sql.parsing.words import Word, words_of

_Behind: TypeAlias = Callable[[int], list[Word]]
_TEXT: Final = "skep_text"
_PLACE: Final = "skep_place"
_REPLACED: Final = "skep_replaced"
_ALIAS: Final = "skep_alias"
_NAME: Final = "skep_name"
_EXACT: Final = "skep_exact"

# Texts in quotes mean the same to sqlglot and to every Spark: no doubled quotes, no comments, no escapes but codes and
# that of a backslash.
_CODE: Final = r"\\u00[0-7][0-9a-f]|\\\\"
_ALIKE: Final = re.compile(
    rf"(?:(?!--|/\*)[^\\'\"]|'(?:[^\\'\"]|\"(?!\")|(?:{_CODE}))*'(?!')|\"(?:[^\\'\"]|'(?!')|(?:{_CODE}))*\"(?!\"))*"
)

_OF_SESSION: Final = {
    **dict.fromkeys(("current_database", "current_schema"), "database"),
    "current_catalog": "catalog",
    **dict.fromkeys(("current_user", "session_user", "user"), "user"),
}
_BEHIND_COLUMNS: Final = (
    *("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "LATERAL"),
    *("WINDOW", "UNION", "EXCEPT", "MINUS", "INTERSECT"),
)


@dataclass(frozen=True, slots=True)
class _Edit:
    """`text` in place of what is from `start` to before `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node is in its text: from `start` to before `end`; `alias` is where one would follow."""

    start: int
    end: int
    alias: int


@dataclass(frozen=True, slots=True)
class _Text:
    """A text, and edits by which Spark takes it as skep does. `line` and `column` are those of its first sign."""

    text: str
    edits: tuple[_Edit, ...] = ()
    line: int = 1
    column: int = 1


# -- remembered in the tree


def as_written(tree: Node, text: str, start: int = 0) -> Node:
    """The tree of a query or an expression, which keeps its text: that from `start` on of what was parsed."""

    @cache
    def all_words() -> list[Word]:
        return list(words_of(text))

    def behind(end: int) -> list[Word]:
        return [word for word in all_words() if word.start >= end]

    are_exact = _ALIKE.fullmatch(text) is not None
    for node in tree.walk():
        if are_exact and isinstance(node, exp.Literal):
            node.meta[_EXACT] = True
        place = _place(node, behind)
        if place is not None:
            node.meta[_PLACE] = _Place(place.start - start, place.end - start, place.alias - start)
        if isinstance(node, exp.Func) and "start" in node.meta:
            node.meta[_NAME] = text[node.meta["start"] : node.meta["end"] + 1].lower()
    edits = _quotes(text, behind(0), start) if "''" in text or '""' in text else ()
    line, column = _line_and_column(text, start)
    tree.meta[_TEXT] = _Text(text[start:], tuple(edits), line, column)
    return tree


def replaced(node: Node, new: Node | None = None, alias: str | None = None) -> None:
    """Puts `new` in place of a node in tree and text; None is the node itself, which was changed in the tree.

    A table without an alias of its own gets `alias`.
    """
    if new is not None:
        node.replace(new)
        new.meta[_PLACE] = node.meta.get(_PLACE)
        node = new
    node.meta[_REPLACED] = True
    if alias is not None:
        node.meta[_ALIAS] = alias


def is_read_alike(text: Node) -> bool:
    """Whether the value of a text is known, whatever signs are in it: Spark reads it as sqlglot does."""
    return bool(text.meta.get(_EXACT))


def function_name(node: Node) -> str | None:
    """The name by which a function was called, in lower case: one of several that sqlglot takes for the same."""
    name: str | None = node.meta.get(_NAME)
    return name


def name_columns(query: exp.Select, names: Sequence[str]) -> None:
    """Gives the columns of a SELECT that have none these names, in tree and text."""
    text: _Text | None = query.meta.get(_TEXT)
    ends = [] if text is None else _column_ends(list(words_of(text.text)))
    edits = []
    for at, (node, name) in enumerate(zip(list(query.expressions), names, strict=True)):
        if not isinstance(node, (exp.Alias, exp.Column)):
            node.replace(exp.alias_(node.copy(), name, quoted=True))
            edits += [_Edit(end, end, f" AS {quoted(name)}") for end in ends[at : at + 1]]
    if text is not None and len(ends) == len(names):
        query.meta[_TEXT] = replace(text, edits=(*text.edits, *edits))
    else:
        query.meta.pop(_TEXT, None)


def _column_ends(words: Sequence[Word]) -> list[int]:
    """Where the columns of the outermost SELECT end."""
    ends: list[int] = []
    depth, last = 0, None
    for word in words:
        if depth == 0 and last is not None:
            is_end = _is(word, *_BEHIND_COLUMNS) and not (_is(word, "FROM") and _is(last, "DISTINCT"))
            if is_end or _is(word, ","):
                ends.append(last.end + 1)
            if is_end:
                return ends
        depth += 1 if _is(word, "(", "[") else -1 if _is(word, ")", "]") else 0
        if last is not None or (depth == 0 and _is(word, "SELECT")):
            last = word
    return [*ends, last.end + 1] if last is not None else ends


def _place(node: Node, behind: _Behind) -> _Place | None:
    """Of nodes that may be replaced; `behind` has the words from a position on.

    None for others, and where sqlglot does not keep the place.
    """
    if isinstance(node, exp.Table):
        return _place_of_table(node, behind)
    if isinstance(node, exp.Column):  # the names before that of its table
        first = node.args.get("catalog") or node.args.get("db")
        if first is None or "start" not in first.meta or "start" not in node.args["table"].meta:
            return None
        end = node.args["table"].meta["start"]
        return _Place(first.meta["start"], end, end)
    if value_of_session(node) and "start" in node.meta:
        following = behind(node.meta["end"] + 1)
        end = _behind_parentheses(following) if following and _is(following[0], "(") else node.meta["end"] + 1
        return _Place(node.meta["start"], end, end)
    return None


def value_of_session(node: Node) -> str | None:
    """Which of a session's values a function is: database, catalog or user; None for other functions."""
    if not isinstance(node, exp.Func) or node.expressions:
        return None
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    return _OF_SESSION.get(name.lower())


def _place_of_table(node: Node, behind: _Behind) -> _Place | None:
    parts = [part for part in (node.args.get(name) for name in ("catalog", "db", "this")) if part is not None]
    if any("start" not in part.meta for part in parts):
        return None
    start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
    if isinstance(node.this, exp.Func):
        end = _behind_parentheses(behind(end))
    if node.args.get("version") or node.args.get("when"):
        end = _behind_version(behind(end))
    alias = end
    if node.args.get("sample"):
        alias = _behind_sample(behind(end))
    return _Place(start, end, alias)


def _is(word: Word, *texts: str) -> bool:
    return not word.is_string and not word.is_quoted and word.text.upper() in texts


def _behind_parentheses(words: Sequence[Word]) -> int:
    depth = 0
    for word in words:
        depth += 1 if _is(word, "(") else -1 if _is(word, ")") else 0
        if depth == 0:
            return word.end + 1
    return words[-1].end + 1


def _behind_version(words: Sequence[Word]) -> int:
    """Behind TIMESTAMP AS OF and the constant after it."""
    at = next(at for at, word in enumerate(words) if _is(word, "OF")) + 1
    if _is(words[at], "CAST", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ") and at + 1 < len(words):  # CAST('…' AS …), DATE '…'
        at += 1
    return _behind_parentheses(words[at:])


def _behind_sample(words: Sequence[Word]) -> int:
    at = next(at for at, word in enumerate(words) if _is(word, "("))
    end = _behind_parentheses(words[at:])
    rest = [word for word in words if word.start >= end]
    return _behind_parentheses(rest[1:]) if rest and _is(rest[0], "REPEATABLE") else end


def _quotes(text: str, words: Iterable[Word], start: int) -> Iterator[_Edit]:
    """A quote that is doubled within a text is one with a backslash before it: Spark 3 reads two texts otherwise."""
    for word in words:
        written = text[word.start : word.end + 1]
        quote = written[0]
        if word.is_string and quote in "'\"" and quote * 2 in written[1:-1]:
            inner = re.sub(rf"(\\.)|{quote}{quote}", lambda found: found[1] or f"\\{found[0][0]}", written[1:-1])
            yield _Edit(word.start - start, word.end + 1 - start, quote + inner + quote)


def names_used(tree: exp.Query) -> frozenset[str] | None:
    """All names that the query mentions, in lower case; None when it may mean columns that it does not name."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    if tree.find(exp.Pivot) or any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    # sqlglot's tree lacks some of the columns
    texts = {text.text for node in tree.walk() if (text := node.meta.get(_TEXT)) is not None}
    written = (word.text.lower() for text in texts for word in words_of(text) if not word.is_string)
    return frozenset(identifier.name.lower() for identifier in tree.find_all(exp.Identifier)).union(written)


# -- printed


def spark_text(tree: Node) -> str:
    """The query or expression as Spark takes it."""
    text: _Text | None = tree.meta.get(_TEXT)
    found = None if text is None else _edited(tree, text)
    return _printed(tree).text if found is None else found


def _edited(tree: Node, text: _Text) -> str | None:
    """None where something was replaced whose place is not known."""
    edits = _edits(tree, text)
    if edits is None:
        return None
    found, at = [], 0
    for edit in edits:
        found += [text.text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*found, text.text[at:]])


def _edits(tree: Node, text: _Text) -> list[_Edit] | None:
    """All that is replaced in a text, in the order of places. None where one of them is not known."""
    edits = list(text.edits)
    for node in tree.dfs(prune=lambda each: each is not tree and isinstance(each, exp.Subquery) and _is_replaced(each)):
        if not _is_replaced(node):
            continue
        place: _Place | None = node.meta.get(_PLACE)
        if place is None:
            return None
        edits.append(_Edit(place.start, place.end, _short(node)))
        if alias := node.meta.get(_ALIAS):
            edits.append(_Edit(place.alias, place.alias, f" AS {quoted(alias)}"))
    return sorted(edits, key=lambda each: (each.start, each.end))


def written_place(tree: Node, line: int, column: int) -> tuple[int, int] | None:
    """Line and column in the statement as it was written, of a place in `spark_text`; all count from 1.

    None where the place is not known, as in what was printed from the tree.
    """
    lines = spark_text(tree).split("\n")
    if not 1 <= line <= len(lines):
        return None
    return _written_place(tree, sum(len(each) + 1 for each in lines[: line - 1]) + column - 1)


def _written_place(tree: Node, at: int) -> tuple[int, int] | None:
    text: _Text | None = tree.meta.get(_TEXT)
    edits = None if text is None else _edits(tree, text)
    if text is None or edits is None:
        parts = _printed(tree).parts
        inner = ((node, at - start) for start, node in parts if start <= at < start + len(spark_text(node)))
        return next((_written_place(node, within) for node, within in inner), None)
    for edit in edits:  # `at` is a place in the text with the edits before this one undone
        if at < edit.start + len(edit.text):
            at = min(at, edit.start)
            break
        at += edit.end - edit.start - len(edit.text)
    below, right = _line_and_column(text.text, min(at, len(text.text)))
    return text.line + below - 1, right + (text.column - 1 if below == 1 else 0)


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _inner_text(tree: Node) -> str:
    """As a part of another text: a comment goes up to the end of its line."""
    text = spark_text(tree)
    return f"{text}\n" if "--" in text else text


def _is_replaced(node: Node) -> bool:
    return bool(node.meta.get(_REPLACED))


def _short(node: Node) -> str:
    if isinstance(node, exp.Table):
        parts = (node.args.get(name) for name in ("catalog", "db", "this"))
        return ".".join(part.sql("spark") for part in parts if part is not None)
    if isinstance(node, exp.Subquery):
        return f"({_inner_text(node.this)})"
    return "" if isinstance(node, exp.Column) else spark_text(node)


@dataclass(frozen=True, slots=True)
class _Printed:
    """A text, and where in it the texts of parts begin that have one."""

    text: str
    parts: tuple[tuple[int, Node], ...]


def _printed(tree: Node) -> _Printed:
    """By sqlglot, with the texts of the parts that have one."""
    copy = tree.copy()
    mark = f"skep_{uuid.uuid4().hex}_"
    written = [node for node in copy.dfs(prune=_has_text) if node is not copy and _has_text(node)]
    for at, node in enumerate(written):
        node.replace(exp.Var(this=f"{mark}{at}_"))
    text, parts = "", []
    for at, piece in enumerate(re.split(rf"{mark}(\d+)_", copy.sql("spark"))):
        if at % 2 == 0:
            text += piece
            continue
        node = written[int(piece)]
        is_query = isinstance(node, exp.Query)
        text += "" if is_query else "("
        parts.append((len(text), node))
        text += _inner_text(node) + ("" if is_query else ")")
    return _Printed(text, tuple(parts))


def _has_text(node: Node) -> bool:
    return _TEXT in node.meta
