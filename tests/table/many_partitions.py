"""A table of very many partitions, made fast: one file is written, and is in every partition under a further link.

All files have the footer of a real one, with a bloom filter of full size, and hold the same row.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import instant_files
import pyarrow as pa

from skep_format.options import Options
from skep_format.storage import open_storage
from skep_format.versions import DEFAULT
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

_LINKS = 10_000  # of one file; file systems have a limit


def make(place: Path, count: int, *, empty: bool = False, version: int = DEFAULT.version) -> HudiTable:
    """Columns `id` (1 everywhere) and `day` (`p0000000` …), in one commit. `empty`: the files have no bytes."""
    rows = pa.table({"id": pa.array([1], pa.int64()), "day": ["p0000000"]})
    spec = TableSpec(name="many", schema=rows.schema, record_key=("id",), partition_by=("day",), version=version)
    create_table(open_storage(place), spec)
    full_size = {"options": Options({"hoodie.index.bloom.num_entries": 60_000})}
    done = LocalWriter(HudiTable.open(place).with_context(**full_size)).upsert(rows)
    (stat,) = done.metadata.stats
    (metafile,) = (place / "p0000000").glob(".hoodie_partition_metadata*")
    name = stat.path.rpartition("/")[2]
    stats = {}
    if empty:
        (place / "p0000000" / name).write_bytes(b"")
    for number in range(count):
        partition = f"p{number:07}"
        folder = place / partition
        if number:
            folder.mkdir()
            for file in (metafile.name, name):
                if number % _LINKS:
                    os.link(place / f"p{number - 1:07}" / file, folder / file)
                else:
                    shutil.copy(place / f"p{number - 1:07}" / file, folder / file)
        stats[partition] = (replace(stat, path=f"{partition}/{name}", partition_path=partition),)
    table = HudiTable.open(place)
    instant_files.rewrite(table, done.instant, lambda metadata: replace(metadata, partition_to_write_stats=stats))
    return HudiTable.open(place)
