"""Merge semantics (format guide 8.2), sentence by sentence: each rule over log entries and against base rows."""

import pickle
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from skep_format.errors import SchemaError, UnsupportedError
from skep_format.schema.types import IS_DELETED, Field, IntType, Schema, StringType
from skep_format.table_config import MergeMode, PartialUpdateMode, TableConfig, TableType
from skep_table import plug_ins
from skep_table.merge import DELETED, Fill, MergeRule, Updates, latest_per_key
from skep_table.merge import custom as custom_mergers

MODEL = "org.apache.hudi.common.model."
COLUMNS = pa.schema(
    [("_hoodie_record_key", pa.string()), ("ts", pa.int64()), ("v", pa.string()), (DELETED, pa.bool_())]
)


def config(
    version=6,
    payload=None,
    ordering=("ts",),
    mode=MergeMode.COMMIT_TIME_ORDERING,
    partial=None,
    kind=TableType.MERGE_ON_READ,
    **raw,
):
    return TableConfig(
        name="t",
        version=version,
        type=kind,
        payload_class=MODEL + payload if payload else None,
        ordering_fields=ordering,
        merge_mode=mode,
        partial_update_mode=partial,
        raw=raw,
    )


LATEST_0_15 = MergeRule.of(config(payload="OverwriteWithLatestAvroPayload"))
EVENT_0_15 = MergeRule.of(config(payload="DefaultHoodieRecordPayload"))
EVENT_TIME_PAYLOAD = MergeRule.of(config(payload="EventTimeAvroPayload"))
COMMIT_TIME = MergeRule.of(config(8, mode=MergeMode.COMMIT_TIME_ORDERING))
EVENT_TIME = MergeRule.of(config(9, mode=MergeMode.EVENT_TIME_ORDERING))
PARTIAL = MergeRule.of(config(payload="PartialUpdateAvroPayload"))


def row(ts, v):
    """A record with an ordering value."""
    return ("k", ts, v, False)


def delete(ts=None):
    """A delete with an ordering value, or one by commit time."""
    return ("k", ts, None, True)


def table(*rows):
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, values, strict=True)) for values in rows], schema=COLUMNS)


def log(rule, *entries):
    """What is left of log entries of one key: the value, or "deleted"."""
    (left,) = latest_per_key(table(*entries), rule).to_pylist()
    return "deleted" if left[DELETED] else left["v"]


def merged(rule, base, *entries):
    """What a reader finds: the base row `(ts, v)` with the log entries over it."""
    updates = Updates(latest_per_key(table(*entries), rule), rule)
    rows = table(row(*base)).drop_columns([DELETED])
    answer = updates.apply(rows.to_batches()[0])
    assert updates.rest().num_rows == 0
    return answer.column("v").to_pylist()[0] if answer.num_rows else "deleted"


def flagged(ts):
    """A row with an ordering value that is marked as a delete."""
    return ("k", ts, None, False, True)


def stored(rule, base, *rows):
    """What a write of rows, of which the last may be flagged, leaves of the base row `(ts, v)`."""
    names = [*COLUMNS.names, IS_DELETED]
    schema = COLUMNS.append(pa.field(IS_DELETED, pa.bool_()))
    full = [(*values, False)[: len(names)] for values in rows]
    batch = pa.Table.from_pylist([dict(zip(names, values, strict=True)) for values in full], schema=schema)
    updates = Updates(latest_per_key(batch, rule.of_batch), rule)
    before = pa.Table.from_pylist([dict(zip(names, (*row(*base), False), strict=True))], schema=schema)
    left = updates.apply(before.drop_columns([DELETED]).to_batches()[0])
    return left.column("v").to_pylist()[0] if left.num_rows else "deleted"


class TestCommitTimeOrdering:
    """New always replaces old; a delete always deletes."""

    def test_a_later_record_wins_whatever_its_ordering_value(self):
        assert log(COMMIT_TIME, row(9, "a"), row(1, "b")) == "b"
        assert merged(COMMIT_TIME, (9, "base"), row(1, "b")) == "b"

    def test_a_delete_always_deletes(self):
        assert log(COMMIT_TIME, row(9, "a"), delete(1)) == "deleted"
        assert merged(COMMIT_TIME, (9, "base"), delete(1)) == "deleted"

    def test_a_record_after_a_delete_is_there_again(self):
        assert merged(COMMIT_TIME, (9, "base"), delete(8), row(1, "b")) == "b"


