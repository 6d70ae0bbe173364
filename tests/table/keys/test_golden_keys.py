"""Keys and paths made from the data columns of golden tables are those that Hudi wrote beside them."""

from __future__ import annotations

from pathlib import Path

import golden_archives as archives
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.basefile import read_footer
from skep_format.errors import KeyFieldError, OptionError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.evolve import project
from skep_format.table_config import TableConfig
from skep_table.keys import KeyGenerator, infer_key_generator, split_path
from skep_table.table import HudiTable

VERSIONS = ("0.15.0", "1.0.2", "1.1.1")
CASES = (
    "cow_insert",
    "cow_complex_key",
    "cow_custom_keygen",
    "cow_multi_partition_hive",
    "cow_nonpartitioned",
    "cow_special_chars_urlencode_hive",
    "cow_sql_dml",
    "cow_timestamp_keygen_date_string",
    "cow_types_edge",
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_keys_and_paths_are_hudis(case: str, version: str, golden: Path) -> None:
    folder = golden / version / case
    table = HudiTable.open(str(folder / "table"))
    options = dict(archives.Case(version, case, folder).facts["base_options"])
    generator = KeyGenerator.of(table.config, options)
    seen = 0
    for file in sorted((folder / "table").rglob("*.parquet")):
        if ".hoodie" in file.parts:
            continue
        relative = str(file.relative_to(folder / "table"))
        schema = read_footer(table.storage, relative).schema.without_meta()
        raw = pq.ParquetFile(file).read()
        if not raw.num_rows:
            continue
        rows = project(raw.drop_columns([name for name in raw.schema.names if name.startswith("_hoodie_")]), schema)
        keys = raw.column("_hoodie_record_key").to_pylist()
        asked = generator.as_in(keys[0])
        assert asked.record_keys(rows).to_pylist() == keys
        assert asked.partition_paths(rows).to_pylist() == raw.column("_hoodie_partition_path").to_pylist()
        seen += raw.num_rows
    assert seen


def test_paths_of_special_values_split_back(golden: Path) -> None:
    folder = golden / "0.15.0/cow_special_chars_urlencode_hive/table"
    table = HudiTable.open(str(folder))
    (field,) = table.config.partition_fields
    for path in table.view().partitions():
        values = split_path(path, [field], hive_style=table.config.hive_style, url_encode=table.config.url_encode)
        stored: set[str | None] = set()
        for slice_ in table.view().slices(path):
            assert slice_.base_file is not None
            stored.update(pq.ParquetFile(folder / slice_.base_file.path).read([field]).column(0).to_pylist())
        assert {value or None for value in stored} == {values[field]}


def test_types_that_version_6_does_not_store_have_to_be_given(golden: Path) -> None:
    table = HudiTable.open(str(golden / "0.15.0/cow_custom_keygen/table"))
    generator, schema = KeyGenerator.of(table.config), to_arrow(table.schema())
    for use in (generator.check, lambda columns: generator.partition_paths(columns.empty_table())):
        with pytest.raises(OptionError, match=r"partitionpath\.field"):
            use(schema)


def test_single_field_complex_keys_are_written_as_the_table_has_them() -> None:
    config = TableConfig(name="t", record_key_fields=("id",), partition_fields=("p", "q"), key_generator="COMPLEX")
    rows = pa.table({"id": pa.array(["k"], pa.large_string()), "p": [1], "q": [True]})
    generator = KeyGenerator.of(config)
    assert generator.record_keys(rows).to_pylist() == ["k"]
    assert generator.as_in("id:z").record_keys(rows).to_pylist() == ["id:k"]
    assert generator.partition_paths(rows).to_pylist() == ["1/true"]


def test_keys_of_several_fields_name_nulls_and_empty_text() -> None:
    generator = KeyGenerator.of(TableConfig(name="t", record_key_fields=("a", "b")))
    rows = pa.table({"a": ["x", None, ""], "b": pa.array([1, 2, 3])})
    assert generator.record_keys(rows).to_pylist() == ["a:x,b:1", "a:__null__,b:2", "a:__empty__,b:3"]
    with pytest.raises(KeyFieldError, match=r"a, b is null or empty in 1 row$") as caught:
        generator.record_keys(pa.table({"a": ["x", None], "b": pa.array([1, None], pa.int64())}))
    assert caught.value.fields["rows"] == 1


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        (("a",), (), "NON_PARTITION"),
        (("a", "b"), (), "NON_PARTITION"),
        (("a",), ("p",), "SIMPLE"),
        (("a", "b"), ("p",), "COMPLEX"),
        (("a",), ("p", "q"), "COMPLEX"),
        (("a",), ("p:simple", "q:timestamp"), "CUSTOM"),
    ],
)
def test_the_generator_is_inferred_as_hudi_does(keys: tuple[str, ...], partitions: tuple[str, ...], kind: str) -> None:
    assert infer_key_generator(keys, partitions).value == kind
