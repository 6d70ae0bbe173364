"""Tables that Hudi before 0.14 wrote, upgraded: their rows stay, those of the past too, and they are written on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skep_format.errors import InputError, VersionChangeError
from skep_format.schema.types import ALL_META_FIELDS
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.upgrade import change_version, plan_version_change
from skep_table.write.local import LocalWriter

if TYPE_CHECKING:
    from conftest import Tables

NULL_DAY = "v2_cow_null_day"


def past(tables: Tables) -> dict[str, object]:
    """The rows as of the commits of which no file was cleaned."""
    found = {}
    for instant in tables.opened().timeline.data().completed():
        with suppress(InputError):
            found[str(instant.requested_time)] = tables.rows(as_of=instant.requested_time)
    return found


@pytest.mark.parametrize("case", ["v0_mor", "v1_cow", "v2_mor_long", "v3_mor", "v4_cow", "v5_mor", "v5_cow_long"])
@pytest.mark.parametrize("to", [6, pytest.param(8, marks=pytest.mark.slow), 9])
def test_an_older_table_keeps_its_rows(older_table: Callable[[str], Tables], case: str, to: int) -> None:
    tables = older_table(case)
    rows, before = tables.rows(), past(tables)
    archived = [i.requested_time for i in tables.opened().timeline.archived()]
    assert bool(archived) is ("long" in case)
    config = tables.opened().config
    has_metadata_table = bool(config.metadata_partitions) or (tables.folder / ".hoodie/metadata").exists()
    tables.to(to)
    table = tables.opened()
    assert table.config.version == to
    assert tables.rows() == rows
    if to == 6 or not table.config.is_mor:  # older logs are read by the rules of the new version
        assert {time: tables.rows(as_of=time) for time in before} == before
    assert {i.requested_time for i in table.timeline.archived()} >= set(archived)
    assert (table.metadata_table() is not None) is has_metadata_table
    assert plan_version_change(table, to).steps == ()
    row = read(table, ReadRequest(limit=1)).to_arrow()
    LocalWriter(table).upsert(row.select([name for name in row.schema.names if name not in ALL_META_FIELDS]))
    if table.config.is_mor:
        compact(tables.opened(options={"hoodie.compact.inline.max.delta.commits": 1}))
    assert sum(tables.rows().values()) == sum(rows.values())


def test_every_older_table_is_upgraded(older_golden: Path, older_table: Callable[[str], Tables]) -> None:
    for case in sorted(path.name for path in older_golden.iterdir()):
        tables = older_table(case)
        rows = tables.rows()
        if case == NULL_DAY:
            with pytest.raises(VersionChangeError, match="folder 'default'"):
                tables.to(6)
            options = {"hoodie.skip.default.partition.validation": True}
            change_version(tables.opened(options=options), 6)
        else:
            tables.to(6)
        assert tables.rows() == rows, case


def test_logs_without_tokens_and_commits_without_newer_fields(older_table: Callable[[str], Tables]) -> None:
    """As Hudi before 0.5 named its logs, with no more than the fields of commits that it had."""
    tables = older_table("v0_mor")
    rows, kept = tables.rows(), {"fileId", "path", "prevCommit", "numWrites", "numDeletes", "totalWriteBytes"}
    logs = {path.name: path for path in tables.folder.rglob(".*.log.*")}
    older = {name: re.sub(r"(\.log\.[0-9]+)_.*", r"\1", name) for name in logs}
    assert len(set(older.values())) == len(logs) > 2
    for name, path in logs.items():
        path.rename(path.with_name(older[name]))
    for path in (tables.folder / ".hoodie").glob("*.deltacommit"):
        commit = json.loads(path.read_text())
        del commit["operationType"], commit["compacted"]
        for stat in (stat for stats in commit["partitionToWriteStats"].values() for stat in stats):
            for key in stat.keys() - kept:
                del stat[key]
            folder, slash, name = stat["path"].rpartition("/")
            stat["path"] = folder + slash + older.get(name, name)
        path.write_text(json.dumps(commit))
    assert tables.rows() == rows
    assert sum(tables.rows(query="incremental", since="000").values()) == sum(rows.values())
    tables.to(9)
    assert tables.rows() == rows
