"""Bootstraps: tables made of folders of files, compared with what Hudi makes of the same."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Collection
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from skep_format.basefile import read_footer
from skep_format.errors import (
    CommitConflictError,
    CorruptFileError,
    InputError,
    KeyFieldError,
    OptionError,
    SchemaError,
    SkepError,
    StorageError,
    UnsupportedError,
)
from skep_format.hfile import HFile
from skep_format.names import BaseFileName, BaseFormat
from skep_format.options import REGISTRY, IneffectiveOptionWarning, Options
from skep_format.properties import parse_properties
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import META_FIELDS
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.query import ReadRequest, read
from skep_table.query.plan import PartlyBootstrappedWarning
from skep_table.services.fsck import fsck
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.run import FULL_BOOTSTRAP, Bootstrap, OfSkeletons
from skep_table.write.bootstrap.source import LeftOutWarning, SourceData, open_source, read_source
from skep_table.write.local import LocalWriter
from skep_table.write.result import WriteResult

SELECTOR, REGEX = "hoodie.bootstrap.mode.selector", "hoodie.bootstrap.mode.selector.regex"
FULL = {SELECTOR: "org.apache.hudi.client.bootstrap.selector.FullRecordBootstrapModeSelector"}
INDEX = Path(".hoodie") / ".aux" / ".bootstrap"
INDEXED = {f"hoodie.metadata{each}.enable": "true" for each in ("", ".index.column.stats", ".record.index")}
Files = dict[str, bytes]


def rows(*ids: str, **more: pa.Array) -> pa.Table:
    return pa.table({"id": list(ids), "ts": pa.array([1] * len(ids), pa.int64()), **more})


class Case:
    """A source folder and a table that is made of it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.folder = folder / "source", folder / "table"
        self.spec: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "hive_style": True}

    def put(self, path: str, table: pa.Table, write: Callable[..., object] = pq.write_table) -> Case:
        file = self.source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        write(table, str(file))
        return self

    def options(self, **more: str) -> Options:
        return Options({"hoodie.bootstrap.base.path": str(self.source), **more})

    def read_source(self, **more: str) -> SourceData:
        options = self.options(**more)
        settings = BootstrapSettings.of(options)
        return read_source(open_source(options), self.spec["record_key"], settings, ThreadRunner(1))

    def run(self, **more: str) -> list[WriteResult]:
        source = self.read_source(**more)
        if not (self.folder / ".hoodie").exists():
            spec = TableSpec(name="t", schema=to_arrow(source.columns), ordering="ts", **self.spec)
            create_table(LocalStorage(str(self.folder)), spec)
        self.options(**more).check()
        return LocalWriter(HudiTable.open(str(self.folder), self.options(**more))).bootstrap(source)

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.folder))

    def content(self) -> list[tuple[Any, ...]]:
        found = read(self.table, ReadRequest()).to_arrow().to_pylist()
        return sorted((row["id"], row["_hoodie_partition_path"], row.get("part")) for row in found)

    def source_files(self) -> Files:
        return {str(file): file.read_bytes() for file in self.source.rglob("*") if file.is_file()}

    def skeletons(self) -> set[str]:
        names = {file: BaseFileName.parse(file.name) for file in self.folder.rglob("*.parquet")}
        return {f.parent.name for f, name in names.items() if name and name.instant_time == METADATA_BOOTSTRAP}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path).put("part=p/0.parquet", rows("a", "b")).put("part=q/0.parquet", rows("c"))


WHOLE = [("a", "part=p", "p"), ("b", "part=p", "p"), ("c", "part=q", "q")]


def test_a_bootstrap_after_another_that_is_dropped_has_other_rows_at_the_same_times(case: Case) -> None:
    """A process that has read the first one sees that, though its instants have the very same names."""
    case.run()
    before = case.table
    assert read(before, ReadRequest()).to_arrow()["id"].to_pylist() == ["a", "b", "c"]
    (instant,) = before.timeline.data().instants
    assert before.newest() is before
    shutil.rmtree(case.folder)
    shutil.rmtree(case.source / "part=q")
    case.put("part=p/0.parquet", rows("d")).run()
    for after in (before.newest(), before.reload()):
        assert after.timeline.instants == before.timeline.instants
        assert after.commit_metadata(instant).partitions == ("part=p",)
        assert read(after, ReadRequest()).to_arrow()["id"].to_pylist() == ["d"]
    assert after.newest() is after


