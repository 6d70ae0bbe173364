"""Every table that Hudi wrote, brought through all versions and back: its rows stay, and it is written on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from skep_format.errors import InputError, VersionChangeError
from skep_format.schema.types import ALL_META_FIELDS
from skep_table.query import ReadRequest, read
from skep_table.upgrade import plan_version_change
from skep_table.write.local import LocalWriter

if TYPE_CHECKING:
    from conftest import Tables

WAYS: Final = {"0.15.0": (8, 9, 8, 6), "1.0.2": (9, 8, 6, 8), "1.1.1": (8, 6, 8, 9)}
FAST: Final = {
    ("0.15.0", "mor_clustering"),
    ("0.15.0", "cow_insert_overwrite"),
    ("1.0.2", "cow_archive"),
    ("1.1.1", "mor_log_rollback"),
}
# Releases read the partition columns of these from different places, and skep reads a table as its release does.
BY_RELEASE: Final = {
    "cow_timestamp_keygen_date_string": {"event_ms"},
    "cow_custom_keygen": {"event_ms"},
}
# One key column, several partition columns: from version 9 on the keys have another form.
REFUSED: Final = {"cow_multi_partition_hive": 9}
# The data of this one lies in a folder of the machine that wrote it.
ELSEWHERE: Final = "cow_bootstrap_metadata_only"
NOT_WRITTEN: Final = {"cow_auto_keys", "cow_custom_keygen", "cow_timestamp_keygen_date_string"}


def travelled(tables: Tables, ignored: set[str]) -> dict[str, Counter[str]]:
    """The rows as of the commits of which no file was cleaned."""
    found = {}
    for instant in tables.opened().timeline.data().completed():
        with suppress(InputError):
            found[str(instant.requested_time)] = tables.rows(without=ignored, as_of=instant.requested_time)
    return found


def through(tables: Tables, release: str, case: str) -> None:
    """Through all versions, with the same rows, those of the past too; then on with a write."""
    ignored = BY_RELEASE.get(case, set())
    before = tables.rows(without=ignored)
    past = travelled(tables, ignored)
    for version in WAYS[release]:
        if REFUSED.get(case) in (version, tables.opened().config.version):
            with pytest.raises(VersionChangeError, match="COMPLEX"):
                tables.to(version)
            return
        tables.to(version)
        assert tables.opened().config.version == version
        assert tables.rows(without=ignored) == before, f"{case} as version {version}"
        assert {time: tables.rows(without=ignored, as_of=time) for time in past} == past, f"{case} as version {version}"
        assert plan_version_change(tables.opened(), version).steps == ()
        if case not in NOT_WRITTEN:
            table = tables.opened()
            row = read(table, ReadRequest(limit=1)).to_arrow()
            data = row.drop_columns([name for name in ALL_META_FIELDS if name in row.schema.names])
            LocalWriter(table).upsert(data)
            found = tables.rows(without=ignored)
            assert sum(found.values()) == sum(before.values()), f"{case} written on as version {version}"
            before = found


@pytest.mark.parametrize(("release", "case"), sorted(FAST))
def test_a_table_of_hudi_keeps_its_rows_in_every_version(
    golden_table: Callable[[str, str], Tables], release: str, case: str
) -> None:
    through(golden_table(release, case), release, case)


@pytest.mark.slow
@pytest.mark.parametrize("release", WAYS)
def test_all_tables_of_hudi_keep_their_rows_in_every_version(
    golden: Path, golden_table: Callable[[str, str], Tables], release: str
) -> None:
    cases = sorted(folder.name for folder in (golden / release).iterdir())
    assert len(cases) > 30
    for case in cases:
        if case != ELSEWHERE:
            through(golden_table(release, case), release, case)
