"""Synced tables that change their version: their entries stay as they are but for how far they are synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skep_catalog.client import Metastore
from skep_format.schema.types import META_FIELDS
from skep_sync.check import check_table
from skep_sync.planning.plan import MARKERS, marker_of
from skep_sync.sync import sync_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore

WAYS = {"0.15.0": (8, 9, 8, 6), "1.1.1": (8, 6, 8, 9)}
CASES = ("cow_upsert", "mor_upsert", "mor_clustering", "cow_insert_overwrite", "cow_special_chars_urlencode_hive")
MOVING = {*(name.removeprefix("parameter ") for name in MARKERS), "transient_lastDdlTime"}


def entries(metastore: Metastore, database: str) -> dict[str, tuple[Any, ...]]:
    """All that the entries state but for their markers, with their partitions."""
    found = {}
    for name in sorted(metastore.tables(database)):
        entry = metastore.table(database, name)
        parameters = {key: text for key, text in entry.parameters.items() if key not in MOVING}
        partitions = sorted((p.values, str(p.storage)) for p in metastore.partitions(database, name))
        found[name] = entry.table_type, parameters, entry.storage, entry.partition_keys, partitions
    return found


def in_sync(table: HudiTable, metastore: Metastore, database: str) -> None:
    """The entries are synced up to the last commit, nothing is drifted, and one more sync has nothing to do."""
    last = table.timeline.data().completed().last()
    assert last is not None
    for name in metastore.tables(database):
        point = marker_of(metastore.table(database, name))
        assert point is not None
        assert point.requested_time == last.requested_time
        assert point.completion_time is not None
        if table.layout.has_completion_times:
            assert point.completion_time == max(i.completion_time or "" for i in table.timeline.data().completed())
    assert not check_table(table, metastore, database).findings
    assert not sync_table(table, metastore, database).changed


@pytest.mark.parametrize(
    ("release", "case"),
    [
        pytest.param(release, case, marks=[] if case in CASES[:2] and release == "0.15.0" else [pytest.mark.slow])
        for release in WAYS
        for case in CASES
    ],
)
def test_entries_stay_as_they_are(
    golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str, release: str, case: str
) -> None:
    table = golden_copy(release, case)
    sync_table(table, metastore, database)
    before = entries(metastore, database)
    for version in WAYS[release]:
        table = change_version(table, version)
        report = sync_table(table, metastore, database)
        assert not report.plan.warnings, report.plan.warnings
        assert entries(metastore, database) == before, f"version {version}"
        in_sync(table, metastore, database)
        row = read(table, ReadRequest(limit=1)).to_arrow()
        table = LocalWriter(table).upsert(row.drop_columns(META_FIELDS)).table.reload()
        sync_table(table, metastore, database)
        assert entries(metastore, database) == before, f"written on as version {version}"
        in_sync(table, metastore, database)
