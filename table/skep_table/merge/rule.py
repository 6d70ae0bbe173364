"""The merge rule of a table: one frozen form of what payload classes, merge modes and their options mean.

A rule has three stages: how rows of one batch with a key combine, how log entries do, and how what is left of either
meets the row in the base file. They differ where a payload class combines by another method than it updates, and where
Hudi 1.0 itself compares what the class never sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from skep_format.options import comma_list, option
from skep_format.schema.types import IS_DELETED, NO_DEFAULT, OPERATION, RECORD_KEY, Schema
from skep_format.table_config import (
    MERGE_PROPERTY_PREFIX,
    MergeMode,
    PartialUpdateMode,
    TableConfig,
    TableType,
    keys,
)
from skep_format.table_config.keys import PAYLOAD_STRATEGY, simple_name
from skep_format.table_config.merging import DEBEZIUM_UNAVAILABLE
from skep_format.versions import MergeSource, format_of
from skep_table.merge.custom import IMPLEMENTATIONS, MERGER, find_merger, merger_of, own_mergers

DELETE_FIELD = option(keys.DELETE_FIELD, str, "", "A column whose value marks deletes")
DELETE_MARKER = option(keys.DELETE_MARKER, str, "", "The value of the delete field that means a delete")


class Fill(Enum):
    """Which fields of the winning row are taken from the losing one."""

    NOTHING = "nothing"
    NULLS = "nulls"
    DEFAULTS = "defaults"  # fields that equal their default; null where the schema has none
    UNAVAILABLE = "unavailable"  # a marker text in place of a value that the source did not send


@dataclass(frozen=True, slots=True)
class MergeStep:
    """How an older and a newer row with one key combine.

    `by_ordering`: the greater ordering value wins, ties go to the newer; else the newer wins. `delete_wins`: a newer
    delete wins whatever its ordering value. `block_wins`: so does a newer entry of a delete block, but not a row
    marked as a delete. `after_delete_newer`: a row replaces an older entry of a delete block whatever the ordering
    values. `newer_meta`: meta columns are the newer row's even when the older wins. `rows_newer`: `by_ordering` is for
    deletes; of two rows the newer wins. `first_wins`: of two rows with equal ordering values the older wins, marked as
    a delete or not.
    `unordered_delete_stays`: a delete without an ordering value stays below later deletes that have one, and so removes
    what is in the base file whatever its order. `late_fills`: a newer row that loses fills what the older one lacks.
    """

    by_ordering: bool = False
    fill: Fill = Fill.NOTHING
    late_fills: bool = True
    delete_wins: bool = False
    block_wins: bool = False
    after_delete_newer: bool = False
    newer_meta: bool = False
    rows_newer: bool = False
    first_wins: bool = False
    unordered_delete_stays: bool = False


@dataclass(frozen=True, slots=True)
class MergeRule:
    """`merger` names a custom merger, looked up when rows are merged: where nothing is to be merged none is needed.

    `batch` is None where rows of one batch combine as log entries do.
    `unavailable` is the text in place of a value that the source did not send; None where the table names none.
    `numbered_ordering`: ordering values are texts of two numbers with a dot between, compared number by number.
    """

    ordering_fields: tuple[str, ...] = ()
    log: MergeStep = MergeStep()
    base: MergeStep = MergeStep()
    batch: MergeStep | None = None
    delete_field: str | None = None
    delete_marker: str | None = None
    unavailable: str | None = DEBEZIUM_UNAVAILABLE
    defaults: tuple[tuple[str, object], ...] = ()
    merger: str | None = None
    numbered_ordering: bool = False

    @classmethod
    def of(cls, config: TableConfig, options: Mapping[str, str] | None = None) -> MergeRule:
        """The rule by which a table's own release merges it: version 6 as Hudi 0.15, 8 as 1.0, 9 as 1.1."""
        given: Mapping[str, str] = {**config.raw, **(options or {})}
        rule = _RULE_OF[format_of(config).merge_source](config)
        field, marker = _property(given, DELETE_FIELD.key), _property(given, DELETE_MARKER.key)
        if field and marker:
            rule = replace(rule, delete_field=field, delete_marker=marker)
        unavailable = _property(given, keys.UNAVAILABLE_VALUE)
        if unavailable or config.partial_update_mode is not None:
            rule = replace(rule, unavailable=unavailable)
        if given.get(MERGER.key):
            rule = replace(rule, merger=given[MERGER.key])
        elif rule.merger is not None and rule.merger == config.merge_strategy_id:
            names = own_mergers(comma_list(given.get(IMPLEMENTATIONS.key, "")))
            rule = replace(rule, merger=merger_of(rule.merger, names))
        return rule

    def check(self) -> None:
        """UnsupportedError where a merger is needed that is not registered."""
        if self.merger is not None:
            find_merger(self.merger)

    def with_defaults(self, schema: Schema) -> MergeRule:
        """The rule with the defaults of the schema's fields, which `Fill.DEFAULTS` compares with."""
        if Fill.DEFAULTS not in (self.log.fill, self.base.fill):
            return self
        found = ((f.name, f.default) for f in schema.fields if f.default is not NO_DEFAULT and f.default is not None)
        return replace(self, defaults=tuple(found))

    def columns(self, schema: Schema) -> tuple[str, ...]:
        """The columns of `schema` that merging itself needs, in its order."""
        wanted = {RECORD_KEY, IS_DELETED, OPERATION, *(name.partition(".")[0] for name in self.ordering_fields)}
        wanted.update(self.ordering_fields)
        if self.delete_field:
            wanted.add(self.delete_field)
        return tuple(name for name in schema.names() if name in wanted)

    def marks_deletes(self, schema: Schema) -> bool:
        """Whether a column of `schema` makes a row a delete."""
        return not {IS_DELETED, OPERATION, self.delete_field}.isdisjoint(schema.names())

    @property
    def of_batch(self) -> MergeRule:
        """The rule by which the rows of one batch combine, as its log stage."""
        return self if self.batch is None else replace(self, log=self.batch, batch=None)

    @property
    def reads_whole_rows(self) -> bool:
        """Whether a merged row can depend on columns that were not asked for."""
        return self.merger is not None


