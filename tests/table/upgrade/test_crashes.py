"""A change of version that is killed at any change of storage: the table has one version or the other, and all rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faulty_storage import CHANGES, FaultyStorage

from skep_format.errors import StorageError
from skep_format.table_config import TableType
from skep_table.services.cleaning.archive import archive
from skep_table.upgrade.change import settle
from skep_table.write.local import LocalWriter

if TYPE_CHECKING:
    from conftest import Tables


def history(tables: Tables, kind: TableType, version: int) -> None:
    """Commits, one that replaces file groups, archived ones and, merge-on-read, log files."""
    tables.create(version, kind)
    for ts in range(1, 4):
        tables.upsert(ts, "a/1", f"b/{ts}")
    LocalWriter(tables.opened()).insert_overwrite(tables.frame(9, "b/9"))
    tables.upsert(10, "a/1", "a/2")
    few = {
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.cleaner.commits.retained": 1,
        "hoodie.compact.inline.max.delta.commits": 1,
    }
    archive(tables.opened(options=few))


class KilledAtChanges(FaultyStorage):
    """Dies at its nth call that changes something: a kill at a read leaves what the change before it left."""

    def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        if name not in {*CHANGES, "close"} and not self.hit:
            return do()
        return super()._call(name, path, do)


FAST = [(TableType.MERGE_ON_READ, 6, 9), (TableType.COPY_ON_WRITE, 9, 6)]
WAYS = [(kind, *way) for kind in TableType for way in ((6, 8), (8, 9), (9, 8), (8, 6), (6, 9), (9, 6))]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [pytest.param(*way, marks=[] if way in FAST else pytest.mark.slow) for way in WAYS],
)
@pytest.mark.parametrize("lost_answer", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_kill_at_any_change_leaves_a_whole_table_and_repeating_finishes(
    tables: Tables, tmp_path: Path, kind: TableType, before: int, after: int, lost_answer: bool
) -> None:
    history(tables, kind, before)
    settle(tables.opened())
    rows, at, versions = tables.rows(), 0, [before]  # between 8 and 9 the first change is the switch
    while True:
        at += 1
        copied = tables.copy(tmp_path / "run")
        storage = KilledAtChanges(str(copied.folder), at, dies=True, after=lost_answer)
        with suppress(StorageError):
            copied.to(after, storage)
        versions.append(copied.opened().config.version)
        assert copied.rows() == rows, storage.calls[-1]
        copied.to(after)
        assert copied.rows() == rows, storage.calls[-1]
        left = copied.files()
        assert not {path for path in left if path.endswith("timeline.moved")}
        assert any(path.startswith(".hoodie/timeline/") for path in left) is (after != 6)
        assert any(path.startswith(".hoodie/2") for path in left) is (after == 6)
        if not storage.hit:
            break
    assert versions == sorted(versions, reverse=before > after), "one switch"
    assert set(versions) == {before, after}
    copied.upsert(20, "a/1", "c/1")
    assert sum(copied.rows().values()) == sum(rows.values()) + 1


def test_a_table_goes_on_beside_the_copy_of_an_interrupted_upgrade(tables: Tables) -> None:
    """Its commits are archived, and the copy has instants that the timeline has not."""
    tables.create(6, TableType.COPY_ON_WRITE)
    for ts in range(1, 6):
        tables.upsert(ts, "a/1")
    storage = KilledAtChanges(str(tables.folder), 12, dies=True)
    with pytest.raises(StorageError):
        tables.to(9, storage)
    assert (tables.folder / ".hoodie/timeline").exists()
    for ts in range(6, 9):
        tables.upsert(ts, "a/1")
    few = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.cleaner.commits.retained": 1}
    archive(tables.opened(options=few))
    rows = tables.rows()
    tables.to(9)
    assert tables.rows() == rows
    assert len(tables.opened().timeline.data()) + len(tables.opened().timeline.archived()) == 8
