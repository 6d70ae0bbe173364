"""Whole tables with a damaged file: an error that names the file, or Hudi's own rule for corrupt blocks."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from skep_format.errors import FormatError, SkepError
from skep_format.json_text import json_lines
from skep_format.logfile import read_blocks
from skep_format.storage import LocalStorage
from skep_table.query import read
from skep_table.table import HudiTable

TABLES = [
    ("0.15.0", "mor_upsert"),
    ("0.15.0", "mor_parquet_log"),
    ("1.0.2", "mor_upsert"),
    ("1.1.1", "mor_partial_update"),
    ("1.1.1", "cow_upsert"),
]
CUTS, FLIPS = 4, 4


def rows_of(folder: Path) -> Counter[str]:
    lines = [bytes(json_lines(batch)) for batch in read(HudiTable.open(folder)).to_batches()]
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in b"".join(lines).split(b"\n") if line)


@pytest.fixture(params=TABLES, ids=["-".join(pair) for pair in TABLES])
def table(request: pytest.FixtureRequest, golden: Path, tmp_path: Path) -> Path:
    version, case = request.param
    return Path(shutil.copytree(golden / version / case / "table", tmp_path / "table"))


def live_files(folder: Path, ending: str) -> list[Path]:
    """Files of one kind that a snapshot reads; one a partition is enough."""
    view = HudiTable.open(folder).view(metadata=False)
    paths = []
    for partition in view.partitions():
        for found in view.slices(partition)[:1]:
            files = [found.base_file] if ending == ".parquet" else list(found.log_files[-1:])
            paths += [folder / file.path for file in files if file is not None]
    return paths


def test_a_cut_base_file_is_an_error(table: Path) -> None:
    positions = random.Random(1)
    for file in live_files(table, ".parquet"):
        whole = file.read_bytes()
        for cut in [0, 4, len(whole) - 1, *positions.sample(range(len(whole)), CUTS)]:
            file.write_bytes(whole[:cut])
            with pytest.raises(FormatError, match=file.name):
                rows_of(table)
        file.write_bytes(whole)


def test_a_cut_log_reads_up_to_its_last_whole_block(table: Path) -> None:
    positions = random.Random(2)
    storage = LocalStorage(str(table))
    for file in live_files(table, ".log"):
        whole = file.read_bytes()
        path = str(file.relative_to(table))
        with storage.open_input(path) as source:
            ends = [0, *(block.offset + block.size for block in read_blocks(source, path))]
        for cut in [len(whole) - 1, *positions.sample(range(6, len(whole)), CUTS)]:
            file.write_bytes(whole[: max(end for end in ends if end <= cut)])
            expected = rows_of(table)
            file.write_bytes(whole[:cut])
            assert rows_of(table) == expected
        file.write_bytes(whole)


def test_flipped_bits_never_get_past_as_anything_but_errors_or_rows(table: Path) -> None:
    """Avro blocks have no checksum: a read ends with an error of skep's or a result, in bounded time."""
    positions = random.Random(3)
    for file in [*live_files(table, ".log")[:2], *live_files(table, ".parquet")[:1]]:
        whole = file.read_bytes()
        for position in positions.sample(range(len(whole)), FLIPS):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << positions.randrange(8)
            file.write_bytes(damaged)
            try:
                rows_of(table)
            except SkepError as error:
                assert file.name in str(error)  # noqa: PT017 - it may as well not raise
        file.write_bytes(whole)
