"""The record index: it finds the keys that the base files have, and reads only what the keys of a write need."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting_storage import CountingStorage
from golden_metadata import RELEASES
from hypothesis import given, settings
from hypothesis import strategies as st
from own_record_index import KEPT, MadeRecordIndex, live_keys, with_record_index

from skep_format.errors import InputError, KeyFieldError, OptionError, UnsupportedError
from skep_format.names import FileGroupId
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType, update_table_config
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.events import Event, Events
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.indexes import KeyLookUp, index_of
from skep_table.write.indexes.bloom_lookup import BloomIndex, BloomLookUp, MetadataIndexWarning
from skep_table.write.indexes.contract import NO_CANDIDATES, Candidates
from skep_table.write.indexes.record_index import RecordIndex, RecordIndexLookUp
from skep_table.write.indexes.tagging import Tagging, locate
from skep_table.write.local import LocalWriter
from skep_table.write.planning import plan
from skep_table.write.planning.candidates import CandidateFiles, candidate_files

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
GLOBAL, LOCAL = RecordIndex(True, True), RecordIndex(False, False)
KINDS = [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ]
PARTS = ["2024-01-01", "a/b", "ü %"]
KEYS = [f"k{at}" for at in range(12)] + ["é", "😀,x", ""]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.value.lower())
def kind(request: pytest.FixtureRequest) -> TableType:
    found: TableType = request.param
    return found


def new_table(folder: Path, kind: TableType = TableType.COPY_ON_WRITE, **more: Any) -> HudiTable:
    spec = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **more}
    return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, type=kind, **spec), KEPT)


def rows(keys: Any, part: str = "p", ts: int = 1) -> pa.Table:
    return pa.table({"id": list(keys), "part": [part] * len(keys), "ts": [ts] * len(keys)}, SCHEMA)


def keyed(keys: Any, part: Any = "p") -> pa.Table:
    parts = [part] * len(keys) if isinstance(part, str) else part
    return pa.table({"_hoodie_record_key": list(keys), "_hoodie_partition_path": parts})


def groups(look_up: KeyLookUp, files: CandidateFiles, asked: pa.Table) -> list[FileGroupId | None]:
    """The file group of each key."""
    found = locate(Tagging(look_up, files), asked, ThreadRunner(4)).numbers.tolist()
    names = {number: group for group, number in files.numbers().items()}
    return [names.get(number) for number in found]


def all_files(table: HudiTable) -> CandidateFiles:
    return candidate_files(table, table.view().partitions())


def indexed(table: HudiTable, index: RecordIndex = GLOBAL) -> tuple[RecordIndexLookUp, CandidateFiles]:
    files = all_files(table)
    look_up = index.look_up(table, files)
    assert isinstance(look_up, RecordIndexLookUp)
    return look_up, files


# -- what is found


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete", "delete_partitions"]),
        st.sets(st.sampled_from(range(len(KEYS) - 1)), min_size=1, max_size=6),
        st.sampled_from(range(len(PARTS))),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize(("version", "partitioned"), [(6, False), (8, False), (9, False), (9, True)])
@settings(max_examples=4, deadline=None)
@given(steps=STEPS, number=st.integers(1, 4))
def test_it_finds_what_the_base_files_have(
    tmp_path_factory: pytest.TempPathFactory,
    version: int,
    partitioned: bool,
    steps: list[Any],
    number: int,
) -> None:
    """After any history, in all partitions, or in those of the rows."""
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("history")
        table = new_table(folder / "t", kind, version=version)
        scope = {} if partitioned else {"hoodie.index.type": "GLOBAL_SIMPLE"}
        LocalWriter(table.with_options({**KEPT, **scope})).insert(rows(["stays"], "kept"))
        for ts, (operation, chosen, part) in enumerate(steps):
            batch = rows([KEYS[at] for at in sorted(chosen)], PARTS[part], ts)
            writer = LocalWriter(table.reload().with_options({**KEPT, **scope}))
            if operation == "delete_partitions":
                writer.delete_partitions([PARTS[part]])
            else:
                getattr(writer, operation)(batch)
        table = with_record_index(table.reload().with_options(KEPT), number, partitioned=partitioned)
        look_up, files = indexed(table, LOCAL if partitioned else GLOBAL)
        live = {
            (row["key"], row["partition"]): FileGroupId(row["partition"], row["file_id"])
            for row in live_keys(table).to_pylist()
        }
        asked = [(key, part) for key in KEYS for part in [*PARTS, "nowhere"]] * 2
        found = groups(look_up, files, keyed(*map(list, zip(*asked, strict=True))))
        if partitioned:
            assert found == [live.get(pair) for pair in asked]
        else:
            assert found == [{key: group for (key, _), group in live.items()}.get(key) for key, _ in asked]
            by_files = BloomLookUp(table, files, is_global=True)
            assert found == groups(by_files, files, keyed(*map(list, zip(*asked, strict=True))))
        shutil.rmtree(folder)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["upsert", "upsert", "upsert", "delete", "delete_partitions", "compact", "cluster", "roll back"]
        ),
        st.sets(st.sampled_from(range(6)), min_size=1, max_size=4),
        st.sampled_from(["p", "q-1"]),
    ),
    min_size=2,
    max_size=8,
)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None)
@given(actions=ACTIONS, moves=st.booleans())
def test_tables_end_alike_by_it_and_by_the_base_files(
    tmp_path_factory: pytest.TempPathFactory, kind: TableType, version: int, actions: list[Any], moves: bool
) -> None:
    """After the same history of writes and services, by which rows also move, or stay where they were first."""
    folder = tmp_path_factory.mktemp("alike")
    ends = []
    for name, index in (("index", MadeRecordIndex(True, moves)), ("files", BloomIndex(is_global=True, moves=moves))):
        table = new_table(folder / name, kind, version=version)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plan, "index_of", lambda _config, _options, index=index: index)
            for ts, (action, chosen, part) in enumerate(actions):
                act(table, action, rows([KEYS[at] for at in sorted(chosen)], part, ts))
        found = live_rows(table)
        assert len({key for key, *_ in found}) == len(found)
        ends.append(found)
    assert ends[0] == ends[1]
    shutil.rmtree(folder)


def act(table: HudiTable, action: str, batch: pa.Table) -> None:
    table = table.reload()
    last = table.timeline.data().completed().last()
    match action:
        case "compact":
            if table.config.is_mor:
                compact(table)
        case "cluster":
            cluster(table)
        case "roll back":
            if last is not None and last.action in (Action.COMMIT, Action.DELTA_COMMIT):
                with suppress(InputError, UnsupportedError):  # as the services have it
                    roll_back_instant(table, last.requested_time)
        case "delete_partitions":
            LocalWriter(table).delete_partitions([batch["part"][0].as_py()])
        case _:
            getattr(LocalWriter(table), action)(batch)


def live_rows(table: HudiTable) -> list[Any]:
    found = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["_hoodie_record_key"], row["_hoodie_partition_path"], row["ts"]) for row in found)


@pytest.mark.parametrize("release", RELEASES)
def test_of_hudis_tables_it_finds_what_the_base_files_have(golden: Path, release: str) -> None:
    table = HudiTable.open(golden / release / "cow_record_index" / "table", KEPT)
    look_up, files = indexed(table)
    keys = [*live_keys(table).column("key").to_pylist(), "no such key"]
    found = groups(look_up, files, keyed(keys))
    assert found == groups(BloomLookUp(table, files, is_global=True), files, keyed(keys))
    assert found.count(None) == 1


def test_keys_of_file_groups_that_are_not_there_are_looked_up_in_the_base_files(
    tmp_path: Path, kind: TableType
) -> None:
    """As after an overwrite by a writer of Hudi, which leaves entries of keys in logs; the row may be elsewhere."""
    table = new_table(tmp_path / "t", kind)
    for part in ("p", "q"):
        LocalWriter(table.reload()).insert(rows([f"{part}{at}" for at in range(20)], part))
    table = table.reload()
    keys = live_keys(table)
    lost = pa.table({"key": ["lost"], "partition": ["p"], "file_id": ["0" * 8 + "-0000-0000-0000-" + "0" * 12 + "-0"]})
    outdated = lost.set_column(0, "key", pa.array(["p3"]))
    others = keys.filter(pa.array([key != "p3" for key in keys.column("key").to_pylist()]))
    table = with_record_index(table, keys=pa.concat_tables([others, lost, outdated]))
    look_up, files = indexed(table)
    asked = keyed(["lost", "p3", "q7", "p3", "p4"])
    found = groups(look_up, files, asked)
    assert found == groups(BloomLookUp(table, files, is_global=True), files, asked)
    assert [None if group is None else group.partition_path for group in found] == [None, "p", "q", "p", "p"]


class WithEntryTooMany(MadeRecordIndex):
    """It has a key that its file group lacks, as a payload of Hudi's writers may have deleted it in a merge."""

    def entries(self, keys: pa.Table) -> pa.Table:
        return pa.concat_tables([keys, keys.slice(0, 1).set_column(0, "key", pa.array(["left"]))])


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("part", ["p", "q"])
@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_a_key_that_its_file_group_lacks_is_written(
    tmp_path: Path, kind: TableType, operation: str, part: str, moves: bool
) -> None:
    table = new_table(tmp_path / "t", kind)
    LocalWriter(table).insert(rows(["a"], "p"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "index_of", lambda _config, _options: WithEntryTooMany(True, moves))
        getattr(LocalWriter(table.reload()), operation)(rows(["left", "b"], part, 2))
    expected = [("a", "p", 1)]
    if operation == "upsert":
        expected += [("b", part, 2), ("left", part if moves else "p", 2)]
    assert live_rows(table) == expected


def test_an_entry_of_another_partition_is_outdated_in_an_index_of_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for part in ("p", "q"):
        LocalWriter(table.reload()).insert(rows(["a", part], part))
    table = with_record_index(table.reload(), partitioned=True)
    look_up, files = indexed(table, LOCAL)
    names = {group.partition: number for number, group in enumerate(look_up.groups)}
    assert set(names) == {"p", "q"}
    for number, group in enumerate(look_up.groups):
        other = "q" if group.partition == "p" else "p"
        assert look_up.in_shard(number, pa.array([other])).numbers.tolist() == [-1]
    assert [group and group.partition_path for group in groups(look_up, files, keyed(["a", "a"], ["p", "q"]))] == [
        "p",
        "q",
    ]


def test_a_partition_without_groups_of_the_index_is_looked_up_in_its_base_files(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for part in ("p", "q"):
        LocalWriter(table.reload()).insert(rows(["a", part], part))
    table = table.reload()
    keys = live_keys(table)
    only_p = keys.filter(pa.array([part == "p" for part in keys.column("partition").to_pylist()]))
    table = with_record_index(table, partitioned=True, keys=only_p)
    look_up, files = indexed(table, LOCAL)
    found = groups(look_up, files, keyed(["a", "a", "q", "p"], ["p", "q", "q", "q"]))
    assert [group and group.partition_path for group in found] == ["p", "q", "q", None]


# -- what is read


@pytest.fixture(scope="module")
def many_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 40 base files, whose index has eight groups."""
    folder = tmp_path_factory.mktemp("many") / "t"
    split = {"hoodie.copyonwrite.insert.auto.split": "false", "hoodie.copyonwrite.insert.split.size": "500"}
    table = new_table(folder)
    LocalWriter(table.with_options(split)).insert(rows([f"k{at:06d}" for at in range(20_000)]))
    with_record_index(table.reload(), 8)
    return folder


def test_no_base_file_is_opened_and_each_file_of_the_index_once(many_keys: Path) -> None:
    storage = CountingStorage(LocalStorage(str(many_keys)))
    table = HudiTable.open(storage, KEPT)
    look_up, files = indexed(table)
    storage.calls.clear()
    found = locate(Tagging(look_up, files), keyed([f"k{at:06d}" for at in range(0, 40_000, 3)]), ThreadRunner(4))
    assert (found.numbers >= 0).sum() == len(range(0, 20_000, 3))
    assert not [call for call in storage.calls if call.path.endswith(".parquet")]
    assert len({path for path in storage.calls.paths() if path.endswith(".hfile")}) == 8
    opened = Counter(path for path in storage.calls.paths() if ".log." in path)
    assert (len(opened), set(opened.values())) == (8, {1})


def test_few_keys_are_one_shard(many_keys: Path) -> None:
    """One look-up in all groups, and one task: the groups that have none of the keys are not opened."""
    storage = CountingStorage(LocalStorage(str(many_keys)))
    look_up, files = indexed(HudiTable.open(storage, KEPT))
    shards = {
        count: look_up.candidates(keyed([f"k{at:06d}" for at in range(count)])).candidates for count in (1, 20_000)
    }
    assert [len(each.spans) for each in shards.values()] == [1, 8]
    storage.calls.clear()
    found = locate(Tagging(look_up, files), keyed(["k000001", "k9"]), ThreadRunner(4))
    assert (found.numbers >= 0).tolist() == [True, False]
    assert len({path for path in storage.calls.paths() if path.endswith(".hfile")}) <= 2


def test_what_a_look_up_has_found_is_not_read_again(many_keys: Path) -> None:
    storage = CountingStorage(LocalStorage(str(many_keys)))
    index = HudiTable.open(storage, KEPT).metadata_table()
    assert index is not None
    first = index.record_index(pa.array([f"k{at:06d}" for at in range(0, 40_000, 3)]))
    storage.calls.clear()
    again = index.record_index(pa.array([f"k{at:06d}" for at in range(0, 40_000, 6)]))
    assert not storage.calls.paths()
    assert first is not None
    assert again is not None
    even = [row for row in first.to_pylist() if int(row["record_key"][1:]) % 6 == 0]
    assert sorted(again.to_pylist(), key=str) == sorted(even, key=str)
    found = index.record_index(pa.array(["k000001"]))
    assert found is not None
    assert found["record_key"].to_pylist() == ["k000001"]


def test_only_the_groups_of_the_keys_are_read(many_keys: Path) -> None:
    storage = CountingStorage(LocalStorage(str(many_keys)))
    look_up, files = indexed(HudiTable.open(storage, KEPT))
    storage.calls.clear()
    assert (locate(Tagging(look_up, files), keyed(["k000001", "none"]), ThreadRunner(4)).numbers >= 0).sum() == 1
    assert len({call.path for call in storage.calls if "record_index" in call.path and "hfile" in call.path}) <= 2


@pytest.mark.parametrize("version", [6, 9])
def test_few_keys_are_looked_for_in_the_partitions_that_the_index_names(tmp_path: Path, version: int) -> None:
    table = new_table(tmp_path / "t", version=version)
    for part in PARTS:
        LocalWriter(table.reload()).insert(rows([f"{part}{at}" for at in range(3)], part))
    first, second, third = PARTS
    keys = live_keys(table.reload())
    lost = pc.equal(keys.column("key"), f"{third}0")
    wrong = pc.if_else(lost, "0" * 8 + "-0000-0000-0000-" + "0" * 12 + "-0", keys.column("file_id"))
    table = with_record_index(table, keys=keys.set_column(2, "file_id", wrong))

    def found(partition: str, *names: str) -> list[str]:
        return sorted(GLOBAL.candidate_files(table, {partition}, lambda _most: pa.array(names, pa.string())))

    assert found(first, f"{second}0", "none") == [first, second]
    assert found(first, f"{first}1") == [first]
    assert found("new", "none") == ["new"]
    assert found(first, f"{third}0") == sorted(PARTS), "an outdated entry: the key may be anywhere"
    assert sorted(GLOBAL.candidate_files(table, {first}, lambda _most: None)) == sorted(PARTS)
    seen: list[Event] = []
    table = table.with_context(events=Events(seen.append)).with_options({**KEPT, "hoodie.index.type": "RECORD_INDEX"})
    LocalWriter(table).upsert(rows([f"{second}1", "fresh"], second, 2))
    LocalWriter(table.reload()).upsert(rows([f"{third}0"], second, 2))
    assert [event.facts["files"] for event in seen if event.name == "write.tag"] == [1, 3]
    assert (f"{third}0", third, 2) in live_rows(table)


@pytest.mark.parametrize("version", [6, 9])
def test_an_update_in_logs_opens_no_base_file(tmp_path: Path, version: int) -> None:
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")))
    table = written_by_index(storage, version)
    storage.calls.clear()
    LocalWriter(table).upsert(rows(["a", "c"], ts=2))
    assert not storage.calls.paths("read", "read_range", "read_suffix", "open_input", suffix=".parquet")
    assert live_rows(table) == [("a", "p", 2), ("b", "p", 1), ("c", "p", 2)]


def written_by_index(storage: CountingStorage, version: int) -> HudiTable:
    spec = TableSpec(
        name="t", schema=SCHEMA, type=TableType.MERGE_ON_READ, version=version,
        record_key=("id",), partition_by=("part",), ordering="ts",
    )  # fmt: skip
    options = {
        **KEPT,
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
    }
    table = create_table(storage, spec, options)
    LocalWriter(table).insert(rows(["a", "b", "c"]))
    return table.reload()


def test_an_entry_returns_with_a_key_that_logs_had_deleted(tmp_path: Path) -> None:
    """An index of base files finds the key in the file group, where the logs have no row of it any more."""
    table = written_by_index(CountingStorage(LocalStorage(str(tmp_path / "t"))), 9)
    for operation, entries in (("delete", ["b", "c"]), ("upsert", ["a", "b", "c"])):
        by_files = table.reload().with_options({"hoodie.index.type": "BLOOM"})
        getattr(LocalWriter(by_files), operation)(rows(["a"], ts=2))
        index = table.reload().metadata_table()
        assert index is not None
        found = index.record_index(pa.array(["a", "b", "c"]))
        assert found is not None
        assert sorted(found["record_key"].to_pylist()) == entries
    assert live_rows(table) == [("a", "p", 2), ("b", "p", 1), ("c", "p", 1)]


def test_a_look_up_sees_its_snapshot_in_other_processes_too(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    LocalWriter(table).insert(rows(["a", "b"]))
    table = with_record_index(table.reload())
    look_up, files = indexed(table)
    travelled = pickle.loads(pickle.dumps(look_up))
    assert groups(travelled, files, keyed(["a", "c"])) == groups(look_up, files, keyed(["a", "c"]))
    assert groups(travelled, files, keyed(["b"]))[0] is not None


# -- when there is no such index


WITHOUT: list[Any] = [
    pytest.param(GLOBAL, lambda table: table, "no record index", id="missing"),
    pytest.param(LOCAL, with_record_index, "of the whole table", id="of-the-table"),
    pytest.param(
        GLOBAL, lambda table: with_record_index(table, partitioned=True), "each partition", id="of-partitions"
    ),
]


@pytest.mark.parametrize(("index", "change", "message"), WITHOUT)
def test_without_one_of_its_kind_the_base_files_are_looked_into(
    tmp_path: Path, index: RecordIndex, change: Any, message: str
) -> None:
    table = new_table(tmp_path / "t")
    LocalWriter(table).insert(rows(["a"], "p"))
    table = change(table.reload())
    files = all_files(table)
    with pytest.warns(MetadataIndexWarning, match=message):
        look_up = index.look_up(table, files)
    found = groups(look_up, files, keyed(["a", "a"], ["p", "q"]))
    assert [group is not None for group in found] == [True, index.is_global]


def test_an_index_that_misses_a_commit_is_not_used(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    LocalWriter(table).insert(rows(["a"], "p"))
    table = with_record_index(table.reload())
    (last,) = (tmp_path / "t/.hoodie").glob("*.commit")
    shutil.copy(last, last.with_name("20991231235959999.commit"))
    table = table.reload()
    with pytest.warns(MetadataIndexWarning, match="lists all commits"):
        GLOBAL.look_up(table, all_files(table))


def test_an_empty_table_needs_no_warning(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    look_up = GLOBAL.look_up(table, all_files(table))
    assert groups(look_up, all_files(table), keyed(["a"])) == [None]


@pytest.mark.parametrize("name", ["RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "record_level_index"])
def test_a_write_that_would_drop_the_metadata_table_is_refused(tmp_path: Path, name: str) -> None:
    table = new_table(tmp_path / "t")
    LocalWriter(table).insert(rows(["a"]))
    without = Options({"hoodie.index.type": name, "hoodie.metadata.enable": "false"})
    with pytest.raises(OptionError, match=r"hoodie\.metadata\.enable=false drop"):
        LocalWriter(table.reload().with_context(options=without)).upsert(rows(["a"]))
    assert table.reload().metadata_table() is not None


def test_a_table_without_record_keys_is_refused(tmp_path: Path) -> None:
    update_table_config(new_table(tmp_path / "t").storage, {"hoodie.populate.meta.fields": "false"})
    config = HudiTable.open(tmp_path / "t").config
    with pytest.raises(UnsupportedError, match=r"populate\.meta\.fields"):
        index_of(config, Options({"hoodie.index.type": "RECORD_INDEX", **KEPT}))


@pytest.mark.parametrize(
    ("name", "is_global"),
    [("RECORD_INDEX", True), ("GLOBAL_RECORD_LEVEL_INDEX", True), ("RECORD_LEVEL_INDEX", False)],
)
def test_rows_stay_in_their_partition_unless_they_are_to_move(tmp_path: Path, name: str, is_global: bool) -> None:
    config = new_table(tmp_path / "t").config
    given_options = Options({"hoodie.index.type": name, **KEPT})
    assert index_of(config, given_options) == RecordIndex(is_global, moves=False)
    moves = given_options.with_values({"hoodie.record.index.update.partition.path": "true"})
    assert index_of(config, moves) == RecordIndex(is_global, moves=True)


# -- parts of candidates


@given(
    spans=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), max_size=5),
    bounds=st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted),
)
def test_parts_of_candidates_are_those_of_their_rows(spans: list[list[int]], bounds: list[int]) -> None:
    keys = pa.array([f"k{at}" for at in range(10)])
    order = np.random.default_rng(len(spans)).permutation(10)
    whole = Candidates(keys, order, tuple((at, low, high) for at, (low, high) in enumerate(spans)))
    part = whole.of_keys(*bounds)

    def pairs(candidates: Candidates, shift: int) -> set[tuple[int, str, int]]:
        return {
            (number, candidates.keys[at].as_py(), int(candidates.rows[at]) + shift)
            for number, low, high in candidates.spans
            for at in range(low, high)
        }

    assert pairs(part, bounds[0]) == {each for each in pairs(whole, 0) if bounds[0] <= each[2] < bounds[1]}
    assert NO_CANDIDATES.of_keys(0, 5).spans == ()


@pytest.mark.parametrize("version", [6, 9])
def test_a_key_that_no_index_holds_is_refused(tmp_path: Path, version: int) -> None:
    """HFiles, and with them Hudi's own, hold keys of 32,767 bytes at most: their length is a short of Java."""
    indexed = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    indexed |= {"hoodie.metadata.global.record.level.index.enable": "true"}
    table = new_table(tmp_path / "t", version=version)
    writer = LocalWriter(table.with_context(options=Options(indexed)))
    writer.upsert(rows(["a" * 32_767]))
    for size in (32_768, 65_536):
        with pytest.raises(KeyFieldError, match=rf"table t: a key of {size} bytes is too long for record_index"):
            writer.upsert(rows(["a" * size]))
    assert read(table.reload(), ReadRequest()).count() == 1
    LocalWriter(table.reload().with_context(options=Options(indexed))).upsert(rows(["b"]))
    assert read(table.reload(), ReadRequest()).count() == 2