_BY_ORDERING: Final = MergeStep(by_ordering=True)
_LATEST: Final = MergeStep()
# Hudi 0.15 combines log entries by ordering value for every payload class that does not override it.
_LOG_OF_0_15: Final = MergeStep(by_ordering=True, after_delete_newer=True)


def _payload_rule(config: TableConfig) -> MergeRule:
    """Table version 6: by payload class."""
    ordering = config.ordering_fields
    log = _LOG_OF_0_15 if ordering else _LATEST
    match simple_name(config.payload_class or "") or "OverwriteWithLatestAvroPayload":
        case "OverwriteWithLatestAvroPayload":
            # Against the stored row the latest wins whatever its ordering value: format guide 8.2.
            return MergeRule(ordering, log, _LATEST)
        case "DefaultHoodieRecordPayload":
            return MergeRule(ordering, log, replace(_BY_ORDERING, block_wins=True) if ordering else _LATEST)
        case "FirstValueAvroPayload":
            base = replace(_BY_ORDERING, block_wins=True, first_wins=True) if ordering else _LATEST
            return MergeRule(ordering, replace(log, first_wins=True), base)
        case "EventTimeAvroPayload":
            return MergeRule(ordering, log, replace(_BY_ORDERING, delete_wins=True) if ordering else _LATEST)
        case "PartialUpdateAvroPayload":
            stage = MergeStep(bool(ordering), Fill.NULLS, after_delete_newer=True, newer_meta=True)
            return MergeRule(ordering, stage, replace(stage, delete_wins=True))
        case "OverwriteNonDefaultsWithLatestAvroPayload":
            return MergeRule(ordering, log, MergeStep(fill=Fill.DEFAULTS))
        case "AWSDmsAvroPayload":
            return MergeRule(ordering, log, _LATEST, delete_field="Op", delete_marker="D")
        case "PostgresDebeziumAvroPayload":
            base = MergeStep(by_ordering=True, fill=Fill.UNAVAILABLE, late_fills=False, block_wins=True)
            rule = _change_stream(ordering or ("_event_lsn",), _LOG_OF_0_15, base)
            # Hudi before 1.1 loses a value to a later row of the same batch that came without it.
            return replace(rule, batch=replace(_LOG_OF_0_15, fill=Fill.UNAVAILABLE))
        case "MySqlDebeziumAvroPayload":
            # Hudi 0.15 compares log entries as texts, 94 above 707, and loses the newer: here numbers are compared.
            return _change_stream(("_event_seq",), _LOG_OF_0_15, replace(_BY_ORDERING, block_wins=True), numbered=True)
        case name:
            return MergeRule(ordering, _LATEST, _LATEST, merger=name)


