"""The record positions in a table's logs, compared with the base files that they name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.logfile import BlockType, HeaderKey, read_blocks
from skep_format.names import BaseFileName
from skep_format.schema.types import RECORD_KEY
from skep_table.table import HudiTable


def blocks_with_positions(table: HudiTable) -> tuple[int, int]:
    """How many blocks of the newest slices name positions, and how many there are.

    Fails where a position is not that of the only row with the key in the base file.
    """
    table = table.reload()
    root, named, total = Path(table.storage.root), 0, 0
    bases = {(name.file_id, name.instant_time): path for path in root.rglob("*.parquet") if (name := _name(path))}
    for partition in table.view().partitions():
        for slice_ in table.view().slices(partition):
            for log in slice_.log_files:
                for block in read_blocks(pa.OSFile(str(root / log.path)), log.path):
                    total += 1
                    positions = block.record_positions
                    if positions is None:
                        continue
                    named += 1
                    instant = block.headers[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS]
                    stored = pq.ParquetFile(bases[slice_.file_id, instant]).read([RECORD_KEY]).column(0).to_pylist()
                    is_delete = block.type is BlockType.DELETE
                    rows = block.deletes() if is_delete else block.records()
                    keys = rows.column("record_key" if is_delete else RECORD_KEY).to_pylist()
                    assert [stored[at] for at in positions.tolist()] == keys
                    assert all(stored.count(key) == 1 for key in keys)
    return named, total


def _name(path: Path) -> BaseFileName | None:
    return BaseFileName.parse(path.name)