# -- like Hudi's -------------------------------------------------------------------------------------------------------


def index_of(folder: Path) -> tuple[dict[str, Any], dict[str, bytes], dict[str, Any]]:
    """Records and schemas of both files, with the partition in place of each file id, and their own facts."""
    storage, found, infos, schemas = LocalStorage(str(folder)), {}, {}, {}
    for file in storage.list_prefix(str(INDEX), recursive=True):
        if not file.name.endswith(".hfile"):
            continue
        opened = HFile.open(storage, file.path, file.size_bytes)
        infos[file.path] = next(iter(fastavro.reader(io.BytesIO(opened.info["INDEX_INFO"]))))
        for batch in opened.scan():
            for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                reader = fastavro.reader(io.BytesIO(value))
                record: dict[str, Any] = next(iter(reader))
                schemas[file.path] = json.loads(reader.metadata["avro.schema"])
                files = record.pop("fileIdToBootstrapFile", None)
                if files is not None:
                    (record["file"],) = files.values()
                found[f"{file.path} {key.decode().partition(';')[0]}"] = record
    return found, infos, schemas


def like(record: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on when and where; Hudi's own records lack their versions where Java has no default."""
    kept = {key: like(value) if isinstance(value, dict) else value for key, value in record.items()}
    for name in ("version", "permission", "owner", "group", "blockSize", "modificationTime", "accessTime"):
        kept.pop(name, None)
    if "uri" in kept:
        kept["uri"] = kept["uri"].rpartition("/source/")[2]
    return kept


def test_a_bootstrap_is_like_hudis(golden: Path, tmp_path: Path) -> None:
    hudis = golden / "0.15.0" / "cow_bootstrap_metadata_only"
    case = Case(tmp_path)
    case.source = hudis / "source"
    case.spec = {"record_key": ("order_id",), "partition_by": ("city",), "hive_style": True}
    case.run()
    for mine, theirs in zip(index_of(case.folder), index_of(hudis / "table"), strict=True):
        assert mine.keys() == theirs.keys()
        for path, record in theirs.items():
            if path.endswith(".hfile") and "numKeys" in record:
                assert mine[path]["numKeys"] == record["numKeys"]
                assert mine[path]["bootstrapBasePath"] == str(case.source)
            elif path.endswith(".hfile"):
                assert _plain(mine[path]) == _plain(record)
            else:
                assert like(mine[path]) == like(record)
    ours, golden_table = LocalStorage(str(case.folder)), LocalStorage(str(hudis / "table"))
    for city in ("chennai", "utrecht", "amsterdam"):
        both = []
        for storage in (ours, golden_table):
            files = [f for f in storage.list_prefix(f"city={city}") if f.name.endswith("_00000000000001.parquet")]
            (file,) = files
            name = BaseFileName.parse(file.name)
            assert name is not None
            assert len(name.file_id) == 36  # a bare UUID
            both.append((read_footer(storage, file.path), pq.read_table(storage.local_path(file.path))))
        (footer, held), (expected, stored) = both
        schema, hudis_own = (json.loads(each.entries["parquet.avro.schema"]) for each in (footer, expected))
        assert {**schema, "doc": ""} == hudis_own
        assert (footer.min_key, footer.max_key) == (expected.min_key, expected.max_key)
        assert footer.bloom is not None
        assert footer.key_filter is not None
        assert "hoodie_bloom_filter_type_code" in footer.entries
        columns = ["_hoodie_commit_time", "_hoodie_record_key", "_hoodie_partition_path"]
        assert held.select(columns).to_pylist() == stored.select(columns).to_pylist()
        seqnos = held["_hoodie_commit_seqno"].to_pylist()
        assert [text.split("_")[::2] for text in seqnos] == [["00000000000001", str(n)] for n in range(len(held))]
        metafile = parse_properties(ours.read(f"city={city}/.hoodie_partition_metadata"))
        assert metafile == parse_properties(golden_table.read(f"city={city}/.hoodie_partition_metadata"))
    commit, other = map(_only_commit, (ours, golden_table))
    assert commit.operation_type is WriteOperation.BOOTSTRAP
    assert commit.partition_to_write_stats.keys() == other.partition_to_write_stats.keys()
    mine, theirs = (
        each.extra_metadata["schema"].replace("cow_bootstrap_metadata_only", "t") for each in (commit, other)
    )
    assert json.loads(mine) == json.loads(theirs)
    for state in ("requested", "inflight"):
        name = "00000000000001.inflight" if state == "inflight" else "00000000000001.commit.requested"
        assert ours.read(f".hoodie/{name}") == golden_table.read(f".hoodie/{name}") == b""
    properties = HudiTable.open(ours).config.raw
    assert properties["hoodie.bootstrap.base.path"] == str(case.source)
    key = "hoodie.bootstrap.index.class"
    assert properties[key] == HudiTable.open(golden_table).config.raw[key]


def _only_commit(storage: LocalStorage) -> CommitMetadata:
    table = HudiTable.open(storage)
    return table.commit_metadata(table.timeline.completed().instants[0])


def _plain(schema: Any) -> Any:
    """Without namespaces, which Avro inherits."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "namespace"}
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    return schema.rpartition(".")[2] if isinstance(schema, str) else schema


# -- modes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, pytest.param(8, marks=pytest.mark.slow), 9])
@pytest.mark.parametrize("indexed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_skeletons_and_rows_of_one_source(case: Case, version: int, indexed: bool) -> None:
    before = case.source_files()
    case.spec["version"] = version
    more = INDEXED if indexed else {"hoodie.metadata.enable": "true"}
    options = {SELECTOR: "BootstrapRegexModeSelector", REGEX: "part=p", **more}
    first, second = case.run(**options)
    assert (first.instant.requested_time, second.instant.requested_time) == (METADATA_BOOTSTRAP, FULL_BOOTSTRAP)
    assert second.metadata.operation_type is WriteOperation.BULK_INSERT
    assert case.content() == WHOLE
    assert case.skeletons() == {"part=p"}
    assert case.source_files() == before
    raw = case.table.config.raw
    assert raw.get("hoodie.bootstrap.index.type") == (None if version == 6 else "HFILE")
    assert fsck(case.table, deep=True) == []
    LocalWriter(HudiTable.open(str(case.folder), Options(more))).upsert(
        pa.table({"id": ["a", "z"], "ts": [2, 2], "part": ["p", "q"]})
    )
    assert case.content() == [*WHOLE, ("z", "part=q", "q")]


def test_the_mode_of_the_expression_is_turned_around(case: Case) -> None:
    options = {SELECTOR: "BootstrapRegexModeSelector", REGEX: "part=p", f"{REGEX}.mode": "FULL_RECORD"}
    case.run(**options)
    assert case.skeletons() == {"part=q"}
    assert case.content() == WHOLE


def test_an_expression_matches_whole_paths(case: Case) -> None:
    case.run(**{SELECTOR: "BootstrapRegexModeSelector", REGEX: "art=p"})
    assert case.skeletons() == set()


def test_merge_on_read_tables_have_delta_commits(case: Case) -> None:
    from skep_format.table_config import TableType

    case.spec["type"] = TableType.MERGE_ON_READ
    case.run()
    assert (case.folder / ".hoodie" / "00000000000001.deltacommit").exists()
    LocalWriter(case.table).upsert(pa.table({"id": ["a"], "ts": [2], "part": ["p"]}))
    assert case.content() == WHOLE


def test_a_folder_without_partitions(tmp_path: Path) -> None:
    case = Case(tmp_path).put("0.parquet", rows("a")).put("1.parquet", rows("b"))
    case.spec |= {"partition_by": (), "hive_style": False}
    case.run()
    assert case.content() == [("a", "", None), ("b", "", None)]


def test_rows_of_no_partition_are_divided_by_the_key_generator(tmp_path: Path) -> None:
    case = Case(tmp_path).put("0.parquet", rows("a", "b", part=pa.array(["p", "q"])))
    with pytest.raises(KeyFieldError, match="key generator puts them into 'part=p'"):
        case.run()
    case.run(**FULL)
    assert case.content() == [("a", "part=p", "p"), ("b", "part=q", "q")]


def test_folders_whose_columns_are_in_the_files(tmp_path: Path) -> None:
    case = Case(tmp_path).put("p/0.parquet", rows("a", part=pa.array(["p"]))).put("q/0.parquet", rows("c", part=["q"]))
    case.spec["hive_style"] = False
    case.run()
    assert case.content() == [("a", "p", "p"), ("c", "q", "q")]


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("mode", [{}, FULL])
def test_encoded_folders(tmp_path: Path, decoded: bool, mode: dict[str, str]) -> None:
    case = Case(tmp_path).put("part=1%3A2/0.parquet", rows("a"))
    translator = {"hoodie.bootstrap.partitionpath.translator.class": "x.DecodedBootstrapPartitionPathTranslator"}
    case.spec["url_encode"] = not decoded
    with pytest.raises(KeyFieldError, match="would be in partition"):  # as updates would have it
        case.run(**mode, **({} if decoded else translator))
    assert not case.table.timeline.instants
    case.run(**mode, **(translator if decoded else {}))
    assert case.content() == [("a", "part=1:2" if decoded else "part=1%3A2", "1:2")]


def test_a_null_partition(tmp_path: Path) -> None:
    case = Case(tmp_path).put("part=__HIVE_DEFAULT_PARTITION__/0.parquet", rows("a"))
    case.run()
    assert case.content() == [("a", "part=__HIVE_DEFAULT_PARTITION__", None)]


@pytest.mark.parametrize("files", ["orc", "parquet"])
def test_skeletons_have_the_format_of_the_table_and_of_the_source(tmp_path: Path, files: str) -> None:
    """Hudi reads both in one; rows that are written in full have the table's."""
    write, other = (orc.write_table, "PARQUET") if files == "orc" else (pq.write_table, "ORC")
    case = Case(tmp_path).put(f"part=p/0.{files}", rows("a"), write)
    case.spec["base_format"] = BaseFormat[other]
    with pytest.raises(UnsupportedError, match=f"base files are {other} .* and the files of .* are {files.upper()}"):
        case.run()
    case.run(**FULL)
    assert case.content() == [("a", "part=p", "p")]
    assert [file for file in case.folder.rglob(f"*.{other.lower()}") if ".hoodie" not in file.parts]


def test_rows_stay_in_files_of_one_format(tmp_path: Path) -> None:
    case = Case(tmp_path).put("part=p/0.orc", rows("a"), orc.write_table).put("part=q/0.parquet", rows("c"))
    with pytest.raises(UnsupportedError, match=r"part=q/0\.parquet is PARQUET, and .*part=p/0\.orc is ORC"):
        case.run()
    assert not case.folder.exists()
    case.spec["base_format"] = BaseFormat.ORC
    case.run(**{SELECTOR: "BootstrapRegexModeSelector", REGEX: "part=p"})
    assert case.content() == [("a", "part=p", "p"), ("c", "part=q", "q")]
    assert {BaseFileName.parse(file.name).instant_time for file in case.folder.rglob("*.orc")} == {
        METADATA_BOOTSTRAP,
        FULL_BOOTSTRAP,
    }


UTC = timezone.utc
COUNT = 30_000


def of_orc(hours: int, zone: timezone | None) -> pa.Table:
    """Rows of types that ORC has its own way with. Times are so many hours later than those of noon and midnight."""
    later, kind = timedelta(hours=hours), pa.timestamp("us", "UTC" if zone else None)
    noon, midnight = (datetime(year, 7, 1, hour, 0, 0, 1, zone) + later for year, hour in ((2024, 12), (1960, 0)))
    return pa.table(
        {
            "id": [f"k{at:05}" for at in range(COUNT)],
            "ts": pa.array([1] * COUNT, pa.int64()),
            "at": pa.array([noon + timedelta(microseconds=at) for at in range(COUNT)], kind),
            "times": pa.array([[{"at": midnight}, None]] * COUNT, pa.list_(pa.struct([("at", kind)]))),
            "day": pa.array([date(1, 1, 1)] * COUNT),
            "amount": pa.array([Decimal(at) / 100 for at in range(COUNT)], pa.decimal128(20, 2)),
            "small": pa.array([None, *[at % 100 for at in range(1, COUNT)]], pa.int8()),
        }
    )


def in_zone(zone: str, rows: pa.Table, path: str) -> None:
    """An ORC file of several stripes, which pyarrow takes for one of GMT, and whose stripes then name another zone."""
    orc.write_table(rows, path, stripe_size=64 << 10, batch_size=1024)
    data = Path(path).read_bytes()
    assert data.count(b"\x1a\x03GMT") > 2
    Path(path).write_bytes(data.replace(b"\x1a\x03GMT", b"\x1a\x03" + zone.encode()))


@pytest.mark.parametrize(("zone", "hours"), [("GMT", 0), ("EST", 5)])
def test_skeletons_of_orc_files_of_several_stripes(tmp_path: Path, zone: str, hours: int) -> None:
    """Rows are those of the source in its order, with moments by the zone that its stripes name."""
    case = Case(tmp_path).put("part=p/0.orc", of_orc(0, None), partial(in_zone, zone))
    expected = of_orc(hours, UTC)
    case.spec["base_format"] = BaseFormat.ORC
    before = case.source_files()
    (result,) = case.run(**(INDEXED if hours else {}))
    assert case.source_files() == before
    found = read(case.table, ReadRequest()).to_arrow()
    assert found["_hoodie_record_key"].equals(found["id"])
    kept = found.select(expected.schema.names)
    assert kept.equals(expected.cast(kept.schema))
    (stat,) = result.metadata.stats
    storage = case.table.storage
    assert (stat.num_inserts, stat.path.rpartition(".")[2]) == (COUNT, "orc")
    footer = read_footer(storage, stat.path)
    skeleton = orc.ORCFile(storage.local_path(stat.path))
    assert tuple(skeleton.schema.names) == META_FIELDS
    assert json.loads(footer.entries["orc.avro.schema"])["name"] == "HoodieRecordKey"
    assert (footer.num_rows, footer.min_key, footer.max_key) == (COUNT, "k00000", "k29999")
    assert footer.bloom is not None
    assert fsck(case.table, deep=True) == []
    assert bool(case.table.config.metadata_partitions) == bool(hours)
    row = expected.slice(7, 1).append_column("part", pa.array(["p"]))
    LocalWriter(case.table).upsert(row.set_column(row.schema.get_field_index("ts"), "ts", pa.array([2], pa.int64())))
    after = read(case.table, ReadRequest()).to_arrow().sort_by("id").select(expected.schema.names)
    assert after["ts"].to_pylist() == [1] * 7 + [2] + [1] * (COUNT - 8)
    assert after.drop_columns(["ts"]).equals(kept.drop_columns(["ts"]))
    assert fsck(case.table, deep=True) == []


def test_times_that_are_not_read_from_orc_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    far = pa.array([datetime(1500, 1, 1)], pa.timestamp("us"))
    case = Case(tmp_path).put("part=p/0.orc", rows("a", at=far), orc.write_table)
    with pytest.raises(UnsupportedError, match=r"part=p/0\.orc, column at: timestamps before 1677"):
        case.run()
    zoned = pa.array(
        [[{"t": datetime(2024, 1, 1, tzinfo=UTC)}]], pa.list_(pa.struct([("t", pa.timestamp("us", "UTC"))]))
    )
    case.put("part=p/0.orc", rows("a", at=zoned), orc.write_table)
    with pytest.raises(
        UnsupportedError, match="column at is timestamp with local time zone, which JVM Hudi can't read"
    ):
        case.run()
    assert not case.folder.exists()
    case.run(**FULL)
    assert read(case.table, ReadRequest()).to_arrow()["at"].to_pylist() == zoned.to_pylist()


def test_times_in_orc_files_that_are_finer_than_a_tables_are_an_error(tmp_path: Path) -> None:
    case = Case(tmp_path).put("part=p/0.orc", rows("a", at=pa.array([1_001], pa.timestamp("ns"))), orc.write_table)
    case.spec["base_format"] = BaseFormat.ORC
    with pytest.raises(UnsupportedError, match=r"0\.orc, column at: .* would lose data: 1001"):
        case.run(**FULL)
    case.run()
    with pytest.raises(UnsupportedError, match=r"0\.orc, column at: .* would lose data: 1001"):
        case.content()


def test_files_without_rows(tmp_path: Path) -> None:
    case = Case(tmp_path).put("part=p/0.parquet", rows("a").slice(1)).put("part=q/0.parquet", rows("c"))
    case.run()
    assert case.content() == [("c", "part=q", "q")]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_files_above_the_deepest_folders_are_named(case: Case) -> None:
    case.put("0.parquet", rows("x")).put("part=p/more.csv", rows("y"))
    with pytest.raises(InputError, match=r"2 files above .* 0\.parquet, part=p/more\.csv\. Hudi leaves them out"):
        case.run()
    with pytest.warns(LeftOutWarning, match=r"0\.parquet, part=p/more\.csv: they are not in the table"):
        case.run(**{"skep.bootstrap.leave_out": "true"})
    assert case.content() == WHOLE


def test_hidden_files_are_not_of_the_source(case: Case) -> None:
    case.put("_SUCCESS", rows()).put("part=p/.0.parquet.crc", rows()).put("_temporary/0/0.parquet", rows("x"))
    case.run()
    assert case.content() == WHOLE


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (rows("d").set_column(1, "ts", pa.array(["1"])), "column ts is string in .*, and bigint in"),
        (rows("d", more=pa.array([1])), "column more is bigint in .*, and missing in"),
        (rows("d").select(["id"]), "column ts is missing in .*, and bigint in"),
        (rows("d", _hoodie_record_key=pa.array(["x"])), "_hoodie_record_key"),
    ],
)
@pytest.mark.parametrize("mode", [{}, FULL])
def test_files_of_one_source_have_the_same_columns(
    case: Case, table: pa.Table, match: str, mode: dict[str, str]
) -> None:
    case.put("part=r/0.parquet", table)
    with pytest.raises(SchemaError, match=match):
        case.run(**mode)
    assert not case.folder.exists()


