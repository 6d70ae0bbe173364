"""One file slice read: base file and valid log blocks merged, only what was asked for, in bounded memory."""

import contextlib
import json
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from skep_format.errors import CorruptFileError, FormatError, SkepError
from skep_format.logfile import BlockType, HeaderKey, format_block
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_table.merge import latest_per_key
from skep_table.query.filters.text import parse_predicate
from skep_table.slices import read_slice
from skep_table.slices.context import CommitTimes

MERGE_BYTES = "hoodie.memory.merge.max.size"
SPILL_FOLDER = "hoodie.memory.spillable.map.path"


def row(key, ts, v):
    return {"id": key, "ts": ts, "v": v}


def read(table, slice, columns=("id", "ts", "v"), **more):
    rows = [row for batch in read_slice(table, slice, columns=columns, **more) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: str(row.get("id")))


def values(hand, **more):
    return {row["id"]: row["v"] for row in read(hand.open(), hand.slice(), **more)}


@pytest.fixture
def hand(made):
    """Base rows a, b, c; then an update of a, an insert d; a delete of b; a late update of c."""
    made = made()
    made.base([row("a", 1, "a1"), row("b", 1, "b1"), row("c", 5, "c1")])
    made.log(made.data(2, [row("a", 2, "a2"), row("d", 2, "d2")]))
    made.log(made.deletes(3, ["b"]))
    made.log(made.data(4, [row("c", 4, "c4")]))
    for number in (2, 3, 4):
        made.commit(number)
    return made


def test_logs_are_merged_into_the_base_file(hand):
    assert values(hand) == {"a": "a2", "c": "c1", "d": "d2"}


def test_logs_are_merged_into_orc_base_files(hand):
    found = hand.slice()
    path = found.base_file.path
    table = pq.read_table(hand.storage.local_path(path))
    orc.write_table(table, str(hand.storage.local_path(path.replace(".parquet", ".orc"))))
    hand.storage.delete(path)
    assert hand.slice().base_file.path.endswith(".orc")
    assert values(hand) == {"a": "a2", "c": "c1", "d": "d2"}


def test_rows_of_logs_bear_the_file_id_as_their_file_name(hand):
    rows = read(hand.open(), hand.slice(), columns=("id", "_hoodie_file_name"))
    names = {row["id"]: row["_hoodie_file_name"] for row in rows}
    assert names["a"] == names["d"] == "f0000000-0000-0000-0000-000000000000-0"
    assert names["c"].endswith(".parquet")


def test_without_logs_the_base_file_is_the_answer(hand):
    read_optimized = replace(hand.slice(), log_files=())
    assert [row["v"] for row in read(hand.open(), read_optimized)] == ["a1", "b1", "c1"]


def test_a_slice_of_logs_alone(hand):
    rows = read(hand.open(), replace(hand.slice(), base_file=None))
    assert {row["id"]: row["v"] for row in rows} == {"a": "a2", "c": "c4", "d": "d2"}


def test_the_answer_has_the_columns_asked_for_in_that_order(hand):
    (batch, *_) = read_slice(hand.open(), hand.slice(), columns=("v", "id"))
    assert batch.schema == pa.schema([("v", pa.string()), ("id", pa.string())])
    (batch, *_) = read_slice(hand.open(), hand.slice())
    assert batch.schema.names[-3:] == ["id", "ts", "v"]
    assert batch.schema.names[0] == "_hoodie_commit_time"


def test_blocks_later_than_the_query_do_not_count(hand):
    assert values(hand, as_of=hand.instant(2)) == {"a": "a2", "b": "b1", "c": "c1", "d": "d2"}
    assert values(hand, as_of=hand.instant(1)) == {"a": "a1", "b": "b1", "c": "c1"}


def test_blocks_of_instants_that_did_not_complete_do_not_count(hand):
    hand.log(hand.data(5, [row("a", 9, "a9")]))
    hand.commit(5, completed=False)
    assert values(hand)["a"] == "a2"


def test_a_rollback_takes_blocks_away(hand):
    hand.log(hand.data(5, [row("a", 9, "a9")]), hand.rollback(6, 5))
    hand.commit(5)
    hand.commit(6)
    assert values(hand)["a"] == "a2"


def test_cdc_logs_hold_no_rows(hand):
    found = hand.slice()
    cdc = replace(found.log_files[0], name=replace(found.log_files[0].name, cdc=True))
    rows = read(hand.open(), replace(found, log_files=(cdc,)))
    assert [row["v"] for row in rows] == ["a1", "b1", "c1"]


