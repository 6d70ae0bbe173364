"""What reading a slice needs of its table: schemas by version, keys, bootstrap sources, limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.logfile import BlockRule, BlockType, LogBlock
from skep_format.options import Options
from skep_format.schema.evolve import SourceNames
from skep_format.schema.history import SchemaVersion, source_names, version_at
from skep_format.schema.types import OPERATION, RECORD_KEY, Field, Schema, StringType
from skep_table.keys.stored import StoredKeys
from skep_table.merge import MergeRule, Updates, Watch
from skep_table.slices.history import schema_history
from skep_table.table import HudiTable


@dataclass(slots=True)
class MergeCounts:
    """Of what the rows of a merged slice were made: a compaction writes it into its commit. Complete when the last row
    has been read.

    `beyond_base`: the rows from now on have keys that the base file lacks.
    """

    blocks: int = 0
    corrupt_blocks: int = 0
    rollback_blocks: int = 0
    entries: int = 0
    keys: int = 0
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    beyond_base: bool = False

    def seen(self, blocks: Iterable[LogBlock]) -> Iterator[LogBlock]:
        """Counts blocks as they pass."""
        for block in blocks:
            self.blocks += 1
            self.corrupt_blocks += block.type is BlockType.CORRUPT
            self.rollback_blocks += block.is_rollback
            yield block

    def applied(self, updates: Updates, rest_rows: int) -> None:
        """All base rows that `updates` could touch have passed: the number of its rows that are new."""
        self.keys += len(updates)
        self.updated += updates.updated
        self.deleted += updates.deleted
        self.inserted += rest_rows


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """The requested times of commits: `named` ones, and those after `after` and before `before`, both exclusive.

    Whatever was written before the start of the active timeline is committed, also where the archive has lost it.
    """

    named: frozenset[InstantTime]
    after: InstantTime = BEFORE_ALL
    before: InstantTime = BEFORE_ALL

    @classmethod
    def of(
        cls, times: Iterable[InstantTime], after: InstantTime = BEFORE_ALL, before: InstantTime = BEFORE_ALL
    ) -> CommitTimes:
        """These instants, and those between `after` and `before`."""
        return cls(frozenset(times), after, before)

    @property
    def last(self) -> InstantTime | None:
        """The latest of the named ones."""
        return max(self.named, default=None)

    def includes(self, time: InstantTime) -> bool:
        """Whether rows of this commit are wanted."""
        return time in self.named or time.is_between(self.after, self.before)

    def mask(self, times: pa.Array) -> pa.Array:
        """Row by row whether a commit time is one of them."""
        found = pc.is_in(times, value_set=pa.array(sorted(self.named), pa.string()))
        if self.after.is_before(self.before):
            found = pc.or_(found, pc.and_(pc.greater(times, self.after), pc.less(times, self.before)))
        return pc.fill_null(found, False)


@dataclass(frozen=True)
class SliceContext:
    """`schema` is the reader's, all columns; `columns` are wanted, in that order."""

    table: HudiTable
    schema: Schema
    columns: tuple[str, ...]
    as_of: InstantTime | None
    options: Options
    commit_times: CommitTimes | None = None
    known_history: tuple[SchemaVersion, ...] | None = None
    counts: MergeCounts = field(default_factory=MergeCounts)
    watch: Watch | None = None

    def with_operations_in(self, blocks: Sequence[LogBlock]) -> SliceContext:
        """Merging by the operations of rows also where only the blocks state that column.

        Hudi leaves it out of the schemas of commits. Flink's changelog mode keeps deletes as rows whose operation is D.
        """
        if OPERATION in self.schema or not any(block.holds_operations for block in blocks):
            return self
        return replace(self, schema=self.schema.with_texts((OPERATION,)))

    @cached_property
    def rule(self) -> MergeRule:
        """How rows of one key are merged."""
        return MergeRule.of(self.table.config, self.options).with_defaults(self.schema)

    @cached_property
    def block_rule(self) -> BlockRule:
        """Which log blocks are read."""
        counts = self.table.timeline.is_completed_or_archived
        if self.commit_times is None:
            return BlockRule(counts, self.as_of)
        return BlockRule(counts, self.as_of, self.commit_times.includes)

    @property
    def answer(self) -> Schema:
        """The schema of the rows that are returned."""
        return self.schema.select(self.columns)

    @cached_property
    def merged(self) -> Schema:
        """The columns that go through the merge: the wanted ones, and what keys and ordering values are made of."""
        if self.rule.reads_whole_rows:
            return self.schema
        wanted = {*self.columns, *self.rule.columns(self.schema)}
        if not self.table.config.populate_meta_fields:
            wanted.update(self.stored_keys.schema.names())
        return self.schema.select(tuple(name for name in self.schema.names() if name in wanted))

    @cached_property
    def without_key(self) -> Schema:
        """`merged` for base rows that are found by their position: with the record key only where that is wanted."""
        names = (name for name in self.merged.names() if name != RECORD_KEY or name in self.columns)
        return self.merged.select(tuple(names))

    @cached_property
    def merged_in_part(self) -> Schema:
        """`merged` for rows of partial updates, which lack required columns until they are completed."""
        fields = tuple(replace(each, nullable=True) for each in self.merged.fields)
        return replace(self.merged, fields=fields)

    @cached_property
    def stored_keys(self) -> StoredKeys:
        """How the record keys of rows are found."""
        return StoredKeys.of(self.table.config, self.schema)

    @cached_property
    def keyed(self) -> Schema:
        """`merged` with a record key."""
        if RECORD_KEY in self.merged:
            return self.merged
        return replace(self.merged, fields=(*self.merged.fields, Field(RECORD_KEY, StringType())))

    def names_at(self, instant_time: InstantTime) -> SourceNames:
        """Under which names a file of this instant holds the reader's columns, where they were renamed."""
        query = self._query_version
        file = version_at(self._history, instant_time) if query is not None else None
        if query is None or file is None or file == query:
            return _SAME_NAMES
        return source_names(file, query)

    @property
    def widens_exactly(self) -> bool:
        """Whether floats in Avro blocks become just these doubles: Hudi 0.15 and 1.0 leave that to Avro, where there
        is no schema history. Else they are converted through their texts, as those in base files do."""
        return self.table.format.reads.widens_floats_exactly and self._query_version is None

    @cached_property
    def _query_version(self) -> SchemaVersion | None:
        if self.as_of is not None:
            return version_at(self._history, self.as_of)
        return self._history[-1] if self._history else None

    @property
    def _history(self) -> tuple[SchemaVersion, ...]:
        return schema_history(self.table) if self.known_history is None else self.known_history


_SAME_NAMES: Mapping[str, str | None] = {}