@pytest.mark.parametrize("rule", [EVENT_0_15, EVENT_TIME], ids=["0.15", "1.1"])
class TestEventTimeOrdering:
    """The greater ordering value wins; ties go to the later arrival."""

    def test_among_records_the_greatest_ordering_value_wins(self, rule):
        assert log(rule, row(2, "a"), row(5, "b"), row(3, "c")) == "b"

    def test_equal_ordering_values_go_to_the_later(self, rule):
        assert log(rule, row(2, "a"), row(2, "b"), row(2, "c")) == "c"
        assert merged(rule, (2, "base"), row(2, "b")) == "b"

    def test_a_base_row_with_a_greater_value_stays(self, rule):
        assert merged(rule, (3, "base"), row(2, "b")) == "base"

    def test_a_commit_time_delete_always_wins(self, rule):
        assert log(rule, row(9, "a"), delete()) == "deleted"
        assert merged(rule, (9, "base"), delete()) == "deleted"

    def test_after_a_commit_time_delete_a_record_always_wins(self, rule):
        assert log(rule, row(9, "a"), delete(), row(1, "b")) == "b"

    def test_an_event_time_delete_loses_against_a_strictly_greater_value(self, rule):
        assert log(rule, row(5, "a"), delete(4)) == "a"
        assert log(rule, row(5, "a"), delete(5)) == "deleted"
        assert merged(rule, (5, "base"), delete(5)) == "deleted"

    def test_a_record_after_an_event_time_delete_wins_with_a_greater_value(self, rule):
        assert log(rule, delete(4), row(5, "b")) == "b"
        assert log(rule, delete(4), row(4, "b")) == "b"


class TestWhereReleasesDiffer:
    def test_a_late_event_time_delete_against_the_base_row(self):
        """1.x compares; 0.15 keeps no ordering value with what is left of a delete block, so it always deletes."""
        assert merged(EVENT_TIME, (5, "base"), delete(4)) == "base"
        assert merged(EVENT_0_15, (5, "base"), delete(4)) == "deleted"

    def test_an_older_record_after_an_event_time_delete(self):
        """1.x compares; 0.15 lets a later record replace an accumulated delete."""
        assert log(EVENT_TIME, delete(4), row(3, "b")) == "deleted"
        assert log(EVENT_0_15, delete(4), row(3, "b")) == "b"

    def test_a_longer_sequence_is_merged_in_order(self):
        story = [row(5, "a"), delete(6), row(2, "b"), row(3, "c"), delete(1), row(1, "d")]
        assert log(EVENT_TIME, *story) == "deleted"
        assert log(EVENT_0_15, *story) == "c"

    def test_overwrite_with_latest_of_0_15_uses_the_ordering_value_within_the_log_only(self):
        assert log(LATEST_0_15, row(2, "a"), row(0, "b")) == "a"
        assert merged(LATEST_0_15, (9, "base"), row(0, "b")) == "b"

    def test_without_a_precombine_field_it_is_the_latest(self):
        rule = MergeRule.of(config(payload="OverwriteWithLatestAvroPayload", ordering=()))
        assert log(rule, row(2, "a"), row(0, "b")) == "b"

    def test_event_time_payload_lets_a_delete_win_over_the_base_row(self):
        assert merged(EVENT_TIME_PAYLOAD, (9, "base"), delete(1)) == "deleted"
        assert merged(EVENT_TIME_PAYLOAD, (9, "base"), row(1, "b")) == "base"

    def test_an_event_time_delete_after_a_commit_time_delete(self):
        """1.x: what the first one removed stays removed, whatever the order of the second, and may come back."""
        assert merged(EVENT_TIME, (5, "base"), delete(), delete(4)) == "deleted"
        assert log(EVENT_TIME, row(5, "a"), delete(), delete(4), row(1, "b")) == "b"
        partial = config(9, mode=MergeMode.EVENT_TIME_ORDERING, partial=PartialUpdateMode.IGNORE_DEFAULTS)
        assert merged(MergeRule.of(partial), (5, "base"), delete(), delete(4)) == "deleted"