def test_reading_the_commits_of_a_range_merges_no_others(hand):
    """The late update of c loses in the snapshot, but is what commit 4 wrote."""
    table, found = hand.open(), hand.slice()
    assert {r["id"]: r["v"] for r in read(table, found, commit_times=CommitTimes.of([hand.instant(4)]))} == {"c": "c4"}
    assert {r["id"]: r["v"] for r in read(table, found, commit_times=CommitTimes.of([hand.instant(1)]))} == {
        "a": "a1", "b": "b1", "c": "c1",
    }  # fmt: skip


def test_a_filter_spares_row_groups_of_slices_without_logs_only(hand):
    found, nothing = hand.slice(), parse_predicate("ts > 100", to_arrow(hand.open().schema()))
    assert len(read(hand.open(), found, condition=nothing)) == 3
    assert read(hand.open(), replace(found, log_files=()), condition=nothing) == []


# -- deletes with ordering values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "low", "middle", "high"),
    [
        (pa.int64(), 1, 2, 3),
        (pa.int32(), 1, 2, 3),
        (pa.string(), "a", "b", "c"),
        (pa.float64(), 0.5, 1.5, 2.5),
        (pa.float32(), 0.5, 1.5, 2.5),
        (pa.date32(), 1, 2, 3),
        (pa.timestamp("us", "UTC"), 1, 2, 3),
        (pa.decimal128(10, 2), Decimal("1.10"), Decimal("1.20"), Decimal("1.30")),
    ],
)
def test_a_delete_with_an_ordering_value_loses_against_a_greater_one(made, kind, low, middle, high):
    columns = pa.schema([("id", pa.string()), ("ts", kind), ("v", pa.string())])
    hand = made(columns)
    low, middle, high = pa.array([low, middle, high], kind).to_pylist()
    hand.base([row(key, low, "x") for key in ("older", "same", "newer")])
    hand.log(hand.data(2, [row("older", low, "y"), row("same", middle, "y"), row("newer", high, "y")]))
    hand.log(hand.deletes(3, ["older", "same", "newer"], pa.array([middle] * 3, kind)))
    hand.commit(2)
    hand.commit(3)
    assert values(hand) == {"newer": "y"}


@pytest.mark.parametrize(("version", "left"), [(1, {}), (2, {"k2": "y", "k3": "y", "k4": "y"})])
def test_delete_blocks_as_old_releases_wrote_them(made, version, left):
    """Version 1 has no ordering values, those of version 2 are compared: Hudi's own bytes, see tests/table/logfile."""
    lines = (Path(__file__).parents[2] / "format" / "logfile" / "kryo_deletes.tsv").read_text().splitlines()
    kept = dict(line.split("\t") for line in lines)
    content = bytes.fromhex(kept[{1: "keys_of_one_partition", 2: "deletes_long"}[version]])
    keys = ["k1", "k2", "k3", "k4", "k5"][: {1: 3, 2: 5}[version]]
    hand = made()
    hand.base([row(key, 10, "x") for key in [*keys, "other"]])
    headers = {HeaderKey.INSTANT_TIME: hand.instant(3)}
    whole = struct.pack(">ii", version, len(content)) + content
    hand.log(hand.data(2, [row(key, 10, "y") for key in keys]), format_block(BlockType.DELETE, headers, whole))
    hand.log(hand.data(4, [row("k1", 11, "again")]))
    for number in (2, 3, 4):
        hand.commit(number)
    assert values(hand) == {"other": "x", "k1": "again", **left}


def test_an_ordering_value_of_another_class_is_none(made):
    hand = made()
    hand.base([row("a", 9, "x")])
    hand.log(hand.deletes(2, ["a"], pa.array(["1"])))
    hand.commit(2)
    assert values(hand) == {}


def test_an_ordering_field_inside_a_struct(made):
    columns = pa.schema([("id", pa.string()), ("s", pa.struct([("ts", pa.int64())])), ("v", pa.string())])
    hand = made(columns, hoodie__table__precombine__field="s.ts")
    hand.base([{"id": "a", "s": {"ts": 5}, "v": "a1"}, {"id": "b", "s": {"ts": 5}, "v": "b1"}])
    hand.log(hand.deletes(2, ["a", "b"], pa.array([4, 6], pa.int64())))
    hand.log(hand.data(3, [{"id": "a", "s": {"ts": 4}, "v": "late"}]))
    hand.commit(2)
    hand.commit(3)
    assert values(hand, columns=("id", "v")) == {"a": "a1"}


