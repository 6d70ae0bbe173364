"""Values that Hudi's encoding of keys and paths can't distinguish are refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import KeyFieldError
from skep_format.names import DEFAULT_PARTITION
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.flow import EmptyPartitionWarning
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([(name, pa.string()) for name in ("k1", "k2", "p1", "p2")] + [("n", pa.int64())])
ALLOW = {"skep.write.ambiguous.keys": "allow"}
Row = tuple[str | None, str | None, str | None, str | None]
Make = Callable[..., HudiTable]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(**spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("k1", "k2"), "partition_by": ("p1", "p2"), **spec}
        return create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=SCHEMA, **wanted))

    return table


def rows(*values: Row) -> pa.Table:
    columns = [pa.array([row[at] for row in values], pa.string()) for at in range(4)]
    return pa.table([*columns, pa.array(range(len(values)), pa.int64())], schema=SCHEMA)


def write(table: HudiTable, frame: pa.Table, operation: str = "upsert", **options: Any) -> None:
    getattr(LocalWriter(table.reload().with_context(options=Options(options))), operation)(frame)


def stored(table: HudiTable) -> list[tuple[Any, ...]]:
    found = read(table.reload(), ReadRequest(columns=("k1", "k2", "p1", "p2"))).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


SAME_KEY: list[tuple[Row, Row]] = [
    (("x,k2:y", "z", "p", "q"), ("x", "y,k2:z", "p", "q")),
    ((None, "z", "p", "q"), ("__null__", "z", "p", "q")),
    (("", "z", "p", "q"), ("__empty__", "z", "p", "q")),
    (("z", None, "p", "q"), ("z", "__null__", "p", "q")),
]
SAME_PATH: list[tuple[Row, Row]] = [(("k", "l", "a/b", "c"), ("k", "l", "a", "b/c"))]


@pytest.mark.parametrize("operation", ["bulk_insert", "insert", "upsert", "delete", "insert_overwrite"])
@pytest.mark.parametrize("two", [*SAME_KEY, *SAME_PATH])
def test_one_of_two_rows_that_would_become_one_is_refused(operation: str, two: tuple[Row, Row], make: Make) -> None:
    table = make()
    for frame in (rows(*two), rows(*two[::-1])):
        with pytest.raises(KeyFieldError, match=r"column (k1|k2|p1): .* can make the same") as refused:
            write(table, frame, operation)
        assert "skep.write.ambiguous.keys=allow" in str(refused.value)
    assert not table.reload().timeline.instants


@pytest.mark.parametrize("two", [*SAME_KEY, *SAME_PATH])
def test_they_meet_in_different_batches_neither(two: tuple[Row, Row], make: Make) -> None:
    table = make()
    written = 0
    for row in two:
        try:
            write(table, rows(row))
            written += 1
        except KeyFieldError:
            pass
    assert written == 1
    assert len(stored(table)) == 1


@pytest.mark.parametrize("two", [*SAME_KEY, *SAME_PATH])
def test_hudis_behaviour_can_be_had(two: tuple[Row, Row], make: Make) -> None:
    table = make()
    write(table, rows(*two), **ALLOW)
    assert len(stored(table)) == 1, "Hudi's encoding makes one key of them"


def test_what_is_not_ambiguous_is_written(make: Make) -> None:
    table = make()
    given: list[Row] = [
        ("a,b:c", "k1:x,y", "2024", "01/02"),
        ("k2:", ",k1:", "x=y", "w/p1=z"),
        (None, "v", "p", "q"),
        ("", "v", "p", "q"),
    ]
    write(table, rows(*given))
    assert stored(table) == sorted(given, key=repr)


def test_encoded_paths_and_single_keys_take_any_text(make: Make) -> None:
    table = make(record_key=("k1",), url_encode=True)
    given: list[Row] = [("__null__", "", "a/b", "c"), ("x,k2:y", "z", "a", "b/c")]
    write(table, rows(*given))
    assert stored(table) == sorted(given, key=repr)


def test_hive_style_paths_hold_any_slash_but_the_one_before_the_next_column(make: Make) -> None:
    table = make(hive_style=True)
    write(table, rows(("k", "l", "a/b", "c"), ("k", "l", "a", "b/c")))
    assert len(stored(table)) == 2
    with pytest.raises(KeyFieldError, match=r"column p1: 'a/p2=b'"):
        write(table, rows(("k", "l", "a/p2=b", "c")))


def test_numbers_are_not_looked_at(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.date32()), ("v", pa.string())])
    spec = TableSpec(name="t", schema=schema, record_key=("a", "b"), partition_by=())
    table = create_table(LocalStorage(str(tmp_path / "n")), spec)
    write(table, pa.table([[1], [None], ["__null__"]], schema=schema))
    assert len(read(table.reload(), ReadRequest()).to_arrow()) == 1


@pytest.mark.parametrize("value", ["", DEFAULT_PARTITION])
@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_text_in_the_default_partition_is_a_warning(value: str, operation: str, make: Make) -> None:
    table = make()
    write(table, rows(("a", "b", None, "q")), operation)  # null is what the default partition is for
    with pytest.warns(
        EmptyPartitionWarning, match=r"or __HIVE_DEFAULT_PARTITION__, in partition column p1: .*read null"
    ):
        write(table, rows(("c", "d", value, "q")), operation)