class TestPartialUpdates:
    def test_nulls_of_the_winning_row_are_filled_from_the_other(self):
        assert log(PARTIAL, row(1, "a"), row(2, None)) == "a"
        assert log(PARTIAL, row(3, None), row(2, "late")) == "late"
        assert merged(PARTIAL, (3, "base"), row(4, None)) == "base"

    def test_meta_columns_are_those_of_the_newer_arrival(self):
        columns = pa.schema([("_hoodie_commit_time", pa.string()), *COLUMNS])
        rows = [("001", "k", 3, None, False), ("002", "k", 2, "late", False)]
        entries = pa.Table.from_pylist([dict(zip(columns.names, r, strict=True)) for r in rows], schema=columns)
        assert latest_per_key(entries, PARTIAL).select(["_hoodie_commit_time", "ts", "v"]).to_pylist() == [
            {"_hoodie_commit_time": "002", "ts": 3, "v": "late"}
        ]

    def test_a_delete_gives_nothing_and_takes_nothing(self):
        assert log(PARTIAL, delete(1), row(2, None)) is None
        assert merged(PARTIAL, (3, "base"), delete(4)) == "deleted"

    def test_ignore_defaults_compares_with_the_fields_default(self):
        schema = Schema((Field("v", StringType(), default="-"), Field("ts", IntType())))
        by_mode = config(9, mode=MergeMode.EVENT_TIME_ORDERING, partial=PartialUpdateMode.IGNORE_DEFAULTS)
        rule = MergeRule.of(by_mode).with_defaults(schema)
        assert log(rule, row(1, "a"), row(2, "-")) == "a"
        assert log(rule, row(1, "a"), row(2, "b")) == "b"

    def test_overwrite_non_defaults_keeps_old_values_where_the_new_are_null(self):
        rule = MergeRule.of(config(payload="OverwriteNonDefaultsWithLatestAvroPayload", ordering=()))
        assert merged(rule, (9, "base"), row(1, None)) == "base"
        assert merged(rule, (9, "base"), row(1, "b")) == "b"

    def test_unavailable_texts_keep_the_old_value(self):
        key = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
        mode, partial = MergeMode.EVENT_TIME_ORDERING, PartialUpdateMode.FILL_UNAVAILABLE
        by_mode = config(9, mode=mode, partial=partial, **{key: "__debezium_unavailable_value"})
        rule = MergeRule.of(by_mode)
        assert rule.base.fill is Fill.UNAVAILABLE
        assert merged(rule, (1, "base"), row(2, "__debezium_unavailable_value")) == "base"
        assert log(rule, row(1, "a"), row(2, "__debezium_unavailable_value")) == "a"

    def test_blocks_of_partial_updates_bring_only_their_columns(self):
        columns = pa.schema([*COLUMNS, ("w", pa.string()), ("_skep_has_v", pa.bool_()), ("_skep_has_w", pa.bool_())])
        rows = [
            ("k", 1, "v1", False, None, True, False),
            ("k", 2, None, False, None, False, True),  # sets w to null
            ("late", 9, "v9", False, "w9", True, True),
            ("late", 3, "v3", False, None, True, False),
        ]
        entries = pa.Table.from_pylist([dict(zip(columns.names, r, strict=True)) for r in rows], schema=columns)
        left = latest_per_key(entries, EVENT_TIME)
        assert left.select(["ts", "v", "w"]).to_pylist() == [
            {"ts": 2, "v": "v1", "w": None},
            {"ts": 9, "v": "v9", "w": "w9"},
        ]
        base = pa.RecordBatch.from_pylist(
            [{"_hoodie_record_key": "k", "ts": 0, "v": "v0", "w": "w0"}],
            schema=pa.schema([f for f in columns if not f.name.startswith("_skep")]),
        )
        first = latest_per_key(entries.slice(0, 1), EVENT_TIME)
        assert Updates(first, EVENT_TIME).apply(base).to_pylist()[0]["w"] == "w0"


