"""Statements as frozen values: what a text asks for, before any name in it was looked up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlglot import exp

Node: TypeAlias = Any  # a tree of sqlglot: its base class has different names in different releases


class Statement:
    """What a text asks for."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Name:
    """A table, index or database as written, one part or two, and where it is in the text."""

    parts: tuple[str, ...]
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return ".".join(self.parts)

    @classmethod
    def of(cls, text: str) -> Name:
        """A name in a text of its own, as in an argument; backticks allowed."""
        return cls(tuple(part.strip("`") for part in text.split(".")))


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column of a new table. `type` is text as SQL writes it; `after` names the column before it, '' is none."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    after: str | None = None


# Partition column → its value, None where the rows bring it.
PartitionSpec: TypeAlias = Mapping[str, Node | None]


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """Anything that answers rows."""

    tree: exp.Query


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """`query` is that of CREATE TABLE … AS; `like` names the table whose columns are taken."""

    name: Name
    columns: tuple[ColumnSpec, ...] = ()
    if_not_exists: bool = False
    provider: str | None = None
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    query: exp.Query | None = None
    like: Name | None = None


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """`location` is the folder of its tables."""

    name: Name
    if_not_exists: bool = False
    location: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """A query under a name: a `temporary` one is known to this session alone. `comments` are those of `columns`."""

    name: Name
    query: exp.Query
    columns: tuple[str, ...] = ()
    replace: bool = False
    temporary: bool = True
    if_not_exists: bool = False
    comment: str | None = None
    comments: tuple[str | None, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateFilesView(Statement):
    """A temporary view over files, or another source of Spark's; `columns` as they are written, None are its own."""

    name: Name
    provider: str
    options: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """`kind` is table, view or database."""

    kind: str
    name: Name
    if_exists: bool = False
    purge: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    """All rows, or those of the partitions that `partition` names."""

    name: Name
    partition: PartitionSpec | None = None


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """`what`: tables, table extended, databases, partitions, create table, tblproperties, columns, indexes, views,
    functions, of which `key` names a set: user, system or all; catalogs, current namespace."""

    what: str
    name: Name | None = None
    pattern: str | None = None
    key: str | None = None
    partition: PartitionSpec | None = None


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """`kind` is table or database."""

    name: Name
    extended: bool = False
    column: str | None = None
    kind: str = "table"
    partition: PartitionSpec | None = None


@dataclass(frozen=True, slots=True)
class DescribeQuery(Statement):
    """The columns of an answer, without computing it."""

    query: exp.Query


@dataclass(frozen=True, slots=True)
class Use(Statement):
    """The database of names without one."""

    name: Name


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """`key` None asks for all settings, `value` None for the one of `key`."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ResetOption(Statement):
    """`key` None resets all settings."""

    key: str | None = None


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """`columns` None: by position, all columns of the table."""

    name: Name
    query: exp.Query
    overwrite: bool = False
    partition: PartitionSpec | None = None
    columns: tuple[str, ...] | None = None
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and the expression that gives its new value."""

    column: str
    value: Node


@dataclass(frozen=True, slots=True)
class Update(Statement):
    """`alias` is the name by which the expressions refer to the table."""

    name: Name
    alias: str | None
    assignments: tuple[Assignment, ...]
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """Of the rows for which `where` holds, all of them where it is None."""

    name: Name
    alias: str | None
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class MergeClause:
    """`when`: matched, not matched, or not matched by source. `action`: update, delete or insert.

    `assignments` None is `*`: all columns from the source's columns of the same names.
    """

    when: str
    action: str
    condition: Node | None = None
    assignments: tuple[Assignment, ...] | None = None


@dataclass(frozen=True, slots=True)
class Merge(Statement):
    """`source` is a table or a query, under `source_alias`."""

    name: Name
    alias: str | None
    source: exp.Query
    source_alias: str
    on: Node
    clauses: tuple[MergeClause, ...]


@dataclass(frozen=True, slots=True)
class AlterTable(Statement):
    """`action`: rename, add columns, drop partition, add partition, set properties, unset properties, rename column,
    drop column, alter column. `text` is the statement's own words for errors."""

    name: Name
    action: str
    new_name: Name | None = None
    columns: tuple[ColumnSpec, ...] = ()
    partitions: tuple[PartitionSpec, ...] = ()
    if_exists: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    column: str | None = None
    new_column: str | None = None
    type: str | None = None
    comment: str | None = None
    nullable: bool | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Call(Statement):
    """A procedure with arguments by name or by position."""

    name: str
    arguments: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """How a statement would be carried out."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class Refresh(Statement):
    """REFRESH TABLE and MSCK REPAIR TABLE: the metastore's entry is brought up to the table."""

    name: Name


@dataclass(frozen=True, slots=True)
class Uncache(Statement):
    """UNCACHE TABLE, and with `name` None CLEAR CACHE: here nothing is kept between queries."""

    name: Name | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateIndex(Statement):
    """`kind` None is that of the index's name, else a secondary one. `name` is the table."""

    index: str
    name: Name
    kind: str | None = None
    columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropIndex(Statement):
    """`name` is the table."""

    index: str
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RefreshIndex(Statement):
    """`name` is the table."""

    index: str
    name: Name


@dataclass(frozen=True, slots=True)
class Unsupported(Statement):
    """A statement that is known and not built, by its name."""

    what: str
    hint: str | None = None


def words_of_kind(statement: Statement) -> str:
    """The words of a kind of statement, as errors and plans name it."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(statement).__name__).upper()
