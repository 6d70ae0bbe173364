"""Bloom filters of the Parquet format: which columns have one, by the keys of Hadoop's Parquet writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

NAMES = [f"name {n}" for n in range(2000)]
ROWS = pa.table(
    {
        "id": NAMES,
        "n": pa.array(range(2000), pa.int32()),
        "ok": [True] * 2000,
        "place": [{"city": name} for name in NAMES],
        "tags": [["x"]] * 2000,
    }
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_table(LocalStorage(str(tmp_path)), TableSpec(name="t", schema=ROWS.schema, record_key=("id",)))


def filters(table: HudiTable, **options: object) -> dict[str, int]:
    """Column → bytes of its filter, in the file that a write made."""
    given = Options({key: str(value) for key, value in options.items()})
    (stat,) = LocalWriter(table.with_context(options=given)).bulk_insert(ROWS).metadata.stats
    group = pq.read_metadata(Path(table.storage.root) / stat.path).row_group(0)
    columns = (group.column(at) for at in range(group.num_columns))
    return {c.path_in_schema: c.bloom_filter_length for c in columns if c.bloom_filter_offset is not None}


def test_no_column_has_one_unless_it_is_asked_for(table: HudiTable) -> None:
    assert filters(table) == {}


def test_columns_by_name(table: HudiTable) -> None:
    on = {"parquet.bloom.filter.enabled#n": "true", "parquet.bloom.filter.enabled#place.city": "true"}
    usual = filters(table, **on)
    assert usual.keys() == {"n", "place.city"}
    less = filters(table, **on, **{"parquet.bloom.filter.expected.ndv#n": 10})
    assert less["n"] < usual["n"]
    assert less["place.city"] == usual["place.city"]
    assert filters(table, **on, **{"parquet.bloom.filter.expected.ndv": 10})["place.city"] < usual["place.city"]
    rarely_wrong = filters(table, **on, **{"parquet.bloom.filter.fpp": 0.000_001})
    assert rarely_wrong["place.city"] > usual["place.city"]


def test_all_columns_but_some(table: HudiTable) -> None:
    found = filters(table, **{"parquet.bloom.filter.enabled": "true", "parquet.bloom.filter.enabled#n": "false"})
    assert {name for name in found if not name.startswith("_hoodie_")} == {"id", "place.city"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parquet.bloom.filter.enabled#nowhere", "true"),
        ("parquet.bloom.filter.enabled#ok", "true"),
        ("parquet.bloom.filter.enabled#n", "perhaps"),
        ("parquet.bloom.filter.fpp#n", "seldom"),
    ],
)
def test_what_makes_no_filter_is_refused_by_name(table: HudiTable, key: str, value: str) -> None:
    with pytest.raises(OptionError) as refused:
        filters(table, **{key: value})
    assert refused.value.fields["option"] == key
    assert not len(table.reload().timeline)
