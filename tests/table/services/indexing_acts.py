"""What other processes do to a table while an index is built, and what the index has to state then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metadata_listings import assert_alike, frame, reopened, writer

from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action, Instant
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from skep_table.metadata_write.own import building_partitions
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.metadata.index_build import schedule_index
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable

Act = Callable[[HudiTable], Any]


class Interrupting(LocalStorage):
    """Before the first base file of an index is written, and after all was read for it, another process acts."""

    def __init__(self, root: str, act: Act) -> None:
        super().__init__(root)
        self._act: Act | None = act

    def open_write(self, path: str) -> Any:
        if path.endswith(".hfile") and self._act is not None:
            act, self._act = self._act, None
            act(HudiTable.open(LocalStorage(self.root)))
        return super().open_write(path)


def wanted(table: HudiTable) -> set[str]:
    """All indexes that can be built beside writers."""
    found = {COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX}
    return found | {PARTITION_STATS} if table.format.metadata.defines_indexes else found


def scheduled(table: HudiTable) -> Instant:
    instant = schedule_index(reopened(table), wanted(table))
    assert instant is not None
    return instant


def assert_built(table: HudiTable) -> None:
    """The settings name all indexes, and none is being built."""
    assert_whole(table, {"files", *wanted(table)})
    now = reopened(table)
    assert building_partitions(now.config) == ()
    assert not now.timeline.pending().of(Action.INDEXING)


def assert_whole(table: HudiTable, partitions: set[str], where: str = "") -> None:
    """The settings name these partitions, and each of them states what the files hold."""
    now = reopened(table)
    assert set(now.config.metadata_partitions) == partitions, where
    assert_alike(now)
    assert check_metadata_table(now).differences == (), where


def last(table: HudiTable) -> Any:
    found = reopened(table).timeline.data().completed().last()
    assert found is not None
    return found.requested_time


def upserts(table: HudiTable) -> None:
    writer(table).upsert(frame(("a", "p", 5), ("e", "p", 5), ("f", "new", 5)))


def deletes(table: HudiTable) -> None:
    writer(table).delete(frame(("b", "q", 9)))


def overwrites(table: HudiTable) -> None:
    writer(table).insert_overwrite(frame(("g", "q", 6)))


def rolls_back(table: HudiTable) -> None:
    upserts(table)
    roll_back_instant(reopened(table), last(table))


def rolls_back_an_earlier_one(table: HudiTable) -> None:
    roll_back_instant(reopened(table), last(table))


def cleans(table: HudiTable) -> None:
    upserts(table)
    upserts(table)
    clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"}))


def compacts(table: HudiTable) -> None:
    upserts(table)
    if table.config.is_mor:
        schedule_compaction(reopened(table))
        upserts(table)
        execute_pending_compactions(reopened(table))


def clusters(table: HudiTable) -> None:
    upserts(table)
    cluster(reopened(table))


def maintains(table: HudiTable) -> None:
    for _ in range(3):
        upserts(table)
    maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "1"}))


ACTS = (
    upserts,
    deletes,
    overwrites,
    rolls_back,
    rolls_back_an_earlier_one,
    cleans,
    compacts,
    clusters,
    maintains,
)
