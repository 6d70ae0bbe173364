"""Indexes of many keys and files take memory by the file group, not by the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from many_partitions import make
from metadata_listings import KEPT

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

KEYS, PARTITIONS = 4_000_000, 16
FEW_FILES, MANY_FILES = 1_000, 5_000
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int64())])

BUILD = """
import sys
from pathlib import Path
from skep_format.clock import SYSTEM_CLOCK
from skep_table.metadata_write import create_metadata_table
from skep_table.table import HudiTable

def peak():
    return int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])

options = {'hoodie.metadata.enable': 'true', 'hoodie.memory.spillable.map.path': sys.argv[2]}
table = HudiTable.open(sys.argv[1], options)
before = peak()
create_metadata_table(table, SYSTEM_CLOCK, sys.argv[3].split(','))
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_index_of_many_keys_is_made_in_little_memory(tmp_path: Path) -> None:
    """The keys alone take 160 MB, and their records several times that. Pages of the temporary file count as memory,
    though the system may drop them.
    """
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), type=TableType.COPY_ON_WRITE)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    for number in range(PARTITIONS):
        keys = [f"{number}-a-record-key-of-some-length-{at:08d}" for at in range(KEYS // PARTITIONS)]
        rows = pa.table({"id": keys, "part": [f"p{number}"] * len(keys), "n": range(len(keys))}, schema=SCHEMA)
        LocalWriter(table.reload()).bulk_insert(rows)
    names = ",".join((RECORD_INDEX, COLUMN_STATS, BLOOM_FILTERS))
    command = [sys.executable, "-c", BUILD, str(tmp_path / "t"), str(tmp_path / "spill"), names]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    made = HudiTable.open(str(tmp_path / "t"), KEPT)
    metadata = made.metadata_table()
    assert metadata is not None
    wanted = [f"{number}-a-record-key-of-some-length-{at:08d}" for number in range(PARTITIONS) for at in (0, 77_777)]
    found = metadata.record_index(pa.array(wanted))
    assert found is not None
    assert sorted(found["record_key"].to_pylist()) == sorted(wanted)
    peak = int(ran.stdout.split()[-1]) * 1024
    print(f"{peak >> 20} MiB")
    assert 50 << 20 < peak < 700 << 20


ANONYMOUS = """
import sys, threading
from pathlib import Path
from skep_format.clock import SYSTEM_CLOCK
from skep_table.metadata_write import create_metadata_table
from skep_table.table import HudiTable

def held():
    return int(Path('/proc/self/status').read_text().partition('RssAnon:')[2].split()[0])

def watch():
    while not done.wait(0.02):
        seen.append(held())

table = HudiTable.open(sys.argv[1], {'hoodie.metadata.enable': 'true'})
done, seen = threading.Event(), [held()]
thread = threading.Thread(target=watch)
thread.start()
create_metadata_table(table, SYSTEM_CLOCK, sys.argv[2].split(','))
done.set()
thread.join()
print(max(seen) - seen[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_statistics_of_many_partitions_take_no_more_memory_than_those_of_some(tmp_path: Path) -> None:
    """A partition with one small file takes little more than its records; as tables of their own these took 200 KB."""
    names, peaks = ",".join((FILES, COLUMN_STATS, PARTITION_STATS)), []
    for count in (FEW_FILES, MANY_FILES):
        place = tmp_path / str(count)
        make(place, count, version=9)
        command = [sys.executable, "-c", ANONYMOUS, str(place), names]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        metadata = HudiTable.open(str(place), KEPT).metadata_table()
        assert metadata is not None
        found = metadata.statistics_of_partitions("id", pa.int64(), metadata.partitions())
        assert found is not None
        assert found["file_name"].drop_null().length() == count
        peaks.append(int(ran.stdout.split()[-1]) * 1024)
    print([f"{peak >> 20} MiB" for peak in peaks])
    assert peaks[1] - peaks[0] < (MANY_FILES - FEW_FILES) * (60 << 10)
