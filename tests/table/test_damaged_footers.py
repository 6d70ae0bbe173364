"""Footers of Parquet files with flipped bits: an answer, or an error that names the file. Arrow aborts at some."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FLIPS = """
import datetime, random, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from skep_format.basefile import open_base
from skep_format.errors import SkepError
from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage
from skep_format.timeline import lsm_rows
from skep_table.metadata_table.records.summaries import summaries_of_base_file
from skep_table.write.bootstrap import source

folder, site = Path(sys.argv[1]), sys.argv[2]
storage, day = LocalStorage(str(folder)), datetime.date(1500, 1, 1)
moment = datetime.datetime(2000, 1, 1)
rows = pa.table({"id": ["a", "b"], "n": [1, 2], "f": [1.5, 2.5], "d": [day, day], "t": [moment, moment]})
columns = {field.name: field.type for field in from_arrow(rows.schema).fields}
time = InstantTime("20200101000000000")
if site == "history":
    rows = pa.table({name: [str(time)] * 2 for name in lsm_rows.TIMES})
elif site == "calendar":
    rows = rows.replace_schema_metadata({"org.apache.spark.version": "2.4.0"})
int96 = site == "calendar"
pq.write_table(rows, folder / "f.parquet", row_group_size=1, store_schema=False, use_deprecated_int96_timestamps=int96)

def look():
    if site == "history":
        lsm_rows.read_footer(storage, "f.parquet").groups_within(time, time)
    elif site == "source":
        (file,) = storage.list_prefix("")
        source._facts(storage, list(columns), file)
    elif site == "calendar":
        with open_base(storage, "f.parquet") as opened:
            list(opened.rows())
    else:
        with open_base(storage, "f.parquet") as opened:
            opened.footer()
            metadata = opened.column_metadata
            read = lambda names: pa.Table.from_batches(list(opened.rows(columns=names)))
            metadata is None or summaries_of_base_file(metadata, columns, read)

look()
data = (folder / "f.parquet").read_bytes()
size = int.from_bytes(data[-8:-4], "little")
chance, errors = random.Random(1), 0
for _ in range(100):
    at, bit = len(data) - 8 - chance.randrange(size), chance.randrange(8)
    print(site, at, bit, flush=True)
    (folder / "f.parquet").write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    try:
        look()
    except SkepError as error:
        errors += 1
        assert "f.parquet" in str(error), error
print(errors)
"""


@pytest.mark.parametrize("site", ["index", "source", "history", "calendar"])
def test_flipped_bits_end_no_process(site: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FLIPS, str(tmp_path), site]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr[-2000:])
    assert int(done.stdout.splitlines()[-1]) > 10
