"""The instant files of services on versions 8 and 9 have the members that those of the golden tables have.

Format guide 14.2 and 14.5: which file holds which record, which members are null, empty or missing.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [8, 9], indirect=True)

RELEASE = {8: "1.0.2", 9: "1.1.1"}
Shape = Any


def last_clean(maker: Any) -> None:
    for ts in range(1, 4):
        maker.upsert(ts, "p/a")
    assert clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))


def clustering(maker: Any) -> None:
    maker.upsert(1, "p/a")
    maker.upsert(2, "p/b")
    assert cluster(maker.table.with_context(**maker.setting(clustering__plan__strategy__sort__columns="ts")))


def compaction(maker: Any) -> None:
    maker.upsert(1, "p/a")
    maker.upsert(2, "p/a")
    assert compact(maker.table.with_context(**maker.setting()))


def rollback(maker: Any) -> None:
    maker.upsert(1, "p/a")
    roll_back_instant(maker.table.with_context(**maker.setting()), maker.upsert(2, "p/a"))


def restored(maker: Any) -> None:
    first = maker.upsert(1, "p/a")
    create_savepoint(maker.table.with_context(**maker.setting()))
    maker.upsert(2, "p/a")
    assert restore(maker.table.with_context(**maker.setting()), first)


def overwrite(maker: Any) -> None:
    maker.upsert(1, "p/a")
    LocalWriter(maker.table.with_context(**maker.setting())).insert_overwrite(maker.frame(2, "p/b"))


CASES: list[tuple[Callable[[Any], None], str, list[str]]] = [
    (last_clean, "cow_clean", [".clean.requested", ".clean.inflight", ".clean"]),
    (clustering, "cow_clustering", [".clustering.requested", ".clustering.inflight", ".replacecommit"]),
    (compaction, "mor_compaction", [".compaction.requested", ".compaction.inflight", ".commit"]),
    (rollback, "cow_rollback", [".rollback.requested", ".rollback.inflight", ".rollback"]),
    (restored, "cow_savepoint_restore", [".restore.requested", ".restore.inflight", ".restore"]),
    (restored, "cow_savepoint_restore", [".savepoint.inflight", ".savepoint"]),
    (overwrite, "cow_insert_overwrite", [".replacecommit.requested", ".replacecommit.inflight", ".replacecommit"]),
]


def files(folder: Path, ending: str) -> list[Path]:
    found = [path for path in folder.iterdir() if path.name.lstrip("0123456789_") == ending]
    return sorted(found)


def shape(value: Any, *, own: bool = False) -> Shape:
    """Members and kinds of values; maps by the shape of their values. `own`: the writer's own keys and texts."""
    if isinstance(value, dict):
        if own:
            return {"*"}
        if value and all("-" in key or len(key) == 1 or key.isdigit() or key in PARTITIONS for key in value):
            return {"*": shape(next(iter(value.values())))}
        return {key: shape(each, own=key in FREE) for key, each in value.items() if key not in UNLIKE}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None if value is None else type(value).__name__


PARTITIONS = {"amsterdam", "utrecht", "chennai", "p", "q"}
FREE = {"extraMetadata", "strategyParams", "metrics"}
# what is measured, what depends on the operation
UNLIKE = {"runtimeStats", "isPartitionDeleted", "partitionToWriteStats", "tempPath"}


@pytest.mark.parametrize(
    ("make", "case", "endings"), CASES, ids=[f"{case}-{endings[-1][1:]}" for _, case, endings in CASES]
)
def test_members_are_those_of_hudi(
    make: Callable[[Any], None],
    case: str,
    endings: list[str],
    table_version: int,
    request: pytest.FixtureRequest,
    golden: Path,
) -> None:
    maker = request.getfixturevalue("mor_maker" if case.startswith("mor") else "maker")
    make(maker)
    theirs = golden / RELEASE[table_version] / case / "table" / ".hoodie" / "timeline"
    ours = maker.folder / ".hoodie" / "timeline"
    for ending in endings:
        found, expected = files(ours, ending), files(theirs, ending)
        assert found, ending
        assert expected, ending
        contents = [path.read_bytes() for path in (found[-1], expected[-1])]
        if not contents[1]:
            assert contents[0] == b"", ending
            continue
        if ending == ".replacecommit.inflight":  # planned stats, or none
            continue
        (mine,), (hudis,) = (list(fastavro.reader(io.BytesIO(data))) for data in contents)
        assert shape(mine) == shape(hudis), ending
