"""Merging as a property: whatever the order of arrival, whatever the types, the rules hold for all keys at once."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import KeyFieldError
from skep_table.merge import DELETED, MergeRule, MergeStep, Updates, latest_per_key, mark_deleted
from skep_table.merge.combine import comparable

KEY = "_hoodie_record_key"
EVENT = MergeRule(("ts",), MergeStep(by_ordering=True), MergeStep(by_ordering=True))
LATEST = MergeRule()
COLUMNS = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("v", pa.int64()), (DELETED, pa.bool_())])
ENTRIES = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 3) | st.none(), st.integers(-9, 9), st.booleans()), max_size=30
)


def table(entries):
    columns = list(zip(*entries, strict=True)) or [[], [], [], []]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)], schema=COLUMNS)


def merged_one_by_one(entries):
    """The rule in plain Python, entry after entry."""
    state = {}
    for key, ts, value, is_delete in entries:
        old = state.get(key)
        if old is None:
            state[key] = (ts, value, is_delete)
            continue
        old_ts, _, old_is_delete = old
        by_commit = (is_delete and ts is None) or (old_is_delete and old_ts is None)
        rank, old_rank = (-1 if t is None else t for t in (ts, old_ts))
        if by_commit or rank >= old_rank:
            state[key] = (ts, value, is_delete)
    return state


@given(ENTRIES)
def test_log_entries_of_many_keys_merge_as_one_by_one(entries):
    left = latest_per_key(table(entries), EVENT)
    assert {r[KEY]: (r["ts"], r["v"], r[DELETED]) for r in left.to_pylist()} == merged_one_by_one(entries)
    assert left.num_rows == len({key for key, *_ in entries})


@given(ENTRIES, st.dictionaries(st.sampled_from("abcdexyz"), st.integers(0, 3)))
def test_base_rows_with_updates_as_one_by_one(entries, base):
    stored = [(key, ts, -1, False) for key, ts in base.items()]
    updates = Updates(latest_per_key(table(entries), EVENT), EVENT)
    batches = table(stored).drop_columns([DELETED]).to_batches(max_chunksize=2)
    found = [row for batch in batches for row in updates.apply(batch).to_pylist()] + updates.rest().to_pylist()
    # What is left of the log is one entry, which then meets the base row.
    rest_of_log = [(key, *entry) for key, entry in merged_one_by_one(entries).items()]
    expected = merged_one_by_one([*stored, *rest_of_log])
    assert {r[KEY]: (r["ts"], r["v"]) for r in found} == {
        key: (ts, value) for key, (ts, value, is_delete) in expected.items() if not is_delete
    }
    assert len(found) == len({row[KEY] for row in found})
    assert updates.deleted == sum(1 for key in base if expected[key][2])


class Above:
    """A condition on `v`, which fails for a value of 99."""

    columns, expression = ("v",), None

    def __init__(self, least):
        self._least = least

    def mask(self, rows):
        assert rows.schema.names == ["v"]
        assert 99 not in rows.column("v").to_pylist()
        return pc.greater(rows.column("v"), self._least)


@given(
    ENTRIES,
    st.lists(st.tuples(st.integers(0, 12), st.integers(-9, 9) | st.none()), max_size=13, unique_by=lambda row: row[0]),
    st.integers(-10, 9),
)
def test_base_rows_that_fail_a_condition_are_left_out_where_no_update_changes_them(entries, base, least):
    entries = [(chr(ord("a") + 2 * at), *rest) for at, (_, *rest) in enumerate(entries[:7])]
    changed = {key for key, *_ in entries}
    keys = [chr(ord("a") + number) for number, _ in base]
    values = [99 if key in changed else value for key, (_, value) in zip(keys, base, strict=True)]
    batch = table([(key, 0, value, False) for key, value in zip(keys, values, strict=True)]).drop_columns([DELETED])
    found, plain = Updates(table(entries), EVENT), Updates(table(entries), EVENT)
    rows = pa.Table.from_batches([found.apply(b, condition=Above(least)) for b in batch.to_batches()], batch.schema)
    every = pa.Table.from_batches([plain.apply(each) for each in batch.to_batches()], batch.schema)
    above = pc.or_(
        pc.fill_null(pc.greater(every["v"], least), False),
        pc.is_in(every[KEY], pa.array(sorted(changed), pa.string())),
    )
    assert rows in (every, every.filter(above))
    assert (found.updated, found.deleted, found.rest()) == (plain.updated, plain.deleted, plain.rest())


@given(st.permutations([(f"k{i % 3}", i, i * 10, False) for i in range(9)]))
def test_any_order_of_arrival_gives_the_highest_ordering_value(entries):
    left = latest_per_key(table(entries), EVENT)
    assert sorted(r["ts"] for r in left.to_pylist()) == [6, 7, 8]


@given(ENTRIES)
def test_without_ordering_the_latest_arrival_wins(entries):
    left = latest_per_key(table(entries), LATEST)
    assert {r[KEY]: r["v"] for r in left.to_pylist()} == {key: value for key, _, value, _ in entries}


def test_the_answer_is_in_the_order_in_which_the_winners_arrived():
    entries = [("a", 2, 1, False), ("b", 1, 2, False), ("a", 1, 3, False), ("c", 1, 4, False), ("b", 1, 5, False)]
    assert latest_per_key(table(entries), EVENT)["v"].to_pylist() == [1, 4, 5]
    assert latest_per_key(table(entries), LATEST)["v"].to_pylist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        ("a", "ab", pa.string()),
        (date(2024, 1, 1), date(2024, 1, 2), pa.date32()),
        (datetime(1950, 1, 1), datetime(2024, 1, 1), pa.timestamp("us")),
        (Decimal("-1.50"), Decimal("1.49"), pa.decimal128(10, 2)),
        (-1.5, float("inf"), pa.float64()),
        (1.5, float("nan"), pa.float32()),
        (False, True, pa.bool_()),
        (b"\x01", b"\xff", pa.binary()),
        (None, -(2**63) + 1, pa.int64()),
    ],
)
def test_ordering_values_of_any_type(low, high, kind):
    for values in ((low, high), (high, low)):
        rows = pa.table({KEY: ["k", "k"], "ts": pa.array(values, kind)})
        (winner,) = latest_per_key(rows, EVENT)["ts"]
        assert winner.as_py() == high or high != high
        base, update = (rows.slice(i, 1) for i in range(2))
        (kept,) = Updates(update, EVENT).apply(base.to_batches()[0]).column("ts")
        assert repr(kept.as_py()) == repr(winner.as_py())


# `Double.compare` and `Float.compare` document: -0.0 is less than 0.0, NaN equals itself and is greater than infinity.
JAVA_DOUBLES = (float("-inf"), -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, float("inf"), float("nan"))
JAVA_ORDER = {
    pa.float64(): JAVA_DOUBLES,
    pa.float32(): tuple(value for value in JAVA_DOUBLES if abs(value) != 5e-324),
    pa.bool_(): (False, True),
    pa.int32(): (-(2**31), -1, 0, 2**31 - 1),
    pa.int64(): (-(2**63) + 1, -1, 0, 2**63 - 1),
    pa.decimal128(38, 4): (Decimal("-1E+30"), Decimal("-0.0001"), Decimal(0), Decimal("0.0009"), Decimal("0.0010")),
    pa.date32(): (date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)),
    pa.timestamp("us", "UTC"): (datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)),
    pa.timestamp("ms"): (datetime(1969, 12, 31), datetime(1970, 1, 1), datetime(2200, 1, 1)),
    pa.string(): ("", "A", "AA", "B", "a", "\u00e9", "\uffff", "\U0001f600"),  # by UTF-8 bytes, as Avro's Utf8 compares
}


@pytest.mark.parametrize("kind", JAVA_ORDER, ids=str)
def test_ordering_values_have_the_order_of_java(kind):
    values = pa.array(JAVA_ORDER[kind], kind)
    one, _ = comparable([values])
    assert (np.diff(one) > 0).all()
    second, _ = comparable([pa.repeat(1, len(values)), values])
    assert (np.diff(second) > 0).all()
    first, _ = comparable([pa.concat_arrays([values, values]), pa.repeat(1, 2 * len(values))])
    assert first.tolist() == [*range(len(values)), *range(len(values))]  # what is equal, ranks equal


@pytest.mark.parametrize(("before", "after", "left"), [(0.0, -0.0, 0.0), (-0.0, 0.0, 0.0), (float("nan"), 1e300, None)])
def test_zeros_and_nan_in_a_batch_and_across_writes(before, after, left):
    rows = pa.table({KEY: ["k", "k"], "ts": [before, after]})
    (winner,) = latest_per_key(rows, EVENT)["ts"].to_pylist()
    (kept,) = Updates(rows.slice(1), EVENT).apply(rows.slice(0, 1).to_batches()[0]).column("ts").to_pylist()
    assert str(winner) == str(kept) == str(before if left is None else left)


def test_several_ordering_fields_compare_one_after_the_other():
    rule = MergeRule(("a", "b"), MergeStep(by_ordering=True), MergeStep(by_ordering=True))
    rows = pa.table({KEY: ["k"] * 4, "a": [1, 2, 2, 1], "b": ["z", "b", "a", None], "v": [0, 1, 2, 3]})
    assert latest_per_key(rows, rule)["v"].to_pylist() == [1]
    base = pa.RecordBatch.from_pydict({KEY: ["k"], "a": [2], "b": ["c"], "v": [9]})
    assert Updates(rows.slice(1, 1), rule).apply(base).column("v").to_pylist() == [9]


def test_an_ordering_value_inside_a_struct():
    rule = MergeRule(("s.t",), MergeStep(by_ordering=True), MergeStep(by_ordering=True))
    rows = pa.table({KEY: ["k", "k"], "s": [{"t": 5}, {"t": 4}], "v": [1, 2]})
    assert latest_per_key(rows, rule)["v"].to_pylist() == [1]


def test_an_ordering_column_that_is_not_there_is_named():
    with pytest.raises(KeyFieldError, match="ordering column ts"):
        latest_per_key(pa.table({KEY: ["a", "a"]}), EVENT)


def test_columns_of_any_type_are_replaced_in_place():
    kinds = {
        "i": ([1, 2, 3, 4], pa.int32()),
        "t": (["a", None, "c", "d"], pa.string()),
        "b": ([True, None, False, True], pa.bool_()),
        "d": ([Decimal(1), None, Decimal(3), Decimal(4)], pa.decimal128(9, 2)),
        "f": ([b"ab", b"cd", None, b"ef"], pa.binary(2)),
        "s": ([{"x": 1}, None, {"x": None}, {"x": 4}], pa.struct([("x", pa.int64())])),
        "l": ([["a"], None, [], ["d", None]], pa.list_(pa.string())),
        "m": ([[("a", 1)], None, [], [("d", None)]], pa.map_(pa.string(), pa.int64())),
    }
    columns = {name: pa.array(values, kind) for name, (values, kind) in kinds.items()}
    columns["encoded"] = columns["t"]
    stored = {**columns, "encoded": columns["t"].dictionary_encode()}
    base = pa.RecordBatch.from_pydict({KEY: ["k0", "k1", "k2", "k3"], **stored})
    order = pa.array([3, 0, 2])  # updates for k2, k0 and k9, with the rows of others
    updates = Updates(pa.table({KEY: ["k2", "k0", "k9"], **{n: c.take(order) for n, c in columns.items()}}), LATEST)
    answer = updates.apply(base)
    answer.validate(full=True)
    assert answer.schema == base.schema
    expected = base.take(pa.array([0, 1, 3, 3])).to_pylist()
    expected[0] = {**expected[0]}
    for name in columns:
        assert answer.column(name).to_pylist() == columns[name].take(pa.array([0, 1, 3, 3])).to_pylist()
    assert answer.column(KEY).to_pylist() == ["k0", "k1", "k2", "k3"]
    assert updates.rest().column(KEY).to_pylist() == ["k9"]
    assert (updates.updated, updates.deleted) == (2, 0)


def test_batches_that_no_update_touches_are_passed_on_uncopied():
    base = pa.RecordBatch.from_pydict({KEY: ["x"], "v": [1]})
    assert Updates(pa.table({KEY: ["k"], "v": [2]}), LATEST).apply(base) is base


def test_rows_marked_as_deletes_take_away_and_are_not_left_over():
    rows = mark_deleted(pa.table({KEY: ["a", "b"], "v": pa.array([None, None], pa.int64())}))
    updates = Updates(rows, LATEST)
    base = pa.RecordBatch.from_pydict({KEY: ["a", "c"], "v": [1, 2]})
    assert updates.apply(base).to_pydict() == {KEY: ["c"], "v": [2]}
    assert updates.rest().num_rows == 0
    assert updates.rest().schema.names == [KEY, "v"]


def test_no_rows_at_all():
    assert latest_per_key(table([]), EVENT).num_rows == 0
    assert Updates(table([]), EVENT).rest().num_rows == 0
