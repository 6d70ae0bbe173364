"""Tables whose rows stay in the files of which they were made: who finds them there, by Hudi's own input formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_asking import Engine, EngineRefused
from engine_starting import SPARK_THRIFT, engine_param
from engine_values import difference, rows_answered, rows_of

from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore

NO_HFILES = "presto-0.287"
"""It lacks the classes that read the index of a bootstrap, of Hudi's tables as of skep's."""


def rows(*ids: str, **more: list[str]) -> pa.Table:
    return pa.table({"id": ids, "ts": [len(more)] * len(ids), "v": [name * 2 for name in ids], **more})


@pytest.fixture(scope="session")
def bootstrapped(metastore_server: EmbeddedMetastore, scratch: Path) -> Iterator[dict[str, Table]]:
    """By entry of the metastore: one of skeletons alone, one of which a file is rewritten, a merge-on-read table."""
    source = scratch / "bootstrap_source"
    for part, ids in {"p": ("a", "b"), "q": ("c",)}.items():
        file = source / f"part={part}" / "0.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(rows(*ids), file)
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
        lake = Lake(client, str(scratch / "bootstraps"), database="bootstraps")
        for name, kind in {"skeletons": "cow", "changed": "cow", "merged": "mor"}.items():
            lake.bootstrap(name, str(source), key="id", ordering="ts", type=kind)
        lake.table("changed").upsert(rows("a", part=["p"]))
        yield {
            "skeletons": lake.table("skeletons"),
            "changed": lake.table("changed"),
            "merged": lake.table("merged"),
            "merged_ro": lake.table("merged"),
        }


@pytest.mark.parametrize("engine", [engine_param(n) for n in ("hive-2.3.10", SPARK_THRIFT, NO_HFILES)], indirect=True)
def test_rows_that_stay_in_their_files(engine: Engine, bootstrapped: dict[str, Table]) -> None:
    for entry, table in bootstrapped.items():
        select = f"select * from {engine.quote(f'bootstraps.{entry}')}"
        if engine.name == NO_HFILES:
            with pytest.raises(EngineRefused, match="Unable to load class"):
                engine.ask(select)
        else:
            expected, answer = table.read().to_arrow(), engine.ask(select)
            found = difference(rows_answered(answer.names, answer.rows, expected.schema), rows_of(expected))
            assert not found, f"{engine.name}: {entry}: {found}"