def _mode_rule(config: TableConfig) -> MergeRule:
    """Table versions 8 and 9: by merge mode, and in 9 by partial update mode."""
    ordering = config.ordering_fields
    strategy = config.merge_strategy_id or PAYLOAD_STRATEGY
    # A payload class beside a merger of one's own is for releases that know no mergers.
    payload = simple_name(config.payload_class or "") if strategy == PAYLOAD_STRATEGY else ""
    fill = {
        None: Fill.NOTHING,
        PartialUpdateMode.IGNORE_DEFAULTS: Fill.DEFAULTS,
        PartialUpdateMode.FILL_UNAVAILABLE: Fill.UNAVAILABLE,
    }[config.partial_update_mode]
    if config.merge_mode is MergeMode.COMMIT_TIME_ORDERING:
        stage = MergeStep(fill=fill)
        return MergeRule(ordering, stage, stage)
    if config.merge_mode is MergeMode.EVENT_TIME_ORDERING:
        stage = MergeStep(by_ordering=bool(ordering), fill=fill, unordered_delete_stays=True)
        return MergeRule(ordering, stage, stage)
    by_class = _payload_rule(config) if payload else None
    if by_class is None or by_class.merger is not None:
        return MergeRule(ordering, _LATEST, _LATEST, merger=payload or strategy)
    if config.type is TableType.COPY_ON_WRITE:
        return by_class
    stage = _log_stage_of_1_0(payload, by_ordering=bool(by_class.ordering_fields))
    return replace(by_class, log=stage, base=stage, batch=by_class.batch or by_class.log)


def _log_stage_of_1_0(payload: str, *, by_ordering: bool) -> MergeStep:
    """How log entries combine and meet the base file under a payload class, in versions 8 and 9.

    The classes combine rows only. Hudi 1.0 itself compares deletes with rows, by their ordering values; from 1.1 on
    entries of delete blocks delete what is older, whatever its order, in tables of version 8 too.
    """
    stage = MergeStep(by_ordering=by_ordering, unordered_delete_stays=True)
    match payload:
        case "FirstValueAvroPayload":
            return replace(stage, first_wins=True)
        case "PartialUpdateAvroPayload":
            return replace(stage, fill=Fill.NULLS, newer_meta=True)
        case "OverwriteNonDefaultsWithLatestAvroPayload":
            return replace(stage, rows_newer=True, fill=Fill.DEFAULTS)
        case "AWSDmsAvroPayload":
            return replace(stage, rows_newer=True)
        case "PostgresDebeziumAvroPayload":
            return replace(stage, fill=Fill.UNAVAILABLE, late_fills=False)
    return stage


_RULE_OF: Final = {MergeSource.PAYLOAD_CLASS: _payload_rule, MergeSource.MERGE_MODE: _mode_rule}


def _change_stream(ordering: tuple[str, ...], log: MergeStep, base: MergeStep, *, numbered: bool = False) -> MergeRule:
    """The rule for rows of Debezium: a column holds the kind of change."""
    return MergeRule(
        ordering, log, base, delete_field="_change_operation_type", delete_marker="d", numbered_ordering=numbered
    )


def _property(given: Mapping[str, str], key: str) -> str | None:
    """Table version 9 keeps merge properties under a prefix."""
    return given.get(MERGE_PROPERTY_PREFIX + key) or given.get(key) or None
