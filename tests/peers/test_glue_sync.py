"""skep's sync to AWS Glue beside AwsGlueCatalogSyncTool: the same tables into two databases on moto's server."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import golden_archives
import pytest
from peer_hive_tables import MADE

from benchmarks.peers.bundle import PeerMissing, bundle, glue_tool, java
from skep_catalog.entities import StorageDescriptor
from skep_catalog.entries import COMPLETION_MARKER, OWNED_BY
from skep_catalog.glue.client import GlueCatalog
from skep_sync.planning.locations import location
from skep_sync.sync import plan_sync, sync_table
from skep_table.table import HudiTable

HIVE = "hoodie.datasource.hive_sync."
SOURCE = Path(__file__).parent / "java" / "GlueSync.java"
SCHEMA = "spark.sql.sources.schema.part.0"
OURS_ALONE = {COMPLETION_MARKER, OWNED_BY}
"""Parameters that Hudi 0.15 has no like of."""
OF_TABLES = {"path", "hoodie.query.as.ro.table"}
"""Serde parameters that are left out at partitions, as in a metastore: docs/sync-and-hudi.md."""


def hudi_syncs(folder: Path, tables: list[Path], database: str, options: dict[str, str]) -> None:
    """One run of Hudi's tool over several tables."""
    try:
        jars = [bundle("0.15.0"), *glue_tool("0.15.0")]
    except PeerMissing as missing:
        pytest.skip(str(missing))
    files = []
    for table in tables:
        config = HudiTable.open(str(table)).config
        properties = {
            **options,
            "hoodie.datasource.write.hive_style_partitioning": str(config.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(config.url_encode).lower(),
            "hoodie.datasource.meta.sync.base.path": f"file://{table}",
            "hoodie.aws.glue.region": "us-east-1",
            HIVE + "support_timestamp": "true",
            HIVE + "partition_fields": ",".join(config.partition_fields),
            HIVE + "database": database,
            HIVE + "table": config.name,
        }
        files.append(folder / f"{config.name}.properties")
        files[-1].write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    path = ":".join([*map(str, jars), f"{Path(spark.origin).parent / 'jars'}/*"])
    keys = ("-Daws.accessKeyId=key", "-Daws.secretAccessKey=secret")
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    command = [java(), *quick, *keys, "-cp", path, SOURCE, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def facts(storage: StorageDescriptor, leave_out: set[str]) -> dict[str, Any]:
    found = asdict(storage)
    found["location"] = location(storage.location or "")
    found["serde_parameters"] = {key: v for key, v in storage.serde_parameters.items() if key not in leave_out}
    found["columns"] = [(c.name, c.type, c.comment or "") for c in storage.columns]
    return found


def without_nulls_in_lists(parameters: dict[str, str]) -> dict[str, Any]:
    """Hudi's tool states that elements of lists can't be null: docs/sync-and-hudi.md."""

    def seen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: seen(v) for key, v in value.items() if key != "containsNull"}
        return [seen(v) for v in value] if isinstance(value, list) else value

    return {key: seen(json.loads(v)) if key == SCHEMA else v for key, v in parameters.items() if key not in OURS_ALONE}


def held(glue: GlueCatalog, database: str) -> dict[str, Any]:
    """All that two entries of one table should have in common."""
    found: dict[str, Any] = {}
    for entry in glue.tables_of(database):
        found[entry.name] = {
            "storage": facts(entry.storage, set()),
            "keys": [(key.name, key.type, key.comment or "") for key in entry.partition_keys],
            "parameters": without_nulls_in_lists(dict(entry.parameters)),
            "kind": (entry.table_type, entry.owner),
            "partitions": {p.values: facts(p.storage, OF_TABLES) for p in glue.partitions(database, entry.name)},
        }
    return found


@pytest.mark.peer("hudi-0.15.0")
def test_entries_are_those_of_hudis_tool(golden: Path, glue_options: dict[str, str], tmp_path: Path) -> None:
    """A partitioned table, and the views of a merge-on-read table; then neither finds anything to do."""
    case = next(c for c in golden_archives.cases(golden) if (c.version, c.name) == ("0.15.0", "mor_upsert"))
    tables = [tmp_path / "dates", tmp_path / "mor_upsert"]
    MADE["dates"](tables[0])
    shutil.copytree(case.table, tables[1])
    theirs, ours = (f"{who}_{uuid.uuid4().hex[:8]}" for who in ("theirs", "ours"))
    hudi_syncs(tmp_path, tables, theirs, glue_options)
    with GlueCatalog.connect("glue://us-east-1", glue_options) as glue:
        for table in map(HudiTable.open, map(str, tables)):
            sync_table(table, glue, ours)
            # Of an entry of Hudi's there is nothing to put right but what Hudi's tool does not write.
            steps = plan_sync(table, glue, theirs, full=True).steps
            changes = {change.what for step in steps for change in getattr(step, "changes", ())}
            assert changes <= {f"parameter {COMPLETION_MARKER}", f"parameter {SCHEMA}"}
        assert held(glue, theirs) == held(glue, ours)
        for database in (theirs, ours):
            glue.drop_database(database, cascade=True)
