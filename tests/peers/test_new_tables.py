"""The properties in `tests/format/timeline/new_tables.json` are those that Hudi writes for a new table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.peers.jvm import HudiRefused, Jvm
from skep_format.properties import parse_properties
from skep_table.table import HudiTable
from tests.tables_at import create_at

FILE = Path(__file__).parents[1] / "format" / "timeline" / "new_tables.json"
HUDI: dict[str, Any] = json.loads(FILE.read_text())
RELEASES = {"8": "1.0.2", "9": "1.2.0"}
SAMPLE = ("payload_PartialUpdateAvroPayload", "several_ordering")
ROW = {
    "id": "a",
    "part": "p",
    "day": "d",
    "ts": 1,
    "v": 1,
    "_event_lsn": 1,
    "_event_seq": "1.1",
    "_event_bin_file": "1",
    "_event_pos": 1,
    "_change_operation_type": "c",
    "Op": "I",
}
DDL = ", ".join(f"{name} {'bigint' if isinstance(value, int) else 'string'}" for name, value in ROW.items())
# Of the table's name, and what differs by machine or is for Hive.
OTHERS = (
    "hoodie.table.name",
    "hoodie.table.checksum",
    "hoodie.table.timeline.timezone",
    "hoodie.table.partition_extractor_class",
)


def cases() -> list[Any]:
    return [
        pytest.param(
            version,
            name,
            marks=[
                pytest.mark.peer(f"hudi-{release}"),
                *([] if version == "9" and name in SAMPLE else [pytest.mark.slow]),
            ],
        )
        for version, release in RELEASES.items()
        for name in HUDI["cases"]
    ]


@pytest.mark.parametrize(("version", "name"), cases())
def test_hudi_writes_these_properties(version: str, name: str, jvm: Callable[[str], Jvm], tmp_path: Path) -> None:
    case = HUDI["cases"][name]
    options = {
        "hoodie.table.name": "t",
        "hoodie.write.table.version": version,
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        # One key field and several partition fields are refused without it.
        "hoodie.write.complex.keygen.validation.enable": "false",
        **case["options"],
    }
    hudi, file = jvm(RELEASES[version]), tmp_path / "t/.hoodie/hoodie.properties"
    try:
        hudi.write(tmp_path / "t", [ROW], DDL, options, mode="overwrite")
    except HudiRefused:
        # Some are refused only when the first row is written, behind the table's properties.
        if case[version] == "refused":
            assert not file.exists()
            return
    expected = {**HUDI["every"][version], **case[version]}
    found = parse_properties(file.read_bytes())
    assert {key: text for key, text in found.items() if key not in OTHERS} == {
        key: text for key, text in expected.items() if text is not None
    }


@pytest.mark.peer("hudi-1.2.0")
@pytest.mark.parametrize("partition", ["part", pytest.param("", marks=pytest.mark.slow)], ids=["partitioned", "plain"])
def test_the_newest_has_the_metadata_table_that_hudi_makes(
    partition: str, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    """Hudi's table is made without an option of versions, the metadata table or its indexes."""
    hudi, ours = jvm("1.2.0"), tmp_path / "t"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": partition,
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.embed.timeline.server": "false",
    }
    hudi.write(tmp_path / "theirs", [ROW], DDL, options, mode="overwrite")
    rows = pa.Table.from_pylist([ROW])
    made = create_at(str(ours), rows, {}, key="id", ordering="ts", partition_by=partition or (), table_version="newest")
    made.upsert(rows)
    found, expected = (HudiTable.open(str(tmp_path / name)).config for name in ("t", "theirs"))
    assert (found.version, found.metadata_partitions) == (expected.version, expected.metadata_partitions)
    hudi.write(ours, [{**ROW, "id": "b"}], DDL, options)
    made.upsert(pa.Table.from_pylist([{**ROW, "id": "c"}]))
    ids = sorted(row["id"] for row in hudi.read(ours).rows)
    assert ids == sorted(made.read().to_arrow()["id"].to_pylist()) == ["a", "b", "c"]
    assert made.validate_metadata().differences == ()
