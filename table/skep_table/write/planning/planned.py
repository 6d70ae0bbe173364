"""What deletes would take out of the table as it is, in rows or whole partitions. Nothing here changes anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_format.timeline.metadata import WriteOperation
from skep_table.commit.writable import check_writable
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.input.source import columns_that_find, deleting
from skep_table.write.local import ArrowEngine
from skep_table.write.output.replaced import live_groups, matching_partitions
from skep_table.write.planning.plan import WritePlan, plan_write
from skep_table.write.planning.settings import check_settings
from skep_table.write.planning.write_settings import WriteSettings

_KEYS: Final = (RECORD_KEY, PARTITION_PATH)
_KEY_SCHEMA: Final = pa.schema([(name, pa.string()) for name in _KEYS])


@dataclass(frozen=True, slots=True)
class PlannedDelete:
    """The rows that a delete would take out of the table, counted by the path of their partition."""

    partitions: Mapping[str, int]

    @property
    def rows(self) -> int:
        """Those of all partitions."""
        return sum(self.partitions.values())


@dataclass(frozen=True, slots=True)
class PlannedDrop:
    """The partitions that would be dropped by their paths, with the ids of their file groups."""

    partitions: Mapping[str, tuple[str, ...]]


def plan_delete(table: HudiTable, keys: object) -> PlannedDelete:
    """The stored rows with the keys of a frame of this process. Errors are those of the delete."""
    settings = _checked(table)
    rows = ArrowEngine(table.context.runner, settings).take(keys, to_arrow(table.schema()))
    plan = plan_write(table, WriteOperation.DELETE, rows.schema, settings)
    keyed = [plan.keyer.schema.empty_table(), *map(plan.keyer.keyed, rows.batches())]
    wanted = pa.concat_tables(part.select(_KEYS) for part in keyed)
    columns = _KEYS[:1] if plan.index.is_global else _KEYS
    named = wanted.select(columns).group_by(list(columns)).aggregate([])
    found: Counter[str] = Counter()
    for stored in _stored_keys(table, plan):
        rows = stored.join(named, keys=list(columns), join_type="left semi")
        found.update(_by_partition(rows))
    return PlannedDelete(dict(sorted(found.items())))


def plan_delete_computed(table: HudiTable, compute: Callable[[HudiTable], pa.Table]) -> PlannedDelete:
    """The stored rows that `compute` finds: see `TableWriter.delete_computed`."""
    settings, rows = _checked(table), compute(table)
    plan = plan_write(table, deleting(table), rows.schema, settings)
    return PlannedDelete(dict(sorted(_by_partition(plan.keyer.keyed(rows)).items())))


def plan_drop(table: HudiTable, patterns: Sequence[str]) -> PlannedDrop:
    """What `TableWriter.delete_partitions` would drop by these patterns."""
    _checked(table)
    view = table.view()
    return PlannedDrop(live_groups(view, matching_partitions(patterns, view.partitions()), table.context.runner))


def _checked(table: HudiTable) -> WriteSettings:
    check_writable(table.config, table.storage.root)
    check_settings(table.config, table.storage.root, table.options)
    return WriteSettings.of(table.options)


def _stored_keys(table: HudiTable, plan: WritePlan) -> Iterator[pa.Table]:
    """The keys and partition paths of the table's rows, part by part."""
    request = ReadRequest(columns=columns_that_find(table), options=table.options)
    for batch in read(table, request).to_batches():
        rows = pa.Table.from_batches([batch])
        keyed = rows if table.config.populate_meta_fields else plan.keyer.keyed(rows)
        yield keyed.select(_KEYS).cast(_KEY_SCHEMA)


def _by_partition(rows: pa.Table) -> dict[str, int]:
    counted = rows.group_by(PARTITION_PATH).aggregate([([], "count_all")])
    return dict(zip(counted[PARTITION_PATH].to_pylist(), counted["count_all"].to_pylist(), strict=True))
