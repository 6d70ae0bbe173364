"""Partitions of any values, from a table's rows through its folders to a real metastore, and out of it again."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skep_catalog.client import Metastore
from skep_sync.locations import same_location
from skep_sync.sync import plan_sync, sync_table
from skep_sync.values import values_of_name
from skep_table.commit.create import TableSpec, create_table
from skep_table.names import DEFAULT_PARTITION
from skep_table.storage import LocalStorage
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SPECIAL = st.sampled_from(
    ["%", "/", "=", " ", "a b", "%2F", "a=b/c", "..", "'", '"', "\\", "\t", "ü", "😀", ":", "{}", "#?"]
)
TEXT = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=12)
VALUE = st.none() | SPECIAL | TEXT


def _distinct(values: list[tuple[str | None, str | None]]) -> bool:
    """SQL compares text without the blanks at its end, and so does a metastore's database."""
    spelt = [tuple((one or DEFAULT_PARTITION).rstrip() for one in pair) for pair in values]
    return len(set(spelt)) == len(spelt)


@pytest.mark.metastore
@pytest.mark.filterwarnings("ignore::skep_table.write.flow.EmptyPartitionWarning")  # "" is one of the values
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=4).filter(_distinct))
@example(values=[("%", "/"), ("=", " x"), ("", None), ("a=b/c", "%25")])
def test_values_arrive_as_they_are_and_go_again(
    metastore: Metastore, database: str, tmp_path: Path, values: list[tuple[str | None, str | None]]
) -> None:
    path = tmp_path / uuid.uuid4().hex
    rows = pa.table(
        {
            "id": pa.array([f"k{i}" for i in range(len(values))]),
            "p": pa.array([p for p, _ in values], pa.string()),
            "q": pa.array([q for _, q in values], pa.string()),
        }
    )
    spec = TableSpec(
        name=f"t{path.name}",
        schema=rows.schema,
        record_key=("id",),
        partition_by=("p", "q"),
        hive_style=True,
        url_encode=True,
    )
    create_table(LocalStorage(str(path)), spec)
    LocalWriter(HudiTable.open(str(path))).upsert(rows)
    table = HudiTable.open(str(path))
    name = table.config.name
    sync_table(table, metastore, database)
    wanted = {tuple(one or DEFAULT_PARTITION for one in pair) for pair in values}
    found = {partition.values: partition for partition in metastore.partitions(database, name)}
    assert found.keys() == wanted
    assert {values_of_name(text) for text in metastore.partition_names(database, name)} == wanted
    for folder in table.view().partitions():
        assert any(same_location(one.storage.location, table.storage.uri(folder)) for one in found.values())
    assert not plan_sync(table, metastore, database, full=True)

    dropped = table.view().partitions()[0]
    LocalWriter(table).delete_partitions([dropped.replace("*", "%2A")])
    sync_table(table.reload(), metastore, database)
    left = {partition.storage.location for partition in metastore.partitions(database, name)}
    assert len(left) == len(wanted) - 1
    assert not any(same_location(location, table.storage.uri(dropped)) for location in left)
    assert not plan_sync(table.reload(), metastore, database, full=True)
