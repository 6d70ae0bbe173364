"""The partition `bloom_filters` against the base files: each filter has to contain all keys of its file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_base, read_footer
from skep_format.bloom import BloomFilter
from skep_format.names import BaseFileName
from skep_table.keys.stored import StoredKeys
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import alive, latest
from skep_table.metadata_table.keys import ALL_PARTITIONS, NON_PARTITIONED, file_key, path_key
from skep_table.metadata_table.partitions import BLOOM_FILTERS, BLOOM_MEMBER
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.slices import latest_slices
from skep_table.table import HudiTable
from skep_table.view import BaseFile

_FILES_AT_ONCE: Final = 256


def check_bloom_filters(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares the filters of the latest base files; those of files that are no longer listed are counted."""
    files = ((slice_.partition_path, slice_.base_file) for slice_ in latest_slices(table) if slice_.base_file)
    while portion := list(itertools.islice(files, _FILES_AT_ONCE)):
        filters = metadata.bloom([(path, str(base.name)) for path, base in portion]) or {}
        tasks = [(base, filters.get((path, str(base.name)))) for path, base in portion]
        problems = table.context.threads.map(lambda task: _problem(table, *task), tasks)
        for (path, base), problem in zip(portion, problems, strict=True):
            findings.checked += 1
            if problem is not None:
                findings.add(problem[0], path, str(base.name), problem[1])
    stale = _stale(metadata)
    if stale:
        findings.add(
            MetadataProblem.STALE, "", BLOOM_FILTERS, f"{stale} filters of files that are no longer listed", found=stale
        )


def _problem(table: HudiTable, base: BaseFile, stated: BloomFilter | None) -> tuple[MetadataProblem, str] | None:
    footer = read_footer(table.storage, base.path)
    if stated is None:
        return (MetadataProblem.MISSING, "the base file has no filter here") if footer.bloom is not None else None
    if footer.bloom is not None and footer.bloom.to_text() == stated.to_text():
        return None
    stored = StoredKeys.of(table.config, table.stored_schema())
    for rows in read_base(table.storage, base.path, size=base.known_size, schema=stored.schema):
        keys = stored.of_rows(rows).cast(pa.string())
        lacking = pc.invert(stated.might_contain(keys))
        if pc.any(lacking).as_py():
            count, first = pc.sum(lacking).as_py(), keys[lacking.index(True).as_py()].as_py()
            return MetadataProblem.DIFFERS, f"the filter lacks {count} keys of the file, {first} among them"
    return MetadataProblem.LOOSE, "another filter than that of the footer, which contains all keys"


def _stale(metadata: MetadataTable) -> int:
    listed = metadata.all_files()
    keys = pa.array(list(_keys(zip(*(listed[name].to_pylist() for name in ("key", "name")), strict=True))), pa.string())
    found = 0
    for group in metadata.group_readers(BLOOM_FILTERS):
        known, _ = alive(*latest(group.entries(column=BLOOM_MEMBER), BLOOM_MEMBER))
        found += pc.sum(pc.invert(pc.is_in(known, value_set=keys))).as_py() or 0
    return found


def _keys(files: Iterable[tuple[str, str]]) -> Iterable[str]:
    for partition, names in itertools.groupby(files, key=lambda file: file[0]):
        if partition != ALL_PARTITIONS:
            prefix = path_key("" if partition == NON_PARTITIONED else partition)
            yield from (prefix + file_key(name) for _, name in names if BaseFileName.parse(name) is not None)
