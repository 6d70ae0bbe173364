"""Run as a script: upserts an Arrow file into a table with skep and dies when all is written but the last step."""

from __future__ import annotations

import os
import sys

import pyarrow as pa

from skep_format.options import Options
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter


def die(*_: object) -> None:
    os._exit(9)


with pa.memory_map(sys.argv[2]) as file:
    rows = pa.ipc.open_file(file).read_all()
options = Options(dict(option.split("=", 1) for option in sys.argv[3:]))
LocalWriter(HudiTable.open(sys.argv[1], options).with_context(conflict_check=die)).upsert(rows)
