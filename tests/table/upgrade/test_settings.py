"""The settings of a table in each version: what each step sets, keeps and drops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import InputError, VersionChangeError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import MergeMode, TableConfig, TableType
from skep_table.table import HudiTable
from skep_table.upgrade import plan_version_change
from skep_table.upgrade.route import check_settings
from skep_table.upgrade.settings import settings_after

MODEL = "org.apache.hudi.common.model."
BASE = {
    "hoodie.table.name": "t",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "part",
    "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.archivelog.folder": "archived",
    "hoodie.table.version": "6",
    "hoodie.timeline.layout.version": "1",
}


def version_6(**more: str) -> TableConfig:
    named = {f"hoodie.{key.replace('__', '.')}": text for key, text in more.items()}
    return TableConfig.parse({**BASE, **named})


def version_9(**more: str) -> TableConfig:
    named = {f"hoodie.{key.replace('__', '.')}": text for key, text in more.items()}
    config = settings_after(version_6(), (8, 9), Options())
    own = {key: text for key, text in config.raw.items() if "legacy" not in key}
    return TableConfig.parse({**own, **named})


def to(config: TableConfig, *versions: int, **options: str) -> TableConfig:
    return settings_after(config, versions, Options(options))


def test_version_8_states_how_rows_merge_and_where_the_timeline_is() -> None:
    payload = f"{MODEL}DefaultHoodieRecordPayload"
    found = to(version_6(table__precombine__field="ts", compaction__payload__class=payload), 8).raw
    assert found["hoodie.record.merge.mode"] == "EVENT_TIME_ORDERING"
    assert found["hoodie.record.merge.strategy.id"] == "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
    assert found["hoodie.compaction.payload.class"] == payload
    assert found["hoodie.table.precombine.field"] == "ts"
    assert found["hoodie.timeline.path"] == "timeline"
    assert found["hoodie.timeline.history.path"] == "history"
    assert found["hoodie.timeline.layout.version"] == "2"
    assert found["hoodie.table.initial.version"] == "6"
    assert found["hoodie.table.keygenerator.type"] == "SIMPLE"
    assert "hoodie.table.keygenerator.class" not in found


def test_the_rule_of_the_payload_class_stays_where_hudi_makes_it_event_time() -> None:
    latest = {"compaction__payload__class": f"{MODEL}OverwriteWithLatestAvroPayload", "table__precombine__field": "ts"}
    config = version_6(table__type="MERGE_ON_READ", **latest)
    assert to(config, 8, 9).merge_mode is MergeMode.COMMIT_TIME_ORDERING


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("DefaultHoodieRecordPayload", {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}),
        ("OverwriteWithLatestAvroPayload", {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}),
        ("EventTimeAvroPayload", {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}),
        (
            "PartialUpdateAvroPayload",
            {
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
                "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
            },
        ),
        (
            "OverwriteNonDefaultsWithLatestAvroPayload",
            {
                "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
            },
        ),
        (
            "AWSDmsAvroPayload",
            {
                "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.record.merge.property.hoodie.payload.delete.field": "Op",
                "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
            },
        ),
    ],
)
def test_version_9_states_what_a_shipped_payload_class_does(payload: str, expected: dict[str, str]) -> None:
    before = to(version_6(compaction__payload__class=MODEL + payload, table__precombine__field="ts"), 8)
    found = to(before, 9)
    assert found.raw["hoodie.table.legacy.payload.class"] == MODEL + payload
    assert found.raw["hoodie.table.ordering.fields"] == "ts"
    assert {key: found.raw.get(key) for key in expected} == expected
    assert not {"hoodie.compaction.payload.class", "hoodie.table.precombine.field"} & found.raw.keys()
    back = to(found, 8)
    assert back.raw == before.raw


def test_the_ordering_columns_of_debezium_change_with_the_version() -> None:
    debezium = f"{MODEL}debezium.MySqlDebeziumAvroPayload"
    before = to(version_6(compaction__payload__class=debezium, table__precombine__field="_event_seq"), 8)
    found = to(before, 9)
    assert found.ordering_fields == ("_event_bin_file", "_event_pos")
    assert to(found, 8).ordering_fields == ("_event_seq",)


def test_an_own_payload_class_and_key_generator_stay() -> None:
    config = version_6(compaction__payload__class="com.mine.Payload", table__keygenerator__class="com.mine.Keys")
    found = to(config, 8, 9)
    assert found.merge_mode is MergeMode.CUSTOM
    assert found.payload_class == "com.mine.Payload"
    assert found.raw["hoodie.table.keygenerator.class"] == "com.mine.Keys"
    assert found.raw["hoodie.table.keygenerator.type"] == "USER_PROVIDED"
    back = to(found, 8, 6)
    assert back.payload_class == "com.mine.Payload"
    assert back.raw["hoodie.table.keygenerator.class"] == "com.mine.Keys"


def test_the_types_of_partition_columns_are_kept_where_version_6_has_none() -> None:
    config = version_6(
        table__keygenerator__class="org.apache.hudi.keygen.CustomKeyGenerator", table__partition__fields="part,at"
    )
    typed = "part:SIMPLE,at:TIMESTAMP"
    found = to(config, 8, **{"hoodie.datasource.write.partitionpath.field": typed})
    assert found.raw["hoodie.table.partition.fields"] == typed
    back = to(found, 6)
    assert back.raw["hoodie.table.partition.fields"] == "part,at"
    assert to(back, 8).raw["hoodie.table.partition.fields"] == typed


def test_a_table_without_payload_class_merges_in_version_6_as_it_did() -> None:
    config = version_9(table__ordering__fields="ts", record__merge__mode="COMMIT_TIME_ORDERING")
    assert to(config, 8, 6).merge_mode is MergeMode.COMMIT_TIME_ORDERING


def test_settings_of_nobody_stay() -> None:
    assert to(version_6(mine__setting="1"), 8, 9, 8, 6).raw["hoodie.mine.setting"] == "1"


@given(
    st.sampled_from([TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ]),
    st.sampled_from(["", "ts"]),
    st.sampled_from(["DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload", "PartialUpdateAvroPayload"]),
    st.booleans(),
)
def test_there_and_back_a_table_merges_as_before(kind: TableType, ordering: str, payload: str, hive: bool) -> None:
    config = version_6(
        table__type=kind.value,
        compaction__payload__class=MODEL + payload,
        datasource__write__hive_style_partitioning=str(hive).lower(),
        **({"table__precombine__field": ordering} if ordering else {}),
    )
    back = to(config, 8, 9, 8, 6)
    assert back == config


@pytest.mark.parametrize(
    ("settings", "version", "why"),
    [
        ({"table__ordering__fields": "a,b"}, 8, "several ordering columns"),
        ({"table__partial__update__mode": "FILL_UNAVAILABLE"}, 8, "partial update mode"),
        ({"record__merge__mode": "CUSTOM", "record__merge__strategy__id": "x"}, 6, "without payload class"),
        ({"table__keygenerator__type": "COMPLEX"}, 8, "key generator COMPLEX"),
        ({"table__format": "iceberg"}, 8, "its format is iceberg"),
    ],
)
def test_what_an_older_version_can_not_hold_is_refused(
    tmp_path: object, settings: dict[str, str], version: int, why: str
) -> None:
    from skep_format.timeline.timeline import Timeline
    from skep_format.versions import DEFAULT, format_of
    from skep_table.context import TableContext

    config = version_9(**settings)
    layout = format_of(config).timeline_layout(config)
    table = HudiTable(TableContext(LocalStorage(str(tmp_path))), config, Timeline((), layout))
    target = format_of(to(config, 8)) if version == 8 else DEFAULT
    with pytest.raises(VersionChangeError, match=why):
        check_settings(table, target)


def test_a_version_that_is_not_written_is_refused(tables) -> None:  # type: ignore[no-untyped-def]
    tables.create(6, TableType.COPY_ON_WRITE)
    with pytest.raises(InputError, match="can't become version 7"):
        plan_version_change(tables.opened(), 7)
