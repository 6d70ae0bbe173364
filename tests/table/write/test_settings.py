"""What options define of a table: settings of a new one, contradictions to one that is there, and keys of one's own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skep_format.errors import KeyFieldError, OptionError, TableMismatchError, UnsupportedError
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config import MergeMode
from skep_table import plug_ins
from skep_table.commit.create import create_table
from skep_table.keys import generator
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.planning.settings import PARTITION_FIELDS, check_settings, spec_of

WRITE = "hoodie.datasource.write."
MODE = "hoodie.write.record.merge.mode"
STRATEGY = "hoodie.write.record.merge.strategy.id"
KEYGEN = "org.apache.hudi.keygen."
MODELS = "org.apache.hudi.common.model."
EVENT = MergeMode.EVENT_TIME_ORDERING
PAYLOAD = f"{WRITE}payload.class"
of_version_6 = pytest.mark.parametrize("table_version", [6], indirect=True)
UNORDERED = {f"{WRITE}precombine.field": ""}
ROWS = pa.table({"id": ["a", "b"], "part": ["p", "q"], "ts": [1, 2], "at": [0, 86_400_000], "v": [1, 2]})
BASE = {
    f"{WRITE}recordkey.field": "id",
    f"{WRITE}partitionpath.field": "part",
    f"{WRITE}precombine.field": "ts",
}


def make(path: Path, **options: Any) -> HudiTable:
    schema = from_arrow(ROWS.schema)
    return create_table(LocalStorage(str(path)), spec_of(Options(options), "t", schema))


def write(table: HudiTable, rows: pa.Table = ROWS, **options: Any) -> None:
    LocalWriter(table.with_context(options=Options(options))).upsert(rows)


# -- contradictions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "wrong", "right"),
    [
        ("hoodie.table.name", "other", "t"),
        (f"{WRITE}table.type", "MERGE_ON_READ", "COPY_ON_WRITE"),
        (f"{WRITE}recordkey.field", "id,v", "id"),
        (f"{WRITE}partitionpath.field", "v", "part"),
        (f"{WRITE}precombine.field", "v", "ts"),
        (f"{WRITE}hive_style_partitioning", "true", "false"),
        (f"{WRITE}partitionpath.urlencode", "true", "false"),
        (f"{WRITE}keygenerator.type", "COMPLEX", "SIMPLE"),
        (
            f"{WRITE}keygenerator.class",
            "org.apache.hudi.keygen.ComplexKeyGenerator",
            "org.apache.hudi.keygen.SimpleAvroKeyGenerator",
        ),
        (f"{WRITE}payload.class", MODELS + "EventTimeAvroPayload", MODELS + "DefaultHoodieRecordPayload"),
        ("hoodie.compaction.payload.class", MODELS + "EventTimeAvroPayload", MODELS + "DefaultHoodieRecordPayload"),
    ],
)
def test_options_that_contradict_the_table_are_refused_by_name(
    tmp_path: Path, option: str, wrong: str, right: str
) -> None:
    table = make(tmp_path / "t", **BASE)
    write(table, **{option: right})
    with pytest.raises(TableMismatchError) as refused:
        write(table, **{option: wrong})
    assert refused.value.fields["option"] == Options({option: ""}).__iter__().__next__()
    assert len(table.reload().timeline.instants) == 1


TIMEBASED = {
    f"{WRITE}partitionpath.field": "at",
    f"{WRITE}keygenerator.type": "TIMESTAMP",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy",
}
TYPED = {f"{WRITE}partitionpath.field": "part:simple,at:simple"}


@pytest.mark.parametrize(
    ("made_with", "option", "wrong", "right"),
    [
        (TIMEBASED, "hoodie.keygen.timebased.output.dateformat", "yyyy-MM", "yyyy"),
        (TIMEBASED, "hoodie.deltastreamer.keygen.timebased.output.dateformat", "yyyy-MM", "yyyy"),
        (TIMEBASED, "hoodie.keygen.timebased.output.timezone", "Asia/Tokyo", ""),
        (TYPED, f"{WRITE}partitionpath.field", "part:simple,at:timestamp", "part:simple,at:SIMPLE"),
        ({}, f"{WRITE}partitionpath.field", "part:timestamp", "part:simple"),
        (
            {f"{WRITE}keygenerator.consistent.logical.timestamp.enabled": "false"},
            f"{WRITE}keygenerator.consistent.logical.timestamp.enabled",
            "true",
            "false",
        ),
        ({"hoodie.database.name": "shop"}, "hoodie.database.name", "sales", "shop"),
    ],
)
def test_ways_to_keys_and_paths_that_contradict_the_table_are_refused(
    tmp_path: Path, made_with: dict[str, str], option: str, wrong: str, right: str
) -> None:
    table = make(tmp_path / "t", **{**BASE, **made_with})
    write(table, **{option: right})
    with pytest.raises(TableMismatchError) as refused:
        write(table, **{option: wrong})
    assert refused.value.fields["option"] == option
    assert len(table.reload().timeline.instants) == 1


def test_partitions_are_not_dropped_from_another_table_than_the_options_describe(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **BASE)
    write(table)
    writer = LocalWriter(table.with_context(options=Options({f"{WRITE}partitionpath.field": "v"})))
    with pytest.raises(TableMismatchError, match=r"partitionpath\.field part, not v"):
        writer.delete_partitions(["p"])
    assert len(table.reload().timeline.instants) == 1


def test_what_is_not_given_is_the_tables_own(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **BASE, **{f"{WRITE}hive_style_partitioning": True})
    write(table)
    assert table.reload().view().partitions() == ["part=p", "part=q"]


def test_the_plural_of_the_partition_option_is_that_option() -> None:
    options = Options({f"{WRITE}partitionpath.fields": "part"})
    options.check()
    assert options.value(PARTITION_FIELDS) == ("part",)


# -- merge settings ----------------------------------------------------------------------------------------------------


@of_version_6
@pytest.mark.parametrize(
    ("given_options", "payload", "mode"),
    [
        ({}, "DefaultHoodieRecordPayload", EVENT),
        ({MODE: "EVENT_TIME_ORDERING"}, "DefaultHoodieRecordPayload", EVENT),
        ({STRATEGY: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}, "DefaultHoodieRecordPayload", EVENT),
        (UNORDERED | {MODE: "COMMIT_TIME_ORDERING"}, "OverwriteWithLatestAvroPayload", MergeMode.COMMIT_TIME_ORDERING),
        ({MODE: "CUSTOM", PAYLOAD: MODELS + "PartialUpdateAvroPayload"}, "PartialUpdateAvroPayload", MergeMode.CUSTOM),
    ],
)
def test_merge_modes_are_payload_classes_in_version_6(
    tmp_path: Path, given_options: dict[str, str], payload: str, mode: MergeMode
) -> None:
    config = make(tmp_path / "t", **{**BASE, **given_options}).config
    assert (config.payload_class or "").rpartition(".")[2] == payload
    assert config.merge_mode is mode


@of_version_6
@pytest.mark.parametrize(
    ("given_options", "what"),
    [
        ({MODE: "COMMIT_TIME_ORDERING"}, "readers of version 6 tables disagree"),
        (UNORDERED | {MODE: "EVENT_TIME_ORDERING"}, "needs .*precombine.field"),
        ({MODE: "CUSTOM"}, "needs .*payload.class"),
        ({MODE: "EVENT_TIME_ORDERING", PAYLOAD: MODELS + "OverwriteWithLatestAvroPayload"}, "contradict"),
        ({MODE: "CUSTOM", STRATEGY: "ce9acb64-bde0-424c-9b91-f6ebba25356d"}, "contradict"),
        ({STRATEGY: "nobody-knows"}, "is none of"),
        ({"hoodie.write.record.merge.custom.implementation.classes": "a.B"}, "can't hold merger classes"),
        ({f"{WRITE}precombine.field": "ts,v"}, "tables of version 6 hold one column"),
        ({"hoodie.table.ordering.fields": "ts,v"}, "given twice|hold one column"),
    ],
)
def test_merge_settings_that_version_6_can_not_hold_are_refused(
    tmp_path: Path, given_options: dict[str, str], what: str
) -> None:
    with pytest.raises(OptionError, match=what):
        make(tmp_path / "t", **{**BASE, **given_options})
    assert not (tmp_path / "t").exists()


V9 = {"hoodie.write.table.version": "9"}
DELETE_FIELD, DELETE_MARKER = "hoodie.payload.delete.field", "hoodie.payload.delete.marker"
PARTIAL = MODELS + "PartialUpdateAvroPayload"


@pytest.mark.parametrize(
    ("made_with", "same", "option", "wrong"),
    [
        ({}, {PAYLOAD: MODELS + "DefaultHoodieRecordPayload", MODE: "EVENT_TIME_ORDERING"}, PAYLOAD, PARTIAL),
        ({}, {STRATEGY: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}, MODE, "COMMIT_TIME_ORDERING"),
        ({PAYLOAD: PARTIAL}, {PAYLOAD: PARTIAL, MODE: "CUSTOM"}, MODE, "COMMIT_TIME_ORDERING"),
        ({PAYLOAD: PARTIAL}, {PAYLOAD: PARTIAL}, PAYLOAD, MODELS + "DefaultHoodieRecordPayload"),
        ({PAYLOAD: PARTIAL}, {}, "hoodie.table.partial.update.mode", "FILL_UNAVAILABLE"),
        ({f"{WRITE}precombine.field": "ts,v"}, {}, f"{WRITE}precombine.field", "v,ts"),
        ({DELETE_FIELD: "part", DELETE_MARKER: "x"}, {DELETE_FIELD: "part"}, DELETE_FIELD, "id"),
        ({PAYLOAD: "com.example.Own"}, {}, PAYLOAD, PARTIAL),
    ],
)
def test_merge_settings_that_contradict_a_table_of_version_9_are_refused(
    tmp_path: Path, made_with: dict[str, str], same: dict[str, str], option: str, wrong: str
) -> None:
    table = make(tmp_path / "t", **{**BASE, **V9, **made_with})
    check_settings(table.config, "here", Options(same))
    with pytest.raises(TableMismatchError) as refused:
        check_settings(table.config, "here", Options({option: wrong}))
    assert refused.value.fields["option"] == option


def test_the_older_ordering_of_a_payload_is_its_own(tmp_path: Path) -> None:
    """`_event_seq` has file and position of MySQL's log as one text; tables of version 9 order by both columns."""
    mysql = {PAYLOAD: MODELS + "debezium.MySqlDebeziumAvroPayload", f"{WRITE}precombine.field": "_event_seq"}
    places = pa.table({"_event_bin_file": ["bin.1"], "_event_pos": [1], "_event_seq": ["1.1"], "id": ["a"]})
    spec = spec_of(Options({f"{WRITE}recordkey.field": "id", **V9, **mysql}), "t", from_arrow(places.schema))
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    assert table.config.ordering_fields == ("_event_bin_file", "_event_pos")
    check_settings(table.config, "here", Options(mysql))