def test_the_order_of_columns_may_differ(case: Case) -> None:
    case.put("part=r/0.parquet", rows("d").select(["ts", "id"]))
    case.run()
    assert case.content() == [*WHOLE, ("d", "part=r", "r")]


@pytest.mark.parametrize(
    ("column", "kind", "wide"),
    [
        (pa.array([1_000], pa.timestamp("ns", "UTC")), "Timestamp.*nanoseconds", False),
        (pa.array([1_000], pa.timestamp("ns")), "INT96", True),
        (pa.array([[{"b": 1_000}]], pa.list_(pa.struct([("b", pa.timestamp("ns"))]))), "INT96", True),
        (pa.array([1], pa.time64("us")), "Time", False),
        (pa.array([1.5], pa.float16()), "Float16", False),
    ],
)
def test_what_jvm_hudi_can_not_read_is_written_in_full(tmp_path: Path, column: pa.Array, kind: str, wide: bool) -> None:
    write = partial(pq.write_table, use_deprecated_int96_timestamps=wide)
    case = Case(tmp_path).put("part=p/0.parquet", rows("a", at=column), write)
    with pytest.raises(UnsupportedError, match=f"column at.* is {kind}.*, which JVM Hudi can't read"):
        case.run()
    case.run(**FULL)
    stored = read(case.table, ReadRequest()).to_arrow()["at"]
    if kind != "INT96":
        assert stored[0].as_py() == column.cast(stored.type)[0].as_py()
    else:  # a moment, as Spark has it
        moment = datetime(1970, 1, 1, 0, 0, 0, 1, timezone.utc)
        assert stored[0].as_py() == (moment if pa.types.is_timestamp(stored.type) else [{"b": moment}])