def test_several_ordering_fields(made):
    columns = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("v", pa.string())])
    hand = made(columns, hoodie__table__precombine__field="ts,n")
    hand.base([{"id": key, "ts": 1, "n": 0, "v": "x"} for key in "ab"])
    hand.log(hand.data(2, [{"id": key, "ts": 1, "n": n, "v": "y"} for key, n in (("a", 5), ("b", 7))]))
    both = pa.StructArray.from_arrays([pa.array([1, 1], pa.int64()), pa.array([6, 6], pa.int32())], names=["0", "1"])
    hand.log(hand.deletes(3, ["a", "b"], both))
    hand.commit(2)
    hand.commit(3)
    assert values(hand) == {"b": "y"}


# -- schemas ----------------------------------------------------------------------------------------------------------


def test_files_of_older_schemas_are_read_as_the_newest(made):
    columns = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("n", pa.float64())])
    hand = made(columns)
    old = from_arrow(pa.schema([("id", pa.string()), ("ts", pa.int32()), ("n", pa.float32())]), "t_record", "hoodie.t")
    hand.base([{"id": "a", "ts": 1, "n": 1.87}, {"id": "b", "ts": 1, "n": 0.1}], schema=old)
    hand.log(hand.data(2, [{"id": "b", "ts": 2, "n": 1.87}], schema=old))
    hand.log(hand.data(3, [{"id": "c", "ts": 3, "v": "new", "n": 2.5}]))
    hand.commit(2, schema=old)
    hand.commit(3)
    assert read(hand.open(), hand.slice(), columns=("id", "ts", "v", "n")) == [
        {"id": "a", "ts": 1, "v": None, "n": 1.87},
        {"id": "b", "ts": 2, "v": None, "n": 1.8700000047683716},  # up to version 8 Avro widens the log's
        {"id": "c", "ts": 3, "v": "new", "n": 2.5},
    ]


def test_renamed_columns_are_found_in_older_files(made):
    def version(number, name):
        fields = [{"id": i, "name": n, "optional": True, "type": "string"} for i, n in enumerate(("id", "ts", name))]
        return {"version_id": int(number), "type": "record", "fields": fields}

    hand = made()
    old = from_arrow(pa.schema([("id", pa.string()), ("ts", pa.int64()), ("w", pa.string())]), "t_record", "hoodie.t")
    hand.base([{"id": "a", "ts": 1, "w": "a1"}, {"id": "b", "ts": 1, "w": "b1"}], schema=old)
    hand.log(hand.data(2, [{"id": "b", "ts": 2, "w": "b2"}], schema=old))
    hand.commit(2, schema=old)
    hand.commit(3, extra={"latest_schema": json.dumps(version(hand.instant(3), "v"))})
    hand.log(hand.data(4, [row("c", 4, "c4")]))
    hand.commit(4, extra={"latest_schema": json.dumps(version(hand.instant(3), "v"))})
    history = json.dumps({"schemas": [version(hand.instant(3), "v"), version(0, "w")]})
    hand.storage.replace_atomic(f".hoodie/.schema/{hand.instant(3)}.schemacommit", history.encode())
    # that of a change which never completed
    wrong = json.dumps({"schemas": [version(hand.instant(5), "u"), version(0, "v")]})
    hand.storage.replace_atomic(f".hoodie/.schema/{hand.instant(5)}.schemacommit", wrong.encode())
    assert values(hand) == {"a": "a1", "b": "b2", "c": "c4"}


def test_partial_updates_change_the_columns_they_bring(made):
    hand = made()
    hand.base([row("a", 1, "a1"), row("b", 9, "b1")])
    part = hand.without("v")
    more = {HeaderKey.IS_PARTIAL: "true"}
    hand.log(hand.data(2, [{"id": "a", "ts": 2}, {"id": "b", "ts": 2}], schema=part, more=more))
    hand.commit(2)
    assert read(hand.open(), hand.slice()) == [row("a", 2, "a1"), row("b", 9, "b1")]


def test_keys_are_computed_where_the_table_keeps_none(made):
    hand = made(hoodie__populate__meta__fields="false")
    hand.base([row("a", 1, "a1"), row("b", 1, "b1")])
    hand.log(hand.data(2, [row("a", 2, "a2"), row("c", 2, "c2")]))
    hand.log(hand.deletes(3, ["b"]))
    hand.commit(2)
    hand.commit(3)
    assert values(hand) == {"a": "a2", "c": "c2"}
    assert read(hand.open(), hand.slice(), columns=("v",)) == [{"v": "a2"}, {"v": "c2"}]