class TestDeletesInsideData:
    """Format guide 8.3."""

    def test_hoodie_is_deleted(self):
        columns = pa.schema([*list(COLUMNS)[:3], ("_hoodie_is_deleted", pa.bool_())])
        entries = pa.table([["k", "x"], [1, 1], ["a", "b"], [True, None]], schema=columns)
        base = pa.RecordBatch.from_pydict(
            {"_hoodie_record_key": ["k", "x"], "ts": [5, 0], "v": ["base", "base"], "_hoodie_is_deleted": [None, None]},
            schema=columns,
        )
        assert Updates(entries, EVENT_TIME).apply(base).column("v").to_pylist() == ["base", "b"]
        assert Updates(entries, COMMIT_TIME).apply(base).column("v").to_pylist() == ["b"]

    @pytest.mark.parametrize("prefix", ["", "hoodie.record.merge.property."])
    def test_a_field_with_a_marker(self, prefix):
        raw = {f"{prefix}hoodie.payload.delete.field": "v", f"{prefix}hoodie.payload.delete.marker": "removed"}
        rule = MergeRule.of(config(9, mode=MergeMode.EVENT_TIME_ORDERING, **raw))
        assert merged(rule, (1, "base"), row(2, "removed")) == "deleted"
        assert "v" in rule.columns(Schema((Field("v", StringType()),)))

    @pytest.mark.parametrize("operation", ["D", "-U"])
    def test_the_operation_field(self, operation):
        columns = pa.schema([*list(COLUMNS)[:3], ("_hoodie_operation", pa.string())])
        entries = pa.table([["k"], [1], ["a"], [operation]], schema=columns)
        base = pa.table([["k"], [0], ["base"], ["I"]], schema=columns).to_batches()[0]
        assert Updates(entries, COMMIT_TIME).apply(base).num_rows == 0


class TestCustom:
    RULE = MergeRule.of(config(8, payload="MyPayload", mode=MergeMode.CUSTOM))

    def test_a_merger_gets_pairs_of_rows_and_answers_them_merged(self, monkeypatch):
        def longest(old, new):
            longer = pa.compute.greater(pa.compute.utf8_length(old["v"]), pa.compute.utf8_length(new["v"]))
            at = new.schema.get_field_index("v")
            return new.set_column(at, new.schema.field(at), pa.compute.if_else(longer, old["v"], new["v"]))

        combining = sys.modules["skep_table.merge.combine"]  # the package gives the name to its function
        monkeypatch.setattr(combining, "find_merger", {"MyPayload": longest}.__getitem__)
        assert log(self.RULE, row(1, "long"), row(2, "x")) == "long"
        assert merged(self.RULE, (1, "b"), row(2, "longer")) == "longer"
        assert log(self.RULE, row(1, "long"), delete(2)) == "deleted"

    def test_one_that_is_not_installed_is_refused_by_name_when_it_is_needed(self):
        assert latest_per_key(table(row(1, "a")), self.RULE).num_rows == 1
        with pytest.raises(UnsupportedError, match="MyPayload"):
            log(self.RULE, row(1, "a"), row(2, "b"))

    def test_an_entry_point_is_found(self, monkeypatch):
        class Entry:
            @staticmethod
            def load():
                return "the merger"

        asked = []
        monkeypatch.setattr(plug_ins, "entry_points", lambda **what: asked.append(what) or [Entry])
        assert custom_mergers.find_merger.__wrapped__("mine") == "the merger"
        assert asked == [{"group": "skep.mergers", "name": "mine"}]


def test_rules_travel():
    for rule in (LATEST_0_15, EVENT_TIME, PARTIAL):
        assert pickle.loads(pickle.dumps(rule)) == rule


