"""A table's settings: typed from every release's properties, made, changed, and found after interrupted updates."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from pathlib import Path

import pytest

from skep_format.errors import (
    CorruptFileError,
    FormatError,
    NotATableError,
    StorageError,
    TableExistsError,
    TableVersionError,
)
from skep_format.properties import format_properties, parse_properties
from skep_format.storage import LocalStorage
from skep_format.table_config import (
    CHECKSUM,
    PROPERTIES_PATH,
    MergeMode,
    PartialUpdateMode,
    TableConfig,
    TableType,
    TimelineZone,
    create_table_config,
    load_table_config,
    table_checksum,
    update_table_config,
    with_checksum,
)
from skep_format.table_config.keys import BACKUP_PATH, DEFAULT_PAYLOAD
from skep_format.versions import format_of


class NoWait:
    """A clock on which waiting takes no time, and is counted."""

    slept = 0

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += 1


CONFIG = TableConfig(
    name="trips",
    type=TableType.MERGE_ON_READ,
    record_key_fields=("id",),
    partition_fields=("city",),
    ordering_fields=("ts",),
    key_generator="SIMPLE",
    payload_class=DEFAULT_PAYLOAD,
    merge_mode=MergeMode.EVENT_TIME_ORDERING,
    merge_strategy_id="eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    timezone=TimelineZone.UTC,
)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


def put(storage: LocalStorage, properties: dict[str, str], path: str = PROPERTIES_PATH) -> None:
    storage.replace_atomic(path, format_properties(properties))


def test_checksums_of_real_tables() -> None:
    assert table_checksum("mor", None) == "2110273562"
    assert table_checksum("cow", "") == "121430431"


def test_golden_properties_keep_their_text(golden: Path) -> None:
    for folder in sorted(golden.glob("*/*/table")):
        config = load_table_config(LocalStorage(str(folder)))
        assert config.to_properties() == dict(config.raw), folder
        made_again = dataclasses.replace(config, raw={})
        assert TableConfig.parse(made_again.to_properties()) == made_again, folder


@pytest.mark.parametrize("version", [6, 8, 9])
def test_what_is_made_is_loaded(storage: LocalStorage, version: int) -> None:
    payload = None if version == 9 else CONFIG.payload_class
    config = dataclasses.replace(CONFIG, version=version, payload_class=payload)
    made = create_table_config(storage, config)
    assert made == config
    assert load_table_config(storage) == config
    with pytest.raises(TableExistsError):
        create_table_config(storage, config)


def test_the_keys_of_version_6_are_those_of_hudi_0_15() -> None:
    """Format guide 1.3: properties that came later are not written."""
    assert CONFIG.to_properties() == {
        "hoodie.table.name": "trips",
        "hoodie.database.name": "",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "city",
        "hoodie.table.precombine.field": "ts",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.populate.meta.fields": "true",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.checksum": table_checksum("trips", None),
    }


MINIMAL = {"hoodie.table.name": "t", "hoodie.table.version": "6"}
PAYLOAD = "org.apache.hudi.common.model."


@pytest.mark.parametrize(
    ("properties", "mode", "strategy"),
    [
        ({"hoodie.table.version": "6", "hoodie.table.precombine.field": "ts"}, "EVENT_TIME_ORDERING", "eeb8d96f"),
        ({"hoodie.table.version": "6"}, "COMMIT_TIME_ORDERING", "ce9acb64"),
        (
            {
                "hoodie.table.version": "6",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.precombine.field": "ts",
                "hoodie.compaction.payload.class": PAYLOAD + "OverwriteWithLatestAvroPayload",
                # the strategy that 0.15 writes has no meaning
                "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
            },
            "COMMIT_TIME_ORDERING",
            "ce9acb64",
        ),
        (
            {"hoodie.table.version": "6", "hoodie.compaction.payload.class": PAYLOAD + "EventTimeAvroPayload"},
            "EVENT_TIME_ORDERING",
            "eeb8d96f",
        ),
        (
            {"hoodie.table.version": "6", "hoodie.compaction.payload.class": PAYLOAD + "PartialUpdateAvroPayload"},
            "CUSTOM",
            "00000000",
        ),
        ({"hoodie.table.version": "8", "hoodie.record.merge.mode": "CUSTOM"}, "CUSTOM", "00000000"),
        ({"hoodie.table.version": "8", "hoodie.table.ordering.fields": "a,b"}, "EVENT_TIME_ORDERING", "eeb8d96f"),
        (
            {
                "hoodie.table.version": "8",
                "hoodie.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d",
                "hoodie.table.precombine.field": "ts",
            },
            "COMMIT_TIME_ORDERING",
            "ce9acb64",
        ),
        (
            {
                "hoodie.table.version": "9",
                "hoodie.record.merge.mode": "CUSTOM",
                "hoodie.record.merge.strategy.id": "1897ef5f-18bc-4557-939c-9d6a8afd1519",
            },
            "CUSTOM",
            "1897ef5f",
        ),
    ],
)
def test_merge_settings_of_each_version(properties: dict[str, str], mode: str, strategy: str) -> None:
    config = TableConfig.parse({"hoodie.table.name": "t", **properties})
    assert config.merge_mode.value == mode
    assert config.merge_strategy_id is not None
    assert config.merge_strategy_id.startswith(strategy)


def test_spellings_with_one_meaning() -> None:
    config = TableConfig.parse(
        {
            "hoodie.table.name": "t",
            "hoodie.table.version": "9",
            "hoodie.table.partition.fields": "city:SIMPLE, at:TIMESTAMP",
            "hoodie.table.keygenerator.type": "custom_avro",
            "hoodie.table.cdc.supplemental.logging.mode": "data_before",
            "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
            "hoodie.table.metadata.partitions": "column_stats,files",
        }
    )
    assert config.partition_fields == ("city", "at")
    assert config.key_generator == "CUSTOM"
    assert config.cdc_mode == "DATA_BEFORE"
    assert config.partial_update_mode is PartialUpdateMode.IGNORE_DEFAULTS
    assert config.metadata_partitions == ("column_stats", "files")
    assert config.timezone is TimelineZone.LOCAL  # Hudi's default where the property is missing


@pytest.mark.parametrize(
    ("key_generator_class", "kind"),
    [
        ("org.apache.hudi.keygen.ComplexAvroKeyGenerator", "COMPLEX"),
        ("org.apache.hudi.keygen.NonpartitionedKeyGenerator", "NON_PARTITION"),
        ("com.example.MyKeys", "USER_PROVIDED"),
    ],
)
def test_key_generators_by_class(key_generator_class: str, kind: str) -> None:
    properties = MINIMAL | {"hoodie.table.keygenerator.class": key_generator_class}
    config = TableConfig.parse(properties)
    assert config.key_generator == kind
    assert config.to_properties()["hoodie.table.keygenerator.class"] == key_generator_class


@pytest.mark.parametrize("version", [None, "0", "5"])
def test_older_versions_are_read_and_no_version_is_the_first(storage: LocalStorage, version: str | None) -> None:
    properties = {key: text for key, text in MINIMAL.items() if key != "hoodie.table.version"}
    put(storage, properties if version is None else properties | {"hoodie.table.version": version})
    config = load_table_config(storage)
    assert config.version == int(version or 0)
    assert not format_of(config).is_written


@pytest.mark.parametrize("newer", [".hoodie/timeline/x", ".hoodie/hoodie.properties.backup"])
def test_settings_that_lost_their_version_are_not_taken_for_old_ones(storage: LocalStorage, newer: str) -> None:
    put(storage, {key: text for key, text in MINIMAL.items() if key != "hoodie.table.version"})
    storage.create_exclusive(newer, format_properties(MINIMAL))
    if newer.endswith("backup"):
        assert load_table_config(storage).version == 6
        return
    with pytest.raises(CorruptFileError, match=r"it has no hoodie\.table\.version, and there is \.hoodie/timeline"):
        load_table_config(storage)


@pytest.mark.parametrize("version", ["0", "5"])
def test_the_layout_in_which_files_of_instants_are_renamed_is_read(version: str) -> None:
    config = TableConfig.parse(MINIMAL | {"hoodie.table.version": version, "hoodie.timeline.layout.version": "0"})
    assert format_of(config).timeline_layout(config).folder == ".hoodie"


@pytest.mark.parametrize("version", ["-1", "7", "10"])
def test_other_versions_are_refused_by_number(storage: LocalStorage, version: str) -> None:
    put(storage, MINIMAL | {"hoodie.table.version": version})
    with pytest.raises(TableVersionError, match=f"has version {version}") as caught:
        load_table_config(storage)
    assert caught.value.fields["found"] == int(version)


def test_a_version_with_another_layout_is_refused() -> None:
    with pytest.raises(TableVersionError, match="layout 1, not 2"):
        TableConfig.parse(MINIMAL | {"hoodie.timeline.layout.version": "2"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hoodie.table.version", "six"),
        ("hoodie.table.type", "COPY"),
        ("hoodie.populate.meta.fields", "perhaps"),
        ("hoodie.table.base.file.format", "CSV"),
        ("hoodie.table.timeline.timezone", "CET"),
    ],
)
def test_values_of_the_wrong_kind_name_their_key(key: str, text: str) -> None:
    with pytest.raises(FormatError, match=f"{key}={text}"):
        TableConfig.parse(MINIMAL | {key: text})


def test_what_is_no_table_names_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "part-0.parquet").touch()
    clock = NoWait()
    with pytest.raises(NotATableError, match=r"_delta_log/, part-0\.parquet") as caught:
        load_table_config(LocalStorage(str(tmp_path)), clock)
    assert "Delta" in str(caught.value)
    assert not clock.slept  # nothing to wait for
    with pytest.raises(NotATableError, match="found nothing"):
        load_table_config(LocalStorage(str(tmp_path / "nowhere")))


def test_a_partition_folder_points_to_the_table(golden: Path) -> None:
    with pytest.raises(NotATableError, match=r"1 level\(s\) up"):
        load_table_config(LocalStorage(str(golden / "0.15.0/cow_upsert/table/utrecht")))


def test_a_wrong_checksum_is_damage(storage: LocalStorage) -> None:
    put(storage, MINIMAL | {CHECKSUM: "1"})
    with pytest.raises(CorruptFileError, match="checksum is 1"):
        load_table_config(storage, NoWait())


@pytest.mark.parametrize("damage", ["missing", "wrong checksum", "empty"])
def test_the_backup_counts_while_an_update_is_interrupted(storage: LocalStorage, damage: str) -> None:
    put(storage, with_checksum(MINIMAL), BACKUP_PATH)
    if damage == "wrong checksum":
        put(storage, MINIMAL | {CHECKSUM: "1"})
    if damage == "empty":
        storage.replace_atomic(PROPERTIES_PATH, b"")
    assert load_table_config(storage).name == "t"
    changed = update_table_config(storage, {"hoodie.table.metadata.partitions": "files"})
    assert changed.metadata_partitions == ("files",)
    assert not storage.exists(BACKUP_PATH)
    assert load_table_config(storage) == changed


def test_a_file_that_is_just_being_replaced_is_waited_for(storage: LocalStorage) -> None:
    storage.replace_atomic(".hoodie/.keep", b"")

    class Writer(NoWait):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.slept == 2:
                put(storage, with_checksum(MINIMAL))

    assert load_table_config(storage, Writer()).name == "t"


def test_an_update_keeps_the_keys_and_order_of_others(storage: LocalStorage) -> None:
    before = {"x.unknown": "a:b", **MINIMAL, "hoodie.archivelog.folder": "history", "hoodie.z": ""}
    put(storage, before)
    update_table_config(storage, {"hoodie.database.name": "lake", "hoodie.z": None})
    after = parse_properties(storage.read(PROPERTIES_PATH))
    kept = [item for item in before.items() if item[0] != "hoodie.z"]
    assert list(after.items())[: len(kept)] == kept
    assert after["hoodie.table.checksum"] == table_checksum("t", "lake")
    assert "hoodie.z" not in after


def test_a_change_that_makes_no_table_is_refused_before_writing(storage: LocalStorage) -> None:
    put(storage, with_checksum(MINIMAL))
    with pytest.raises(TableVersionError):
        update_table_config(storage, {"hoodie.table.version": "99"})
    assert load_table_config(storage).version == 6


def test_an_update_that_dies_leaves_the_old_settings(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    put(storage, with_checksum(MINIMAL))

    def die(path: str, data: bytes) -> None:
        raise StorageError("missing", path=path)

    monkeypatch.setattr(storage, "replace_atomic", die)
    with pytest.raises(StorageError):
        update_table_config(storage, {"hoodie.database.name": "lake"})
    monkeypatch.undo()
    assert load_table_config(storage).database is None
