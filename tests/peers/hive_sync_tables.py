"""Tables that the golden ones have no like of, written to be synced: partition paths, comments, changes of columns.

Each function writes one at a path; the last of its commits is the one that a case in two steps hides at first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

MADE: dict[str, Callable[[Path], None]] = {}


def _made(write: Callable[[Path], None]) -> Callable[[Path], None]:
    MADE[write.__name__] = write
    return write


def _table(path: Path, first: pa.Table, **spec: Any) -> Callable[[pa.Table], object]:
    """Makes the table and writes its first rows; the answer upserts more."""
    create_table(LocalStorage(str(path)), TableSpec(name="t", schema=first.schema, record_key=("id",), **spec))

    def upsert(rows: pa.Table) -> object:
        return LocalWriter(HudiTable.open(str(path))).upsert(rows)

    upsert(first)
    return upsert


def _rows(values: Sequence[Any], kind: pa.DataType | None = None, *, name: str = "p", **more: pa.Array) -> pa.Table:
    """One row a partition value."""
    ids = pa.array([f"k{i}" for i in range(len(values))])
    return pa.table({"id": ids, name: pa.array(values, kind), "n": pa.array(range(len(values)), pa.int32()), **more})


@_made
def days(path: Path) -> None:
    upsert = _table(path, _rows(["2024/01/05", "2024/12/31"]), partition_by=("p",))
    upsert(_rows(["2025/01/01"]))


@_made
def hours(path: Path) -> None:
    upsert = _table(path, _rows(["2024/01/05/00", "2024/12/31/23"]), partition_by=("p",))
    upsert(_rows(["2025/01/01/07"]))


@_made
def two_levels(path: Path) -> None:
    other = pa.array(["x", "y", "x"])
    upsert = _table(path, _rows(["a", "a", "b"], q=other), partition_by=("p", "q"))
    upsert(_rows(["c", "a", "b"], q=other))


@_made
def numbers(path: Path) -> None:
    upsert = _table(path, _rows([1, 20], pa.int32()), partition_by=("p",), hive_style=True)
    upsert(_rows([300], pa.int32()))


@_made
def longs(path: Path) -> None:
    _table(path, _rows([-1, 2**40], pa.int64()), partition_by=("p",), hive_style=True)


@_made
def dates(path: Path) -> None:
    values = [dt.date(2024, 2, 29), dt.date(1999, 12, 31)]
    upsert = _table(path, _rows(values, pa.date32()), partition_by=("p",), hive_style=True)
    upsert(_rows([dt.date(2025, 1, 1)], pa.date32()))


@_made
def flags(path: Path) -> None:
    _table(path, _rows([True, False]), partition_by=("p",), hive_style=True)


@_made
def upper_case(path: Path) -> None:
    rows = _rows(["a", "b"], name="Region", Amount=pa.array([1.5, 2.5]), SubType=pa.array([{"Inner": 1}, {"Inner": 2}]))
    upsert = _table(path, rows, partition_by=("Region",), hive_style=True)
    upsert(rows)


@_made
def without_partitions(path: Path) -> None:
    upsert = _table(path, _rows(["a", "b"]))
    upsert(_rows(["a"]))


@_made
def commented(path: Path) -> None:
    rows = _rows(["a", "b"], place=pa.array([{"x": 1.0, "y": 2.0}] * 2))
    doc = {"n": "how many", "p": "where it lies", "place": "on the map"}
    fields = [f.with_metadata({"comment": doc[f.name]}) if f.name in doc else f for f in rows.schema]
    upsert = _table(path, rows.cast(pa.schema(fields)), partition_by=("p",), hive_style=True)
    upsert(rows.cast(pa.schema(fields)))


@_made
def partition_dropped(path: Path) -> None:
    _table(path, _rows(["a", "b", "c"]), partition_by=("p",), hive_style=True)
    LocalWriter(HudiTable.open(str(path))).delete_partitions(["p=b"])


@_made
def partition_comes_back(path: Path) -> None:
    upsert = _table(path, _rows(["a", "b", "c"]), partition_by=("p",), hive_style=True)
    LocalWriter(HudiTable.open(str(path))).delete_partitions(["p=b"])
    upsert(_rows(["b"]))


@_made
def widened(path: Path) -> None:
    upsert = _table(path, _rows(["a", "b"], x=pa.array([1.0, 2.0], pa.float32())), partition_by=("p",))
    wide = pa.array([1], pa.int64())
    upsert(_rows(["a"], x=pa.array([1.5])).set_column(2, "n", wide))


@_made
def column_added(path: Path) -> None:
    upsert = _table(path, _rows(["a", "b"]), partition_by=("p",))
    upsert(_rows(["a"], added=pa.array(["x"]), more=pa.array([[1, 2]])))


@_made
def member_added(path: Path) -> None:
    upsert = _table(path, _rows(["a", "b"], s=pa.array([{"x": 1}] * 2)), partition_by=("p",))
    upsert(_rows(["a"], s=pa.array([{"x": 1, "y": "new"}])))


@_made
def odd_names(path: Path) -> None:
    rows = _rows(["a", "b"], select=pa.array([1, 2]), s=pa.array([{"a_b": 1, "group": 2}] * 2))
    _table(path, rows, partition_by=("p",), hive_style=True)


@_made
def orc(path: Path) -> None:
    partition_dropped(path)
    _set_base_format(path, "ORC")


@_made
def hfile(path: Path) -> None:
    without_partitions(path)
    _set_base_format(path, "HFILE")


@_made
def orc_merge_on_read(path: Path) -> None:
    upsert = _table(path, _rows(["a", "b"]), partition_by=("p",), type=TableType.MERGE_ON_READ)
    upsert(_rows(["c"]))
    _set_base_format(path, "ORC")


def _set_base_format(path: Path, name: str) -> None:
    """Neither tool opens a base file: engines get the base file format that the table records."""
    properties = path / ".hoodie" / "hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if "base.file.format" not in line]
    properties.write_text("\n".join([*lines, f"hoodie.table.base.file.format={name}"]) + "\n")


@_made
def escaped(path: Path) -> None:
    values = ["a b", "x/y", "ü=1", "50%", "it's", "d:e", "", None]
    _table(path, _rows(values, pa.string()), partition_by=("p",), hive_style=True, url_encode=True)
