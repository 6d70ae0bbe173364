"""Defaults of options are those of Hudi, or docs/defaults.md names the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import skep.base.known_options
import skep.handles.table  # noqa: F401 - with it all options are known
from skep_format.options import REGISTRY, Option, Status

HERE = Path(__file__).parent
DIFFERENCES = HERE.parents[1] / "docs" / "defaults.md"
SAME_IN_EFFECT = {
    "hoodie.datasource.write.keygenerator.class": "Hudi, too, derives it from keys and partition columns",
    "hoodie.datasource.write.keygenerator.type": "Hudi, too, derives it from keys and partition columns",
    "hoodie.index.type": "Hudi's depends on the engine, for Spark it is the same",
    "hoodie.logfile.data.block.format": "Hudi's depends on the format of base files, for Parquet it is the same",
    "hoodie.datasource.hive_sync.database": "that of the table, in Hudi also where it has one",
    "hoodie.datasource.hive_sync.table": "that of the table, in Hudi, too",
    "hoodie.datasource.hive_sync.partition_extractor_class": "Hudi, too, derives it from the partition columns",
    "hoodie.datasource.hive_sync.serde_properties": "none",
    "hoodie.datasource.hive_sync.table_properties": "none",
    "hoodie.meta.sync.client.tool.class": "Hudi's own tool",
    "hoodie.compaction.payload.class": "Hudi's alias of hoodie.datasource.write.payload.class, which is named",
}
"""The key generator applies those of its own settings where it reads them."""
OF_TIMES = "hoodie.keygen.timebased."


def is_default(ours: Option[Any], text: str) -> bool:
    if text == "":
        return ours.default in ("", (), None)
    return bool(ours.parse(text) == ours.default)


def test_other_defaults_than_hudis_are_in_the_docs() -> None:
    named, different, compared = DIFFERENCES.read_text(encoding="utf-8"), {}, 0
    for line in (HERE / "hudi_defaults.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        key, _, default = line.partition("\t")
        ours = REGISTRY.find(key)
        if ours is None or ours.status is not Status.SUPPORTED or key in SAME_IN_EFFECT or key.startswith(OF_TIMES):
            continue
        compared += 1
        if not is_default(ours, default) and f"`{key}`" not in named:
            different[key] = f"{default}, {ours.default} here"
    assert compared > 190
    assert not different, "\n".join(f"{k}: {v}" for k, v in different.items())