class TestChangeStreamsOfVersion6:
    """Debezium's payloads as Hudi 0.15 merges them: by the place in the source's log, deletes marked by the rows."""

    MYSQL = MergeRule.of(config(payload="debezium.MySqlDebeziumAvroPayload"))
    POSTGRES = MergeRule.of(config(payload="debezium.PostgresDebeziumAvroPayload", ordering=("_event_lsn",)))
    UNAVAILABLE = "__debezium_unavailable_value"

    def merged(self, rule, place, base, *entries):
        def rows(*changes):
            columns = ("_hoodie_record_key", place, "_change_operation_type", "v", DELETED)
            return pa.Table.from_pylist([dict(zip(columns, ("k", *row, False), strict=True)) for row in changes])

        updates = Updates(latest_per_key(rows(*entries), rule), rule)
        answer = updates.apply(rows(base).drop_columns([DELETED]).to_batches()[0])
        return answer.column("v").to_pylist()

    def mysql(self, base, *entries):
        return self.merged(self.MYSQL, "_event_seq", base, *entries)

    def postgres(self, base, *entries):
        return self.merged(self.POSTGRES, "_event_lsn", base, *entries)

    def test_places_in_a_binary_log_compare_by_file_then_by_offset_as_numbers(self):
        assert self.mysql(("000009.500", "c", "base"), ("000010.4", "u", "later file")) == ["later file"]
        assert self.mysql(("9.500", "c", "base"), ("000009.1000", "u", "further on")) == ["further on"]
        assert self.mysql(("2.5", "c", "base"), ("1.999", "u", "late")) == ["base"]
        assert self.mysql(("1.1", "c", "base"), ("1.30", "u", "a"), ("1.4", "u", "b")) == ["a"]

    def test_a_change_of_kind_d_deletes_unless_it_is_late(self):
        assert self.mysql(("1.1", "c", "base"), ("1.2", "d", "removed")) == []
        assert self.mysql(("1.3", "c", "base"), ("1.2", "d", "removed")) == ["base"]
        assert self.postgres((1, "c", "base"), (2, "d", "removed")) == []

    def test_a_place_that_is_none_is_an_error_that_names_the_column(self):
        with pytest.raises(SchemaError, match="_event_seq"):
            self.mysql(("1.1", "c", "base"), ("x", "u", "a"))

    def test_a_value_that_was_not_sent_is_that_of_the_stored_row(self):
        assert self.postgres((1, "c", "base"), (2, "u", self.UNAVAILABLE)) == ["base"]
        assert self.postgres((1, "c", "base"), (2, "u", "sent"), (3, "u", self.UNAVAILABLE)) == ["base"]
        assert self.postgres((5, "c", "base"), (2, "u", "late")) == ["base"]
        assert self.postgres((5, "c", self.UNAVAILABLE), (2, "u", "late")) == [self.UNAVAILABLE]

    def test_nor_does_it_hide_a_value_of_the_same_batch(self):
        rule = COW_BY_CLASS_IN_1_0["PostgresDebeziumAvroPayload"]
        rule = replace(rule, ordering_fields=("ts",))
        assert stored(rule, (1, "base"), row(2, "sent"), row(3, self.UNAVAILABLE)) == "sent"


BY_CLASS_IN_1_0 = {
    name: MergeRule.of(config(8, payload=name, mode=MergeMode.CUSTOM))
    for name in (
        "PartialUpdateAvroPayload",
        "EventTimeAvroPayload",
        "OverwriteNonDefaultsWithLatestAvroPayload",
        "AWSDmsAvroPayload",
    )
}


COW_BY_CLASS_IN_1_0 = {
    name: MergeRule.of(config(8, payload=name, mode=MergeMode.CUSTOM, kind=TableType.COPY_ON_WRITE))
    for name in (*BY_CLASS_IN_1_0, "FirstValueAvroPayload", "PostgresDebeziumAvroPayload")
}


class TestPayloadClassesOfVersion8:
    """Merge mode CUSTOM by payload class: in logs Hudi 1.0 itself compares deletes with rows, by ordering values."""

    EVERY = pytest.mark.parametrize("rule", BY_CLASS_IN_1_0.values(), ids=BY_CLASS_IN_1_0)

    @EVERY
    def test_a_late_delete_loses(self, rule):
        assert log(rule, row(9, "a"), delete(2)) == "a"
        assert merged(rule, (9, "base"), delete(2)) == "base"

    @EVERY
    def test_a_delete_in_time_wins_and_so_does_one_by_commit_time(self, rule):
        assert log(rule, row(9, "a"), delete(9)) == "deleted"
        assert merged(rule, (9, "base"), delete(10)) == "deleted"
        assert merged(rule, (9, "base"), row(10, "a"), delete()) == "deleted"

    @EVERY
    def test_a_late_record_after_a_delete_is_deleted_too(self, rule):
        assert merged(rule, (5, "base"), delete(9), row(2, "a")) == "deleted"
        assert merged(rule, (5, "base"), delete(9), row(10, "a")) == "a"

    @pytest.mark.parametrize(
        ("name", "left"), [("EventTimeAvroPayload", "a"), ("AWSDmsAvroPayload", "b")], ids=lambda found: found
    )
    def test_two_rows_are_left_to_the_class(self, name, left):
        rule = BY_CLASS_IN_1_0[name]
        assert log(rule, row(9, "a"), row(2, "b")) == left
        assert merged(rule, (9, "a"), row(2, "b")) == left

    @EVERY
    def test_of_one_batch_the_greatest_ordering_value_wins(self, rule):
        assert log(rule.of_batch, row(9, "a"), row(2, "b")) == "a"
        assert log(rule.of_batch, row(2, "a"), row(9, "b")) == "b"