def test_a_null_key_is_refused_and_leaves_nothing(case: Case) -> None:
    case.put("part=q/1.parquet", pa.table({"id": pa.array([None], pa.string()), "ts": pa.array([1], pa.int64())}))
    with pytest.raises(KeyFieldError, match="record key column id is null"):
        case.run()
    assert not case.table.timeline.instants
    assert not list(case.folder.rglob("*.parquet"))


def test_a_column_that_differs_from_a_folders_in_case_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path).put("part=p/0.parquet", rows("a", PART=pa.array(["p"])))
    with pytest.raises(SchemaError, match="folders name column part, and files have PART"):
        case.run()


def test_a_file_that_is_deleted_meanwhile(case: Case) -> None:
    source = case.read_source()
    spec = TableSpec(name="t", schema=to_arrow(source.columns), ordering="ts", **case.spec)
    create_table(LocalStorage(str(case.folder)), spec)
    (case.source / "part=q" / "0.parquet").unlink()
    with pytest.raises(StorageError, match="was in the source when it was listed"):
        LocalWriter(HudiTable.open(str(case.folder), case.options())).bootstrap(source)
    assert case.content() == []
    assert not list(case.folder.rglob("*.parquet"))


def test_a_file_that_is_no_parquet(case: Case) -> None:
    (case.source / "part=q" / "1.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(CorruptFileError, match=r"part=q/1\.parquet"):
        case.run()


def test_all_of_hudis_options_are_known() -> None:
    """Of 0.15 and 1.x, and those of key generators from before."""
    names = [
        *("base.path", "data.queries.only", "full.input.provider", "index.class", "index.type", "index.enable"),
        *("mode.selector", "mode.selector.regex", "mode.selector.regex.mode", "parallelism"),
        *("partitionpath.translator.class", "keygen.class", "keygen.type"),
    ]
    assert [name for name in names if REGISTRY.find(f"hoodie.bootstrap.{name}") is None] == []
    with pytest.warns(IneffectiveOptionWarning, match=r"data\.queries\.only has no effect"):
        Options({"hoodie.bootstrap.data.queries.only": "true"}).check()


@pytest.mark.parametrize(
    ("spec", "options", "match"),
    [
        ({"record_key": ()}, {}, "has no record key"),
        ({"hive_style": False}, {}, "key generator puts them into 'p'"),
        ({"partition_by": ()}, {}, "key generator puts them into ''"),
        ({"properties": {"hoodie.populate.meta.fields": "false"}}, {}, "hoodie.populate.meta.fields=false"),
        ({}, {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}, "index computes the file group"),
        ({}, {SELECTOR: "my.Selector"}, "'my.Selector' is not one of MetadataOnlyBootstrapModeSelector"),
        ({}, {"hoodie.bootstrap.partitionpath.translator.class": "my.Own"}, "'my.Own' is not one of Identity"),
        ({}, {"hoodie.bootstrap.index.enable": "false"}, "nobody finds the rows"),
        ({}, {"hoodie.bootstrap.index.class": "x.NoOpBootstrapIndex"}, "is not one of HFileBootstrapIndex"),
        ({}, {"hoodie.bootstrap.full.input.provider": "my.Own"}, "is not one of SparkParquet"),
    ],
)
def test_what_a_table_of_skeletons_can_not_be(case: Case, spec: Any, options: dict[str, str], match: str) -> None:
    case.spec |= spec
    with pytest.raises(SkepError, match=match):
        case.run(**options)
    assert not list(case.folder.rglob("*.parquet"))


def test_a_bootstrap_is_the_first_write(case: Case) -> None:
    case.run()
    with pytest.raises(InputError, match="has commit 00000000000001, and a bootstrap is the first write"):
        case.run()
    LocalWriter(case.table).upsert(pa.table({"id": ["a"], "ts": [2], "part": ["p"]}))
    with pytest.raises(InputError, match="is the first write"):
        case.run()
    assert case.content() == WHOLE


def test_table_and_source_do_not_lie_in_each_other(case: Case) -> None:
    case.folder = case.source / "_table"
    with pytest.raises(InputError, match="lie in each other"):
        case.run()


def test_a_table_is_no_source(case: Case) -> None:
    case.run()
    other = Case(case.folder.parent)
    other.source, other.folder = case.folder, case.folder.parent / "other"
    with pytest.raises(InputError, match="is a Hudi table"):
        other.run()


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is nothing to bootstrap"):
        Case(tmp_path).run()
    with pytest.raises(OptionError, match=r"hoodie\.bootstrap\.base\.path is not set"):
        open_source(Options())


# -- undone ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 9])
def test_a_rolled_back_bootstrap_leaves_no_index_and_can_be_repeated(case: Case, version: int) -> None:
    case.spec["version"] = version
    case.run(**{"hoodie.metadata.enable": "true"})
    roll_back_instant(case.table, METADATA_BOOTSTRAP)
    assert case.content() == []
    assert not list(case.folder.rglob("*.hfile")) or not list((case.folder / INDEX).rglob("*.hfile"))
    case.run(**{"hoodie.metadata.enable": "true"})
    assert case.content() == WHOLE


def test_one_that_was_ended_between_its_commits_goes_on(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {SELECTOR: "BootstrapRegexModeSelector", REGEX: "part=p"}
    with monkeypatch.context() as patched:
        patched.setattr(Bootstrap, "rows", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            case.run(**options)
    with pytest.warns(PartlyBootstrappedWarning, match="before 1 of its folders"):
        assert case.content() == WHOLE[:2]
    with pytest.raises(SkepError, match="its bootstrap was ended"):
        LocalWriter(case.table).upsert(pa.table({"id": ["a"], "ts": [2], "part": ["p"]}))
    with pytest.raises(SkepError, match="differs in 2 files"):
        case.run(**{**options, REGEX: "part=q"})
    (result,) = case.run(**options)
    assert result.instant.requested_time == FULL_BOOTSTRAP
    assert case.content() == WHOLE
    LocalWriter(case.table).upsert(pa.table({"id": ["a"], "ts": [2], "part": ["p"]}))


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_another_process_bootstraps_the_table(case: Case) -> None:
    source = case.read_source()
    spec = TableSpec(name="t", schema=to_arrow(source.columns), ordering="ts", **case.spec)
    table = create_table(LocalStorage(str(case.folder)), spec)
    with Transaction.begin(table, Action.COMMIT, OfSkeletons({})) as other:
        with pytest.raises(CommitConflictError, match="another writer has instant 00000000000001"):
            case.run()
        other.abort(None)
    case.run()
    assert case.content() == WHOLE


def test_a_write_to_a_table_whose_bootstrap_died_deletes_its_index(case: Case) -> None:
    source = case.read_source()
    spec = TableSpec(name="t", schema=to_arrow(source.columns), ordering="ts", **case.spec)
    create_table(LocalStorage(str(case.folder)), spec)
    storage = KilledAtCompletion(str(case.folder))
    with pytest.raises(SkepError, match="killed"):
        LocalWriter(HudiTable.open(storage, case.options())).bootstrap(source)
    assert len(list((case.folder / INDEX).rglob("*.hfile"))) == 2
    assert case.content() == []
    LocalWriter(case.table).upsert(pa.table({"id": ["z"], "ts": [2], "part": ["p"]}))
    assert case.content() == [("z", "part=p", "p")]
    assert not list((case.folder / INDEX).rglob("*.hfile"))
    with pytest.raises(InputError, match="is the first write"):
        case.run()


class KilledAtCompletion(LocalStorage):
    """Nothing has an effect from the completed file on."""

    dead = False

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith("/00000000000001.commit"):
            self.dead = True
        self._live()
        super().create_exclusive(path, data, durable=durable)

    def delete(self, path: str, *, durable: bool = True) -> None:
        self._live()
        super().delete(path, durable=durable)

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        self._live()
        super().delete_many(paths, durable=durable)

    def delete_folder(self, path: str, *, durable: bool = True) -> None:
        self._live()
        super().delete_folder(path, durable=durable)

    def _live(self) -> None:
        if self.dead:
            raise StorageError("killed")


def test_the_key_columns_alone_are_read(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_format.basefile import OpenBaseFile

    wanted, whole = [], OpenBaseFile.rows

    def noted(self: OpenBaseFile, **how: Any) -> Any:
        wanted.append(how["schema"].names())
        return whole(self, **how)

    source = case.read_source()
    assert {file.key_bytes < file.size_bytes / 4 for folder in source.folders for file in folder.files} == {True}
    monkeypatch.setattr(OpenBaseFile, "rows", noted)
    case.run()
    assert wanted == [("id",), ("id",)]
