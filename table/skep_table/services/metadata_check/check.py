"""The whole comparison: one check for each partition of the metadata table, repeated where others commit meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from skep_format.errors import FormatError, InputError, NotATableError
from skep_table.metadata_table import FOLDER, MetadataTable
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY,
    SINGLE,
    PartitionKind,
    kind_of,
)
from skep_table.services.metadata_check.findings import Findings, MetadataCheck, MetadataProblem, PartitionCheck
from skep_table.services.metadata_check.listing import check_listing
from skep_table.services.metadata_check.record_index import (
    check_bloom_filters,
    check_record_index,
    check_secondary_index,
)
from skep_table.services.metadata_check.statistics import (
    check_column_stats,
    check_expression_index,
    check_partition_stats,
)
from skep_table.table import HudiTable

_ATTEMPTS: Final = 3

log = logging.getLogger("skep.services")

_CHECKS: Final[dict[PartitionKind, Callable[[HudiTable, MetadataTable, Findings], bool | None]]] = {
    SINGLE[FILES]: check_listing,
    SINGLE[BLOOM_FILTERS]: check_bloom_filters,
    SINGLE[RECORD_INDEX]: check_record_index,
    SINGLE[COLUMN_STATS]: check_column_stats,
    SINGLE[PARTITION_STATS]: check_partition_stats,
    SECONDARY: check_secondary_index,
    EXPRESSION: check_expression_index,
}
"""By their kinds. False: the contents of a partition can't be computed here."""


def check_metadata_table(table: HudiTable, partitions: Collection[str] | None = None) -> MetadataCheck:
    """Compares the metadata table of `table` with its files; `partitions` names those of the metadata table, None: all.

    Takes no lock. Where differences are found and another action has completed meanwhile, it is repeated: what that
    deleted or added may be all there is to them. InputError where the table has no such metadata partition.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        found = _checked(table, partitions)
        now = table.reload()
        if not found.differences or now.timeline.instants == table.timeline.instants:
            break
        log.info("table %s changed while its metadata table was checked: attempt %d", table.config.name, attempt)
        table = now
    return found


def _checked(table: HudiTable, wanted: Collection[str] | None) -> MetadataCheck:
    known = table.config.metadata_partitions
    if not known:
        raise InputError(f"table {table.config.name} has no metadata table", table=table.config.name)
    strange = sorted(set(wanted or ()) - set(known))
    if strange:
        problem = f"its metadata table has no partition {strange[0]}"
        raise table.error(InputError, problem, found=strange[0], expected=", ".join(known))
    chosen = [name for name in known if wanted is None or name in wanted]
    last = max((each.requested_time for each in table.timeline.completed()), default=None)
    metadata = _opened(table)
    if isinstance(metadata, PartitionCheck):
        return MetadataCheck(table.config.name, last, (metadata,))
    checks = {name: _one(table, metadata, name) for name in chosen}
    done = tuple(each for each in checks.values() if each is not None)
    return MetadataCheck(table.config.name, last, done, tuple(name for name in chosen if checks[name] is None))


def _opened(table: HudiTable) -> MetadataTable | PartitionCheck:
    """The metadata table, or the reason why no reader can use it."""
    findings = Findings(FILES)
    try:
        metadata = MetadataTable.open(table)
    except NotATableError:
        detail = "the table's settings name a metadata table, and there is none"
        findings.add(MetadataProblem.MISSING, "", FOLDER, detail)
        return findings.done()
    if metadata is None:
        detail = "the table's settings name indexes without the partition files, which readers begin with"
        findings.add(MetadataProblem.MISSING, "", FILES, detail)
        return findings.done()
    return metadata


def _one(table: HudiTable, metadata: MetadataTable, name: str) -> PartitionCheck | None:
    """None for a partition whose contents can't be computed here."""
    kind, findings = kind_of(name), Findings(name)
    try:
        if kind is None or _CHECKS[kind](table, metadata, findings) is False:
            return None
    except FormatError as error:
        findings.add(MetadataProblem.DAMAGED, "", str(error.fields.get("path", FOLDER)), error.message)
    return findings.done()
