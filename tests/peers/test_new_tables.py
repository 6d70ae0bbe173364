"""The properties in `tests/format/timeline/new_tables.json` are those that Hudi writes for a new table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.jvm import HudiRefused, Jvm
from skep_format.properties import parse_properties

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
