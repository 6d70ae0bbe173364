"""Tables that Hudi wrote: registered by Hudi's own tool and by skep, engines answer the same for both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from engine_asking import Engine, EngineRefused
from engine_starting import ENGINES, engine_param
from engine_values import difference, rows_answered, rows_of

from benchmarks.peers.bundle import PeerMissing
from benchmarks.peers.jvm import Jvm
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Database
from skep_format.schema.types import FILE_NAME
from skep_sync.sync import sync_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

CASES = ("cow_upsert", "mor_upsert", "cow_multi_partition_hive", "mor_compaction")
TOOL, OURS = "by_tool", "by_skep"


@pytest.fixture(scope="session")
def twice_registered(golden: Path, metastore_server: EmbeddedMetastore, scratch: Path) -> Callable[[str], HudiTable]:
    """Each case in two databases, once for the run: the JVM is up only while it registers."""
    tables = {case: HudiTable.open(str(golden / "0.15.0" / case / "table")) for case in CASES}
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
        for database in (TOOL, OURS):
            client.create_database(Database(database, location=f"file://{scratch}/{database}.db"), if_not_exists=True)
        try:
            jvm = Jvm("0.15.0")
        except PeerMissing as missing:
            pytest.skip(str(missing))
        with jvm:
            for table in tables.values():
                jvm.request("sync", options=tool_options(table), uri=metastore_server.uri)
                sync_table(table, client, OURS)
    return tables.__getitem__


def tool_options(table: HudiTable) -> dict[str, str]:
    fields = ",".join(table.config.partition_fields)
    case = json.loads((Path(table.storage.root).parent / "case.json").read_text())
    extractor = "MultiPartKeysValueExtractor" if fields else "NonPartitionedExtractor"
    return {
        **{key: str(value) for key, value in case["base_options"].items()},
        "hoodie.datasource.meta.sync.base.path": table.storage.root,
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.database": TOOL,
        "hoodie.datasource.hive_sync.table": table.config.name,
        "hoodie.datasource.hive_sync.partition_fields": fields,
        "hoodie.datasource.hive_sync.partition_extractor_class": f"org.apache.hudi.hive.{extractor}",
        "hoodie.datasource.hive_sync.support_timestamp": "true",
    }


def is_plain(kind: pa.DataType) -> bool:
    """Times have their limits in each engine; Spark's Thrift Server hands out binary and nested values as a text that
    not all values survive. All of them are among the tables that skep writes."""
    return not (pa.types.is_temporal(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind))


@pytest.mark.parametrize(
    "engine",
    # A Hive 4 has a metastore of its own release, to which Hudi's tool does not speak.
    [engine_param(name) for name in ENGINES if not name.startswith("hive-4")],
    indirect=True,
)
@pytest.mark.parametrize("case", CASES)
def test_both_are_answered_as_skep_reads(
    engine: Engine, twice_registered: Callable[[str], HudiTable], case: str
) -> None:
    table = twice_registered(case)
    name = table.config.name
    views = {f"{name}_ro": "read_optimized", f"{name}_rt": "snapshot"} if table.config.is_mor else {name: "snapshot"}
    for view, query in views.items():
        answered = query if engine.merges or not table.config.is_mor else "read_optimized"
        expected = read(table, ReadRequest(query=answered)).to_arrow()  # type: ignore[arg-type]
        names = [field.name for field in expected.schema if is_plain(field.type) and field.name != FILE_NAME]
        expected = expected.select(names)
        for database in (TOOL, OURS):
            columns = ", ".join(engine.quote(column) for column in names)
            answer = engine.ask(f"select {columns} from {engine.quote(f'{database}.{view}')}")
            rows = rows_answered(answer.names, answer.rows, expected.schema)
            assert not (found := difference(rows, rows_of(expected))), f"{database}.{view}: {found}"


HIVES, HUDIS = "org.apache.hadoop.hive.ql.io", "org.apache.hudi.hadoop"


@pytest.mark.slow
@pytest.mark.parametrize("engine", [engine_param("hive-2.3.10")], indirect=True)
@pytest.mark.parametrize(
    ("input_format", "reads"),
    [
        (f"{HUDIS}.hive.HoodieCombineHiveInputFormat", "the newest files"),
        (f"{HIVES}.HiveInputFormat", "the newest files"),
        (f"{HIVES}.CombineHiveInputFormat", "all files"),
        (f"{HUDIS}.HoodieParquetInputFormat", "none"),
    ],
)
def test_hives_jobs_treat_both_alike(
    engine: Engine, twice_registered: Callable[[str], HudiTable], input_format: str, reads: str
) -> None:
    """With any `hive.input.format`: also one that reads all versions of files, and one that no job can wrap."""
    table = twice_registered("cow_upsert")
    for database in (TOOL, OURS):
        count = (
            f"select count(*), count(distinct `{FILE_NAME}`) from {engine.quote(f'{database}.{table.config.name}')}",
            f"set hive.input.format={input_format}",
        )
        if reads == "none":
            with pytest.raises(EngineRefused, match=r"return code 2 from .*MapRedTask"):
                engine.ask(*count)
            continue
        ((rows, files),) = engine.ask(*count).rows
        held = read(table, ReadRequest()).to_arrow()
        assert (rows == held.num_rows) == (reads == "the newest files"), database
        assert (files == len(set(held[FILE_NAME].to_pylist()))) == (reads == "the newest files"), database