@of_version_6
def test_a_payload_holds_where_the_table_names_none(tmp_path: Path) -> None:
    """As in copy-on-write tables that Hudi 0.15 makes."""
    table = make(tmp_path / "t", **BASE)
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    kept = [line for line in properties.read_text().splitlines() if "payload" not in line and "checksum" not in line]
    properties.write_text("\n".join(kept) + "\n")
    table = HudiTable.open(str(tmp_path / "t"))
    write(table)
    partial = {f"{WRITE}payload.class": MODELS + "PartialUpdateAvroPayload"}
    write(table, ROWS.slice(0, 1).set_column(4, "v", pa.array([None], pa.int64())), **partial)
    rows = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == {"a": 1, "b": 2}


# -- key generators ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "partitions", "generator"),
    [
        ("id", "", "NON_PARTITION"),
        ("id,v", "", "NON_PARTITION"),
        ("id", "part", "SIMPLE"),
        ("id,v", "part", "COMPLEX"),
        ("id", "part,v", "COMPLEX"),
        ("", "part", "SIMPLE"),
        ("id", "part:simple", "CUSTOM"),
    ],
)
def test_key_generators_are_inferred(tmp_path: Path, keys: str, partitions: str, generator: str) -> None:
    options = {f"{WRITE}recordkey.field": keys, f"{WRITE}partitionpath.field": partitions}
    assert make(tmp_path / "t", **options).config.key_generator == generator