# -- memory -----------------------------------------------------------------------------------------------------------

ENTRIES = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=12)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 40), max_size=6, unique=True)),
        st.tuples(st.just("late delete"), st.lists(st.integers(0, 40), max_size=6, unique=True)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ENTRIES)
def test_what_spills_to_disk_merges_as_what_stays_in_memory(tmp_path_factory, made, entries):
    made().storage.delete_folder("")  # the example before
    hand = made()
    hand.base([row(f"key-{n}", n % 5, f"base-{n}") for n in range(30)])
    for number, (kind, what) in enumerate(entries, 2):
        if kind == "data":
            rows = {key: row(f"key-{key}", ts, f"v-{number}-{key}") for key, ts in what}
            hand.log(hand.data(number, list(rows.values())))
        else:
            ordering = pa.array([2] * len(what), pa.int64()) if kind == "late delete" else None
            hand.log(hand.deletes(number, [f"key-{key}" for key in what], ordering))
        hand.commit(number)
    folder = tmp_path_factory.mktemp("spill")
    spilling = hand.open(**{MERGE_BYTES: "1", SPILL_FOLDER: str(folder)})
    assert read(spilling, hand.slice()) == read(hand.open(), hand.slice())
    assert list(folder.iterdir()) == []


def test_no_more_than_the_limit_is_merged_at_once(made, monkeypatch):
    hand = made()
    hand.base([row(f"key-{n}", 1, "base") for n in range(50)])
    hand.log(hand.data(2, [row(f"key-{n}", 2, f"{n:0100}") for n in range(5000)]))
    hand.commit(2)
    sizes = []

    def seen(entries, rule):
        sizes.append(entries.nbytes)
        return latest_per_key(entries, rule)

    monkeypatch.setattr("skep_table.slices.read.latest_per_key", seen)
    answer = read(hand.open(**{MERGE_BYTES: "4000"}), hand.slice())
    assert len(answer) == 5000
    assert sum(sizes) > 100 * 4000
    assert max(sizes) <= 4000


def test_a_read_that_is_given_up_leaves_nothing_on_disk(hand, tmp_path):
    folder = tmp_path / "not" / "there" / "yet"
    batches = read_slice(hand.open(**{MERGE_BYTES: "1", SPILL_FOLDER: str(folder)}), hand.slice(), columns=("id",))
    next(batches)
    assert open_files_in(folder)
    batches.close()
    assert not open_files_in(folder)
    assert list(folder.iterdir()) == []


def open_files_in(folder: Path) -> list[str]:
    """The temporary files have no names, so that nothing is left of them when the process is killed."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_a_folder_that_can_not_be_written_to_is_named(hand, tmp_path):
    (tmp_path / "file").write_text("in the way")
    spilling = hand.open(**{MERGE_BYTES: "1", SPILL_FOLDER: str(tmp_path / "file")})
    with pytest.raises(SkepError, match="can't spill to"):
        read(spilling, hand.slice())


# -- damage -----------------------------------------------------------------------------------------------------------


def test_a_skeleton_without_its_source_is_an_error(made):
    hand = made()
    hand.base([row("a", 1, "a1")])
    found = hand.slice()
    skeleton = replace(found.base_file, name=replace(found.base_file.name, instant_time="00000000000001"))
    with pytest.raises(FormatError, match="bootstrap index"):
        read(hand.open(), replace(found, base_file=skeleton))


@pytest.mark.parametrize("keep", [0, 4, 100, -40, -1])
def test_a_cut_base_file_is_an_error_that_names_it(hand, keep):
    path = hand.slice().base_file.path
    hand.storage.replace_atomic(path, hand.storage.read(path)[:keep])
    with pytest.raises(CorruptFileError, match="f0000000") as error:
        read(hand.open(), hand.slice())
    assert error.value.fields["path"] == path


def test_flipped_bits_give_an_error_or_hudis_rule(hand):
    """Never a crash or another kind of error. What no length or checksum detects may read as other values."""
    for file in (hand.slice().base_file, *hand.slice().log_files):
        whole = hand.storage.read(file.path)
        for place in range(0, len(whole), max(1, len(whole) // 60)):
            broken = bytearray(whole)
            broken[place] ^= 1 << (place % 8)
            hand.storage.replace_atomic(file.path, bytes(broken))
            try:
                read(hand.open(), hand.slice())
            except SkepError as error:
                assert "f0000000" in str(error), error  # noqa: PT017
        hand.storage.replace_atomic(file.path, whole)
    assert values(hand) == {"a": "a2", "c": "c1", "d": "d2"}
