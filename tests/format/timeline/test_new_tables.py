"""The properties of new tables are those that Hudi writes for the same options: 1.0.2 in version 8, 1.2.0 in version 9.

`new_tables.json` holds what Hudi wrote: per version the properties of one table, and per case what differs from these
(null: not there). `tests/peers/test_new_tables.py` compares it with Hudi itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow
from skep_format.table_config import TableConfig
from skep_table.commit.create import table_config
from skep_table.write.planning.settings import spec_of

HUDI: dict[str, Any] = json.loads(Path(__file__).with_name("new_tables.json").read_text())
TEXTS = ("id", "part", "day", "_event_seq", "_event_bin_file", "_change_operation_type", "Op")
SCHEMA = pa.schema(
    [(n, pa.string()) for n in TEXTS] + [(n, pa.int64()) for n in ("ts", "v", "_event_lsn", "_event_pos")]
)
TIMES = {
    "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
}
OLD_TIMES = {key.replace("hoodie.", "hoodie.deltastreamer.", 1): text for key, text in TIMES.items()}
LOGICAL = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
PARTIAL = "hoodie.table.partial.update.mode"
UNAVAILABLE = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
OURS: dict[str, dict[str, str | None]] = {
    # Hudi keeps the settings of times for TIMESTAMP generators only: those of CUSTOM ones each write has to repeat.
    "custom": TIMES,
    # The names under which they were given, as in version 6; Hudi reads both.
    "timestamp_old_names": {**dict.fromkeys(TIMES), **OLD_TIMES},
    # Hudi does not look at the type where no class is named, and makes folders of the numbers.
    "timestamp_type": {**TIMES, "hoodie.table.keygenerator.type": "TIMESTAMP"},
    # Hudi has no option for what it reads from a table.
    "partial_mode_ignore": {PARTIAL: "IGNORE_DEFAULTS"},
    "partial_mode_fill": {PARTIAL: "FILL_UNAVAILABLE", UNAVAILABLE: "?"},
    # Without it a writer that gives no options would make other keys.
    "logical_timestamp": {LOGICAL: "true"},
}
REFUSED = {
    ("global_delete", "8"): "GLOBAL_DELETE|GlobalDelete",
    ("global_delete", "9"): "GLOBAL_DELETE|GlobalDelete",
    # Hudi writes such tables by commit time without a warning, or by the payload class.
    ("mode_event_without_ordering", "8"): "needs hoodie.datasource.write.precombine.field",
    ("mode_event_without_ordering", "9"): "needs hoodie.datasource.write.precombine.field",
    ("mode_payload_conflict", "8"): "contradict",
    ("mode_payload_conflict", "9"): "contradict",
    ("payload_partial_event_mode", "8"): "contradict",
    ("payload_partial_event_mode", "9"): "contradict",
    ("payload_postgres_other_ordering", "9"): "orders rows by _event_lsn",
    ("mode_custom_alone", "8"): "needs .*payload.class or",
    ("mode_custom_alone", "9"): "needs .*payload.class or",
    # Version 8 holds none of these: Hudi fails at the first row, or leaves them out.
    ("several_ordering", "8"): "hold one column",
    ("ordering_fields_key", "8"): "hold one column",
    ("partial_mode_ignore", "8"): "tables of version 8 hold none",
    ("partial_mode_fill", "8"): "tables of version 8 hold none",
}
CASES = [(name, version) for name in HUDI["cases"] for version in ("8", "9")]


def made(name: str, version: str) -> dict[str, str]:
    options = {"hoodie.table.name": "t", "hoodie.write.table.version": version, **HUDI["cases"][name]["options"]}
    return table_config(spec_of(Options(options), "t", from_arrow(SCHEMA))).to_properties()


@pytest.mark.parametrize(("name", "version"), [case for case in CASES if case not in REFUSED])
def test_a_new_table_has_the_properties_that_hudi_writes(name: str, version: str) -> None:
    differing = {**HUDI["cases"][name][version], **OURS.get(name, {})}
    expected = {key: text for key, text in {**HUDI["every"][version], **differing}.items() if text is not None}
    found = made(name, version)
    # The schema and a time zone that all writers share are skep's choice in every version.
    for key in ("hoodie.table.name", "hoodie.table.checksum", "hoodie.table.create.schema"):
        found.pop(key)
    assert found.pop("hoodie.table.timeline.timezone") == "UTC"
    assert found == expected


@pytest.mark.parametrize(("name", "version"), list(REFUSED))
def test_what_contradicts_itself_or_is_not_written_is_refused(name: str, version: str) -> None:
    with pytest.raises((OptionError, UnsupportedError), match=REFUSED[name, version]):
        made(name, version)


@pytest.mark.parametrize(("name", "version"), [case for case in CASES if case not in REFUSED])
def test_what_is_written_is_read_alike(name: str, version: str) -> None:
    properties = made(name, version)
    config = TableConfig.parse(properties)
    assert config.to_properties() == properties


def test_every_exception_is_of_a_case() -> None:
    assert set(OURS) <= set(HUDI["cases"])
    assert set(REFUSED) <= set(CASES)