TIMES = "hoodie.keygen.timebased."


@pytest.mark.parametrize(
    ("given_options", "paths"),
    [
        ({f"{WRITE}partitionpath.field": "at", f"{WRITE}keygenerator.type": "TIMESTAMP"}, ["1970/01/01", "1970/01/02"]),
        ({f"{WRITE}partitionpath.field": "part:simple,at:timestamp"}, ["p/1970/01/01", "q/1970/01/02"]),
    ],
)
def test_timestamps_make_partitions(tmp_path: Path, given_options: dict[str, str], paths: list[str]) -> None:
    times = {f"{TIMES}timestamp.type": "EPOCHMILLISECONDS", f"{TIMES}output.dateformat": "yyyy/MM/dd"}
    table = make(tmp_path / "t", **{**BASE, **times, **given_options})
    write(table)
    assert table.reload().view().partitions() == paths
    write(HudiTable.open(str(tmp_path / "t")))  # the table remembers how
    assert read(table.reload(), ReadRequest()).count() == 2


class ByFirstLetter:
    """A plug-in: the key in capitals, below a folder of its first letter."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._prefix = properties.get("mine.prefix", "")

    def record_keys(self, rows: pa.Table) -> pa.Array:
        return pc.utf8_upper(rows.column("id").combine_chunks())

    def partition_paths(self, rows: pa.Table) -> pa.Array:
        letter = pc.utf8_slice_codeunits(rows.column("id").combine_chunks(), 0, 1)
        return pc.binary_join_element_wise(self._prefix, letter, "")


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("com.example.ByFirstLetter", "x:y", generator.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: ByFirstLetter)
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry] if name == entry.name else [])
    generator._find.cache_clear()


@pytest.mark.usefixtures("plugged")
def test_a_key_generator_of_ones_own(tmp_path: Path) -> None:
    given_options = {**BASE, f"{WRITE}keygenerator.class": "com.example.ByFirstLetter"}
    table = make(tmp_path / "t", **given_options)
    write(table, **{"mine.prefix": "by-"})
    table = HudiTable.open(str(tmp_path / "t"))
    write(table, **{"mine.prefix": "by-"})
    rows = read(table.reload(), ReadRequest()).to_arrow()
    assert sorted(rows["_hoodie_record_key"].to_pylist()) == ["A", "B"]
    assert table.reload().view().partitions() == ["by-a", "by-b"]
    with pytest.raises(TableMismatchError, match=r"keygenerator\.class"):
        write(table, **{f"{WRITE}keygenerator.type": "SIMPLE"})
    with pytest.raises(KeyFieldError, match="null or empty in 1 row"):
        write(table, ROWS.slice(0, 1).set_column(0, "id", pa.array([""])))
    with pytest.raises(KeyFieldError, match="can't be a folder"):
        write(table, **{"mine.prefix": "../"})
    generator._find.cache_clear()


def test_a_key_generator_that_is_not_there_is_refused(tmp_path: Path) -> None:
    generator._find.cache_clear()
    with pytest.raises(UnsupportedError, match=r"com\.example\.Nope is not supported"):
        make(tmp_path / "t", **{**BASE, f"{WRITE}keygenerator.class": "com.example.Nope"})


def test_nothing_warns_about_settings_that_are_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options({**BASE, MODE: "CUSTOM", STRATEGY: "x", f"{WRITE}keygenerator.type": "SIMPLE"}).check()
