"""Instant names, commit metadata and plans: every file that Hudi wrote, values made up at random, and damaged bytes."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.avro_schemas import NAMESPACE, RELEASES, hudi_records, schema_of
from skep_format.errors import FormatError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.layout import TimelineLayout, layout_1, layout_2
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.plans import PLAN_OF, CompactionPlan, Plan, RequestedReplaceMetadata, decode_plan, encode_plan

LAYOUTS = (layout_1(), layout_2())


def golden_instants(golden: Path) -> Iterator[tuple[TimelineLayout, Path, Instant]]:
    """Every file on the timelines of the golden tables and of their metadata tables."""
    for folder in golden.glob("*/*/table/.hoodie"):
        for hoodie in (folder, folder / "metadata" / ".hoodie"):
            layout = layout_1() if "0.15.0" in folder.parts else layout_2()
            for path in sorted((hoodie.parent / layout.folder).glob("[0-9]*")):
                instant = layout.parse(path.name)
                assert instant is not None, path
                yield layout, path, instant


def records(data: bytes) -> tuple[dict[str, Any], Any]:
    reader = fastavro.reader(io.BytesIO(data))
    return reader.writer_schema, next(reader)


# -- names -------------------------------------------------------------------------------------------------------------

TIMES = st.from_regex(r"[0-9]{14}([0-9]{3}([0-9]{3})?)?", fullmatch=True)


@st.composite
def instants(draw: st.DrawFn, layout: TimelineLayout) -> Instant:
    """Instants that a file of the layout can stand for."""
    action, state = draw(st.sampled_from([*layout._action_of.values()]))
    completed = layout.has_completion_times and state is State.COMPLETED
    return Instant(
        InstantTime(draw(TIMES)), action, state, draw(st.none() | TIMES.map(CompletionTime)) if completed else None
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=["layout 1", "layout 2"])
def test_names_of_instants_go_both_ways(layout: TimelineLayout) -> None:
    @given(instants(layout))
    def check(instant: Instant) -> None:
        assert layout.parse(layout.file_name(instant)) == instant

    check()


def test_names_as_the_format_guide_has_them() -> None:
    time, done = "20261121015334641", "20261121015335000"
    one, two = LAYOUTS

    def name(layout: TimelineLayout, action: Action, state: State) -> str:
        return (
            layout.file_name(Instant(InstantTime(time), action, state, CompletionTime(done)))
            .replace(time, "T")
            .replace(done, "C")
        )

    assert name(one, Action.COMMIT, State.INFLIGHT) == "T.inflight"
    assert name(one, Action.COMPACTION, State.REQUESTED) == "T.compaction.requested"
    assert name(one, Action.COMPACTION, State.COMPLETED) == "T.commit"
    assert name(one, Action.LOG_COMPACTION, State.COMPLETED) == "T.deltacommit"
    assert name(one, Action.CLUSTERING, State.REQUESTED) == "T.replacecommit.requested"
    assert name(two, Action.CLUSTERING, State.REQUESTED) == "T.clustering.requested"
    assert name(two, Action.CLUSTERING, State.COMPLETED) == "T_C.replacecommit"
    assert name(two, Action.COMMIT, State.INFLIGHT) == "T.inflight"
    assert name(two, Action.COMMIT, State.COMPLETED) == "T_C.commit"
    assert layout_1("history").archive_folder == ".hoodie/history"
    assert layout_2("tl", "past").archive_folder == ".hoodie/tl/past"


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        ".20261121015334641.commit.0123.tmp",
        "20261121015334641.commit.tmp",
        "20261121015334641.commit.crc",
        "20261121015334641.savepoint.requested",
        "20261121015334641.compaction",
        "20261121015334641_20261121015335000.commit.requested",
        "20261121015334641_20261121015335000.inflight",
        "20261121015334641",
        "٢٠٢٦.commit",
        "archived",
    ],
)
def test_other_names_are_no_instants(name: str) -> None:
    assert [layout.parse(name) for layout in LAYOUTS] == [None, None]


def test_layout_1_knows_no_completion_times_in_names() -> None:
    assert layout_1().parse("20261121015334641_20261121015335000.commit") is None
    assert layout_1().parse("20261121015334641.clustering.requested") is None


# -- what Hudi wrote ---------------------------------------------------------------------------------------------------


def test_golden_names_go_both_ways(golden: Path) -> None:
    for layout, path, instant in golden_instants(golden):
        assert layout.file_name(instant) == path.name


def test_golden_commits_are_encoded_as_hudi_encoded_them(golden: Path) -> None:
    seen = 0
    for layout, path, instant in golden_instants(golden):
        data = path.read_bytes()
        if instant.action not in DATA_ACTIONS or instant.state is State.REQUESTED or not data:
            continue
        metadata = layout.decode_commit(data, str(path))
        assert layout.decode_extra(data, str(path)) == metadata.extra_metadata
        again = layout.encode_commit(metadata)
        if layout.has_completion_times:
            (schema, theirs), (our_schema, ours) = records(data), records(again)
            assert our_schema["name"] == schema["name"], path
        else:
            theirs, ours = json.loads(data), json.loads(again)
            for stat in (stat for stats in theirs["partitionToWriteStats"].values() for stat in stats):
                if "recordsStats" in stat:
                    stat["recordsStats"] = {"val": None}  # column ranges that only Hudi's own writer uses
        assert ours == theirs, path
        seen += 1
    assert seen > 900


def test_golden_plans_are_encoded_as_hudi_encoded_them(golden: Path) -> None:
    seen = set()
    for layout, path, instant in golden_instants(golden):
        kind = PLAN_OF.get((instant.action, instant.state))
        data = path.read_bytes()
        if kind is None or not data:
            assert not data or instant.action in DATA_ACTIONS, path
            continue
        plan = decode_plan(kind, data, str(path))
        again = encode_plan(plan, layout.release)
        assert records(again)[1] == records(data)[1], path
        seen.add(kind)
    assert {kind.__name__ for kind in PLAN_OF.values() if kind not in seen} == {"IndexPlan", "IndexCommitMetadata"}


def test_golden_schemas_are_the_stated_ones(golden: Path) -> None:
    seen = set()
    for _, path, _ in golden_instants(golden):
        data = path.read_bytes()
        if data.startswith(b"Obj"):
            release = next(part for part in path.parts if part in RELEASES)
            schema = json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])
            assert bare(schema_of(schema["name"], release)) == bare(schema), path
            seen.add((schema["name"], release))
    assert len(seen) == 31


def bare(schema: Any) -> Any:
    """A schema without what Avro ignores: defaults of maps and arrays, docs, and names spelt in full."""
    if isinstance(schema, list):
        return [bare(branch) for branch in schema]
    if isinstance(schema, str):
        return schema.removeprefix(NAMESPACE + ".")
    if not isinstance(schema, dict):
        return schema
    ignored = {"doc", "namespace"} | ({"default"} if schema.get("type") in ("map", "array") else set())
    return {key: bare(value) for key, value in schema.items() if key not in ignored}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("record", hudi_records())
def test_stated_schemas_are_avro(record: str, release: str) -> None:
    fastavro.parse_schema(schema_of(record, release))


OLDER, NEWER = layout_1(), layout_2()

# -- made-up values ----------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8"), max_size=8)
LONGS = st.integers(0, 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


@st.composite
def stats(draw: st.DrawFn) -> WriteStat:
    is_log = draw(st.booleans())
    given_ = {
        field.name: draw(LONGS)
        for field in dataclasses.fields(WriteStat)
        if field.type == "int" and field.name not in ("num_updates", "total_log_read_time_ms")
    }
    log = {
        "log_version": draw(st.integers(1, 99)),
        "log_offset": draw(LONGS),
        "base_file": draw(WORDS),
        "log_files": tuple(draw(st.lists(WORDS, max_size=2))),
    }
    return WriteStat(
        file_id=draw(WORDS),
        path=draw(WORDS.filter(bool)),
        partition_path=draw(WORDS),
        prev_commit=draw(WORDS),
        min_event_time=draw(st.none() | LONGS),
        max_event_time=draw(st.none() | LONGS),
        cdc_stats=draw(st.none() | st.dictionaries(WORDS, LONGS, max_size=2)),
        runtime_stats={"totalScanTime": 1, "totalCreateTime": draw(LONGS), "totalUpsertTime": 0},
        **given_,
        **(log if is_log else {}),
    )


METADATA = st.builds(
    CommitMetadata,
    partition_to_write_stats=st.dictionaries(WORDS, st.lists(stats(), max_size=2).map(tuple), max_size=2),
    operation_type=st.none() | st.sampled_from(WriteOperation),
    compacted=st.booleans(),
    extra_metadata=st.dictionaries(WORDS, WORDS, max_size=2),
    partition_to_replace_file_ids=st.none() | st.dictionaries(WORDS, st.lists(WORDS).map(tuple), max_size=2),
)


@given(METADATA)
def test_commit_metadata_goes_both_ways(metadata: CommitMetadata) -> None:
    assert OLDER.decode_commit(OLDER.encode_commit(metadata), "p") == metadata
    assert NEWER.decode_commit(NEWER.encode_commit(metadata), "p") == metadata


@given(METADATA)
def test_the_extra_metadata_alone(metadata: CommitMetadata) -> None:
    assert OLDER.decode_extra(OLDER.encode_commit(metadata), "p") == metadata.extra_metadata
    assert NEWER.decode_extra(NEWER.encode_commit(metadata), "p") == metadata.extra_metadata


@given(METADATA)
def test_base_files_without_a_stat_for_each(metadata: CommitMetadata) -> None:
    assert OLDER.decode_base_files(OLDER.encode_commit(metadata), "p") == metadata.base_files
    assert NEWER.decode_base_files(NEWER.encode_commit(metadata), "p") == metadata.base_files


@given(METADATA)
def test_partitions_without_a_stat_for_each_file(metadata: CommitMetadata) -> None:
    assert OLDER.decode_partitions(OLDER.encode_commit(metadata), "p") == metadata.partitions
    assert NEWER.decode_partitions(NEWER.encode_commit(metadata), "p") == metadata.partitions


@pytest.mark.parametrize("data", [b"", b"{}", b'{"partitionToWriteStats": {"a": [{"path": null}, {"numWrites": 3}]}}'])
def test_base_files_of_what_contains_little(data: bytes) -> None:
    assert OLDER.decode_base_files(data, "p") == OLDER.decode_commit(data, "p").base_files


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"partitionToWriteStats": 3}', b'{"partitionToWriteStats": {"a": [1]}}']
)
def test_no_base_files_in_what_is_no_commit(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"20261121015334641\.commit"):
        OLDER.decode_base_files(data, ".hoodie/20261121015334641.commit")


@pytest.mark.parametrize(
    "data",
    [
        b'{"extraMetadata": {"schema": "s"}, "partitionToReplaceFileIds": {"extraMetadata": ["f"]}}',
        b'{"extraMetadata": {"schema": "s"}, "more": "extraMetadata"}',
        b'{"extraMetadata": {"schema": "s", "x": "{\\"extraMetadata\\": {}}"}}',
        b'{"extraMetadata": {"schema": "s", "extraMetadata": "x"}}',
        b'{"extraMetadata": {"schema": "s"}, "more": {"extraMetadata": {"schema": "other"}}}',
    ],
)
def test_another_member_of_that_name_is_not_the_extra_metadata(data: bytes) -> None:
    assert OLDER.decode_extra(data, "p") == OLDER.decode_commit(data, "p").extra_metadata


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a plan's member, by its type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return st.none() | strategy(next(argument for argument in arguments if argument is not NoneType))
    if origin is tuple:
        return st.lists(strategy(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(WORDS, strategy(arguments[1]), max_size=2)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{name: strategy(member) for name, member in hints.items()})
    return {
        str: WORDS,
        InstantTime: WORDS.map(InstantTime),
        int: INTS,
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
    }[hint]


@pytest.mark.parametrize("kind", sorted(set(PLAN_OF.values()), key=lambda kind: kind.__name__))
def test_plans_go_both_ways(kind: type[Plan]) -> None:
    @settings(max_examples=25)
    @given(strategy(kind))
    def check(plan: Plan) -> None:
        assert decode_plan(kind, encode_plan(plan, "1.0.2"), "p") == plan

    check()


@pytest.mark.parametrize("kind", sorted(set(PLAN_OF.values()), key=lambda kind: kind.__name__))
def test_plans_have_the_members_of_their_record(kind: type[Plan]) -> None:
    from skep_format.timeline.records import _members

    stated = [member.name for member in hudi_records()[f"Hoodie{kind.__name__}"]]
    assert [avro for _, avro, _ in _members(kind)] == stated


def test_older_releases_are_written_without_later_members() -> None:
    plan = CompactionPlan(missing_schedule_partitions=("a",))
    schema, record = records(encode_plan(plan, "0.15.0"))
    assert "missingSchedulePartitions" not in record
    assert [field["name"] for field in schema["fields"]][-1] == "preserveHoodieMetadata"
    assert decode_plan(CompactionPlan, encode_plan(plan, "0.15.0"), "p") == CompactionPlan()


def test_a_replace_commit_without_a_plan_is_four_nulls() -> None:
    """Format guide 2.3: what insert overwrite and delete partition leave in their requested file."""
    _, record = records(encode_plan(RequestedReplaceMetadata(), "0.15.0"))
    assert record == {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": None}


# -- tolerance and damage ----------------------------------------------------------------------------------------------


def test_unknown_and_missing_keys_are_no_matter() -> None:
    data = b"""{"partitionToWriteStats": {"a": [{"path": "a/f", "x": 1, "numWrites": null}]}, "y": {},
                "extraMetadata": {"schema": "s", "z": null}, "operationType": "upsert"}"""
    metadata = OLDER.decode_commit(data, "p")
    assert metadata.stats == (WriteStat(file_id="", path="a/f", partition_path=""),)
    assert metadata.operation_type is WriteOperation.UPSERT
    assert metadata.extra_metadata == {"schema": "s"}
    assert (
        OLDER.decode_commit(b"{}", "p")
        == OLDER.decode_commit(b"", "p")
        == NEWER.decode_commit(b"", "p")
        == CommitMetadata()
    )
    assert OLDER.decode_commit(b'{"operationType": "LATER"}', "p").operation_type is WriteOperation.UNKNOWN


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b"nul", b"\xff\xfe", b'{"partitionToWriteStats": 3}', b'{"partitionToWriteStats": {"a": [1]}}',
     b'{"extraMetadata": [1]}', b'{"operationType": 7}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_commit_metadata_names_the_file(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"20261121015334641\.commit"):
        OLDER.decode_commit(data, ".hoodie/20261121015334641.commit")


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"extraMetadata": [1]}', b'"extraMetadata"', b"[" * 100_000])
def test_no_extra_metadata_in_what_is_no_commit(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"20261121015334641\.commit"):
        OLDER.decode_extra(data, ".hoodie/20261121015334641.commit")


def test_cut_and_damaged_golden_files_are_format_errors(golden: Path) -> None:
    """Cut anywhere or with a byte changed, a file is refused by name or still reads: nothing else is raised."""
    samples: dict[Any, tuple[TimelineLayout, Path]] = {}
    for layout, path, instant in golden_instants(golden):
        if path.stat().st_size:
            samples.setdefault((layout.release, instant.action, instant.state), (layout, path))
    assert len(samples) > 15
    for (_, action, state), (layout, path) in samples.items():
        data = path.read_bytes()
        kind = PLAN_OF.get((action, state))

        def decode(broken: bytes, kind: Any = kind, layout: TimelineLayout = layout, path: Path = path) -> None:
            if kind:
                decode_plan(kind, broken, str(path))
            else:
                layout.decode_commit(broken, str(path))

        step = max(1, len(data) // 40)
        for position in range(1, len(data) - 1, step):
            with pytest.raises(FormatError) as caught:
                decode(data[:position])
            assert path.name in str(caught.value)
            flipped = bytearray(data)
            flipped[position] ^= 0xFF
            try:
                decode(bytes(flipped))
            except FormatError as error:
                assert path.name in str(error)  # noqa: PT017 - it need not fail
