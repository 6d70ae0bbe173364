"""The options of reading slices, by Hudi's names."""

from __future__ import annotations

import tempfile

from skep_format.options import boolean, option

MERGE_BYTES = option(
    "hoodie.memory.merge.max.size",
    int,
    1024 * 1024 * 1024,
    "Log rows of one slice that are held in memory, in bytes; more spill to disk.",
)
SPILL_FOLDER = option(
    "hoodie.memory.spillable.map.path",
    str,
    "",
    f"Where log rows spill to; the system's temporary folder ({tempfile.gettempdir()}) when not set.",
)
BY_POSITION = option(
    "hoodie.merge.use.record.positions",
    boolean,
    False,
    "Rows of logs find theirs in the base file by the positions that all blocks of the slice name, else by key",
)
BOOTSTRAP_BASE_PATH = option(
    "hoodie.bootstrap.base.path",
    str,
    "",
    "What a bootstrap makes a table of; later, where these files lie now, which the table has under another path",
)
