"""Planning is a function of values: what is wanted, what is there, what the timeline records of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_catalog.entities import Column, TableEntry, values_of_name
from skep_catalog.entries import wanted_entries
from skep_format.escaping import escape
from skep_format.schema.types import Field, IntType, LongType, Schema, StringType
from skep_format.table_config import TableConfig
from skep_sync.options import Cascade
from skep_sync.planning.changes import Files, PartitionChanges, SyncPoint
from skep_sync.planning.locations import registered_there, same_location
from skep_sync.planning.plan import EntryLayout, differences, distinct, entry_steps, merged, partition_steps
from skep_sync.planning.steps import AddPartitions, AlterEntry, CreateEntry, DropPartitions, MovePartitions
from skep_sync.values import Extractor

BASE = "s3://lake/t"
CONFIG = TableConfig(name="t", partition_fields=("p",), hive_style=True)
POINT = SyncPoint("20260101000000001", "20260101000000009")
LATER = SyncPoint("20260102000000001", "20260102000000009")


def wanted(*fields: Field, config: TableConfig = CONFIG) -> TableEntry:
    schema = Schema((Field("id", LongType()), *fields, Field("p", StringType())))
    return wanted_entries(config, schema, BASE, "d", "t").entries[0].table


def synced(table: TableEntry, point: SyncPoint = POINT) -> TableEntry:
    """The entry that a sync of `table` leaves, as a server gives it back."""
    markers = {"last_commit_time_sync": point.requested_time, "last_commit_completion_time_sync": point.completion_time}
    return replace(
        table, parameters={**table.parameters, **markers, "transient_lastDdlTime": "1"}, origin="as the server has it"
    )


def parameters_of_managed(table: TableEntry) -> Mapping[str, str]:
    return {key: value for key, value in table.parameters.items() if key != "EXTERNAL"}


class TestEntries:
    def test_nothing_changed_is_nothing_to_do(self) -> None:
        assert entry_steps(wanted(), synced(wanted()), POINT, []) == []

    def test_a_new_commit_moves_the_markers_in_one_alteration(self) -> None:
        (step,) = entry_steps(wanted(), synced(wanted()), LATER, [])
        assert isinstance(step, AlterEntry)
        assert step.expected == ("last_commit_time_sync", POINT.requested_time)
        assert step.table.parameters["last_commit_time_sync"] == LATER.requested_time
        assert step.table.parameters["last_commit_completion_time_sync"] == LATER.completion_time
        assert not step.cascade

    def test_columns_schema_and_markers_change_in_the_same_alteration(self) -> None:
        new = wanted(Field("x", IntType()))
        (step,) = entry_steps(new, synced(wanted()), LATER, [])
        assert isinstance(step, AlterEntry)
        assert step.cascade
        assert {change.what for change in step.changes} == {
            "column x",
            "parameter spark.sql.sources.schema.part.0",
            "parameter last_commit_time_sync",
            "parameter last_commit_completion_time_sync",
        }
        (other,) = entry_steps(new, synced(wanted()), LATER, [], cascade=Cascade.NONE)
        assert isinstance(other, AlterEntry)
        assert not other.cascade

    def test_the_marker_comes_after_the_partitions(self) -> None:
        add = AddPartitions(wanted(), ())
        assert [type(step) for step in entry_steps(wanted(), None, POINT, [add])] == [
            CreateEntry,
            AddPartitions,
            AlterEntry,
        ]
        created, *_ = entry_steps(wanted(), None, POINT, [add])
        assert isinstance(created, CreateEntry)
        assert "last_commit_time_sync" not in created.table.parameters
        assert [type(step) for step in entry_steps(wanted(), synced(wanted()), LATER, [add])] == [
            AddPartitions,
            AlterEntry,
        ]

    def test_an_entry_without_partitions_is_made_in_one_step(self) -> None:
        (step,) = entry_steps(wanted(), None, POINT, [])
        assert isinstance(step, CreateEntry)
        assert step.table.parameters["last_commit_time_sync"] == POINT.requested_time

    def test_a_table_without_a_commit_has_no_marker(self) -> None:
        (step,) = entry_steps(wanted(), None, None, [])
        assert isinstance(step, CreateEntry)
        assert "last_commit_time_sync" not in step.table.parameters


class TestWhatOthersPutThere:
    @given(st.dictionaries(st.text("abcxyz.", min_size=1, max_size=8), st.text(max_size=8), max_size=4))
    def test_foreign_parameters_stay(self, foreign: Mapping[str, str]) -> None:
        actual = synced(wanted())
        actual = replace(
            actual,
            owner="someone",
            create_time=7,
            parameters={**foreign, **actual.parameters},
            storage=replace(actual.storage, serde_parameters={**foreign, **actual.storage.serde_parameters}),
        )
        target = merged(wanted(Field("x", IntType())), actual, {})
        assert foreign.items() <= target.parameters.items()
        assert foreign.items() <= target.storage.serde_parameters.items()
        assert (target.owner, target.create_time, target.origin) == ("someone", 7, actual.origin)

    def test_comments_made_in_hive_stay_unless_the_table_has_its_own(self) -> None:
        columns = tuple(replace(column, comment="by hand") for column in wanted().storage.columns)
        actual = replace(synced(wanted()), storage=replace(wanted().storage, columns=columns))
        actual = replace(actual, partition_keys=(Column("p", "string", "by hand"),))
        assert entry_steps(wanted(), actual, POINT, []) == []
        documented = wanted(Field("x", IntType(), doc="from the table"))
        target = merged(documented, actual, {})
        comments = {column.name: column.comment for column in target.storage.columns}
        assert (comments["id"], comments["x"]) == ("by hand", "from the table")

    def test_a_comment_that_a_metastore_holds_whole_is_not_shortened_there(self) -> None:
        """Some databases have room for more than others."""
        long = "y" * 300
        table = wanted(Field("note", StringType(), doc=long))
        actual = synced(table)
        whole = tuple(replace(c, comment=long) if c.name == "note" else c for c in actual.storage.columns)
        assert whole != actual.storage.columns
        actual = replace(actual, storage=replace(actual.storage, columns=whole))
        assert entry_steps(table, actual, POINT, []) == []

    def test_stale_pieces_of_the_schema_go(self) -> None:
        actual = synced(wanted())
        stale = {"spark.sql.sources.schema.part.1": "}", "spark.sql.sources.schema.partCol.1": "q"}
        actual = replace(actual, parameters={**actual.parameters, **stale})
        (step,) = entry_steps(wanted(), actual, POINT, [])
        assert isinstance(step, AlterEntry)
        assert {str(change) for change in step.changes} == {f"- parameter {key}" for key in stale}

    def test_a_scheme_of_the_same_store_is_kept(self) -> None:
        actual = synced(wanted())
        parameters = {**actual.storage.serde_parameters, "path": "s3a://lake/t/"}
        storage = replace(actual.storage, location="s3a://lake/t", serde_parameters=parameters)
        assert entry_steps(wanted(), replace(actual, storage=storage), POINT, []) == []

    def test_the_right_to_delete_data_is_taken_and_never_given(self) -> None:
        external = synced(wanted())
        managed = replace(external, table_type="MANAGED_TABLE", parameters=parameters_of_managed(external))
        (step,) = entry_steps(wanted(), managed, POINT, [])
        assert isinstance(step, AlterEntry)
        assert step.table.table_type == "EXTERNAL_TABLE"
        assert [str(change) for change in step.changes] == [
            "~ table type: MANAGED_TABLE → EXTERNAL_TABLE",
            "+ parameter EXTERNAL = TRUE",
        ]
        asked = replace(wanted(), table_type="MANAGED_TABLE", parameters=parameters_of_managed(wanted()))
        assert entry_steps(asked, managed, POINT, []) == []
        assert entry_steps(asked, external, POINT, []) == []

    def test_other_classes_are_taken_to_the_partitions_whatever_is_done_with_columns(self) -> None:
        actual = synced(wanted())
        other = replace(actual, storage=replace(actual.storage, input_format="org.apache.hudi.hadoop.Other"))
        for cascade in Cascade:
            (step,) = entry_steps(wanted(), other, POINT, [], cascade=cascade)
            assert isinstance(step, AlterEntry)
            assert (step.cascade, step.columns) == (True, ())
            assert "descriptors of all partitions too" in step.summary()

    def test_another_location_is_corrected_in_place(self) -> None:
        actual = synced(wanted())
        actual = replace(actual, storage=replace(actual.storage, location="s3://old/t"))
        (step,) = entry_steps(wanted(), actual, POINT, [])
        assert isinstance(step, AlterEntry)
        assert [str(change) for change in step.changes] == ["~ location: s3://old/t → s3://lake/t"]

    def test_case_and_blanks_of_types_are_no_difference(self) -> None:
        actual = synced(wanted())
        columns = tuple(replace(c, type=c.type.upper() + " ") for c in actual.storage.columns)
        shouted = replace(actual, storage=replace(actual.storage, columns=columns))
        assert differences(shouted, merged(wanted(), shouted, {})) == []


LAYOUT = EntryLayout(BASE, ("p",), Extractor.HIVE_STYLE, decode=True)


def changes(
    live: Sequence[str], emptied: Sequence[str] = (), *, complete: bool = False, empty: Sequence[str] = ()
) -> PartitionChanges:
    def files(paths: Sequence[str]) -> dict[str, Files | None]:
        return {path: None if path in empty else Files(1, len(path)) for path in paths}

    return PartitionChanges(complete, frozenset(live), frozenset(emptied), files)


class TestPartitions:
    def test_new_ones_are_added_with_their_files(self) -> None:
        (step,) = partition_steps(wanted(), changes(["p=b", "p=a%2Fx"]), LAYOUT, {("b",): f"{BASE}/p=b"})
        assert isinstance(step, AddPartitions)
        (target,) = step.partitions
        assert (target.values, target.name, target.location) == (("a/x",), "p=a%2Fx", f"{BASE}/p=a%2Fx")
        assert target.files == Files(1, 7)

    def test_a_folder_without_committed_files_is_not_added(self) -> None:
        assert partition_steps(wanted(), changes(["p=a"], empty=["p=a"]), LAYOUT, {}) == []

    def test_another_location_is_corrected(self) -> None:
        (step,) = partition_steps(wanted(), changes(["p=a"]), LAYOUT, {("a",): "s3://old/p=a"})
        assert isinstance(step, MovePartitions)
        assert partition_steps(wanted(), changes(["p=a"]), LAYOUT, {("a",): "s3a://lake/t/p=a"}) == []

    def test_emptied_ones_are_dropped_when_they_are_there(self) -> None:
        (step,) = partition_steps(wanted(), changes([], ["p=a", "p=b"]), LAYOUT, {("b",): f"{BASE}/p=b"})
        assert step == DropPartitions(wanted(), ("p=b",))

    def test_emptied_ones_are_dropped_by_any_spelling_of_their_value(self) -> None:
        layout = EntryLayout(BASE, ("p",), Extractor.HIVE_STYLE, decode=True, types=("int",))
        (step,) = partition_steps(wanted(), changes([], ["p=1"]), layout, {("01",): f"{BASE}/p=1"})
        assert step == DropPartitions(wanted(), ("p=01",))

    def test_in_full_what_the_table_does_not_have_is_dropped(self) -> None:
        (step,) = partition_steps(wanted(), changes(["p=a"], complete=True), LAYOUT, {("a",): None, ("x y",): None})
        assert step == DropPartitions(wanted(), ("p=x y",))

    def test_of_two_folders_of_one_value_one_is_registered_and_the_other_named(self) -> None:
        layout = EntryLayout(BASE, ("p",), Extractor.SINGLE_PART, decode=False)
        both = changes(["2024/01", "2024-01", "x"])

        def chosen(registered: dict[tuple[str, ...], str | None], one: PartitionChanges = both) -> set[str]:
            kept, refused = distinct(one, layout, registered, lambda path: path == "2024/01")
            assert refused or "x" not in one.live
            return set(kept.live | kept.emptied)

        assert chosen({}) == {"2024-01", "x"}
        assert chosen({("2024-01",): f"{BASE}/2024/01"}) == {"2024/01", "x"}, "what is registered stays"
        assert chosen({("2024-01",): f"{BASE}/2024/01"}, changes(["2024-01", "x"])) == {"x"}, "written by itself, too"
        assert chosen({("2024-01",): f"{BASE}/gone"}) == {"2024-01", "x"}
        assert chosen({("2024-01",): f"{BASE}/2024/01"}, changes([], ["2024-01"])) == set(), "it is not the one dropped"
        (refused,) = distinct(both, layout, {}, lambda _: True)[1]
        assert "'2024-01' and '2024/01' have the same values 2024-01" in refused
        kept, refusals = distinct(changes(["2024/01"], ["2024-01"]), layout, {}, lambda _: False)
        assert (kept.live, kept.emptied, refusals) == ({"2024/01"}, set(), [])

    @given(
        st.frozensets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), max_size=12),
        st.frozensets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), max_size=12),
    )
    def test_in_full_the_steps_lead_from_any_state_to_the_table(
        self, live: frozenset[str], registered: frozenset[str]
    ) -> None:
        paths = [f"p={escape(value)}" for value in live]
        state = {(value,) for value in registered}
        for step in partition_steps(wanted(), changes(paths, complete=True), LAYOUT, dict.fromkeys(state)):
            if isinstance(step, AddPartitions):
                added = {target.values for target in step.partitions}
                assert not added & state
                state |= added
            else:
                assert isinstance(step, DropPartitions)
                dropped = {values_of_name(name) for name in step.names}
                assert dropped <= state
                state -= dropped
        assert state == {(value,) for value in live}


class TestLocations:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("s3://b/t", "s3a://b/t/"),
            ("file:///a/b", "file:/a/b"),
            ("/a/b", "file:///a/b"),
            ("hdfs://n/a b%20c?#", "hdfs://n/a b%20c?#/"),
        ],
    )
    def test_same(self, one: str, other: str) -> None:
        assert same_location(one, other)
        assert registered_there(one, other)

    @pytest.mark.parametrize(
        ("registered", "wanted"),
        [("hdfs://ns/a", "hdfs:///a"), ("hdfs://n:8020/a", "hdfs://n/a/"), ("hdfs://n/a", "hdfs://n:8020/a")],
    )
    def test_a_metastore_spells_out_what_was_left_to_it(self, registered: str, wanted: str) -> None:
        assert registered_there(registered, wanted)
        assert not same_location(registered, wanted), "this does not decide who may be served"

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("s3://b/t", "s3://c/t"),
            ("hdfs://n/a", "file:///a"),
            ("/a%20b", "/a b"),
            ("/a", None),
            ("s3://b/t", "gs://b/t"),
            ("hdfs://n/a", "hdfs://m/a"),
            ("hdfs://n:8020/a", "hdfs://n:9000/a"),
            ("hdfs:///a", "hdfs:///b"),
        ],
    )
    def test_different(self, one: str, other: str | None) -> None:
        assert not same_location(one, other)
        assert not registered_there(one, other)
