"""Bloom filters of record keys: those in the footers of base files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skep_format.instant_time import InstantTime
from skep_table.metadata_table.partitions import BLOOM_FILTERS, SINGLE
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_write.facts.files import FileFacts
from skep_table.metadata_write.kinds.contract import CleanedFiles, File, KeptKind
from skep_table.table import HudiTable


def _of_files(table: HudiTable, facts: Mapping[File, FileFacts], time: InstantTime) -> PartitionUpdate:
    filters = {file: each.bloom for file, each in facts.items() if each.bloom is not None}
    return bloom_filters_update(filters, (), time, table.format.metadata.release)


def _of_clean(cleaned: CleanedFiles) -> Iterable[PartitionUpdate]:
    bases = [(path, name) for path, name in cleaned.deleted if not name.startswith(".")]
    if bases:
        time, release = cleaned.instant.requested_time, cleaned.table.format.metadata.release
        yield bloom_filters_update({}, bases, time, release)


KEPT = KeptKind(SINGLE[BLOOM_FILTERS], of_files=_of_files, of_clean=_of_clean, has_filters=True)