class TestPayloadClassesOfCopyOnWriteTablesOfVersion8:
    """There the class meets the stored row, as in version 6, and rows that are marked as deletes too."""

    @pytest.mark.parametrize("name", BY_CLASS_IN_1_0)
    def test_a_late_row_that_is_marked_as_a_delete_deletes(self, name):
        assert stored(COW_BY_CLASS_IN_1_0[name], (9, "base"), flagged(2)) == "deleted"

    def test_unless_the_class_compares_deletes_too(self):
        rule = COW_BY_CLASS_IN_1_0["FirstValueAvroPayload"]
        assert stored(rule, (9, "base"), flagged(2)) == "base"
        assert stored(rule, (9, "base"), flagged(10)) == "deleted"

    @pytest.mark.parametrize("rule", COW_BY_CLASS_IN_1_0.values(), ids=COW_BY_CLASS_IN_1_0)
    def test_a_delete_by_key_deletes(self, rule):
        assert merged(replace(rule, ordering_fields=("ts",)), (9, "base"), delete()) == "deleted"

    @pytest.mark.parametrize("name", BY_CLASS_IN_1_0)
    def test_of_one_batch_the_greatest_ordering_value_wins(self, name):
        rule = COW_BY_CLASS_IN_1_0[name]
        assert stored(rule, (1, "base"), row(9, "a"), row(2, "b")) == "a"
        assert stored(rule, (1, "base"), row(9, "a"), flagged(2)) == "a"
        assert stored(rule, (1, "base"), row(2, "a"), flagged(9)) == "deleted"


def test_a_late_row_that_is_marked_as_a_delete_deletes_under_the_classes_of_version_6_that_delete_first():
    for name in ("EventTimeAvroPayload", "PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload"):
        assert stored(MergeRule.of(config(payload=name)), (9, "base"), flagged(2)) == "deleted"
    assert stored(EVENT_0_15, (9, "base"), flagged(2)) == "base"


@pytest.mark.parametrize("version", [6, 8])
class TestFirstValue:
    """FirstValueAvroPayload: as by event time, but of rows with equal ordering values the first stays."""

    @pytest.fixture
    def rule(self, version):
        return MergeRule.of(config(version, payload="FirstValueAvroPayload", mode=MergeMode.CUSTOM))

    def test_of_equal_ordering_values_the_first_stays(self, rule):
        assert log(rule, row(5, "a"), row(5, "b")) == "a"
        assert merged(rule, (5, "base"), row(5, "a")) == "base"

    def test_else_the_greatest_wins(self, rule):
        assert log(rule, row(5, "a"), row(9, "b"), row(9, "c"), row(7, "d")) == "b"
        assert merged(rule, (5, "base"), row(6, "a")) == "a"
        assert merged(rule, (5, "base"), row(4, "a")) == "base"

    def test_a_row_that_is_marked_as_a_delete_is_a_row_too(self, rule):
        assert stored(rule, (5, "base"), flagged(5)) == "base"
        assert stored(rule, (5, "base"), flagged(6)) == "deleted"

    def test_a_delete_in_time_wins_also_with_an_equal_value(self, rule):
        assert merged(rule, (5, "base"), delete(5)) == "deleted"
        assert log(rule, row(5, "a"), delete(5)) == "deleted"
        assert log(rule, delete(5), row(5, "a")) == "a"
