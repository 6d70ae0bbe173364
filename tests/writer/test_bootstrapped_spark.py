"""Bootstraps by Spark's executors; Spark frames written into a table that Hudi bootstrapped, whose tasks read skeleton
and source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import KeyFieldError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_table.query import read
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.source import SourceData, open_source, read_source
from skep_writer import SparkWriter, to_spark
from skep_writer.edge import SparkRunner
from skep_writer.writing import writer

pytestmark = pytest.mark.spark
T = TypeVar("T")
R = TypeVar("R")


def test_an_upsert_keeps_the_other_rows_of_the_file(spark: Any, golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "0.15.0" / "cow_bootstrap_metadata_only", tmp_path / "case")
    options = {"hoodie.bootstrap.base.path": str(tmp_path / "case" / "source")}
    table = HudiTable.open(str(tmp_path / "case" / "table"), options)

    def content() -> dict[str, dict[str, Any]]:
        rows = read(table.reload()).to_arrow().drop_columns(["_hoodie_file_name"]).to_pylist()
        return {row["order_id"]: row for row in rows}

    before = content()
    frame = to_spark(table, ReadRequest(where="city = 'chennai'"), spark).limit(1)
    meta = [name for name in frame.columns if name.startswith("_hoodie")]
    (key,) = (row.order_id for row in frame.select("order_id").collect())
    changed = frame.where(f"order_id = '{key}'").drop(*meta, "note").selectExpr("*", "'x' note")
    SparkWriter(table.with_options({"skep.spark.collect.max.bytes": "0"}), spark).upsert(changed)
    after = content()
    assert after[key]["note"] == "x"
    assert {k: row for k, row in after.items() if k != key} == {k: row for k, row in before.items() if k != key}
    rewritten = [s for s in table.reload().view().slices("city=chennai") if s.base_instant != "00000000000001"]
    assert len(rewritten) == 1


class Recording(SparkRunner):
    """Executors, of which the sessions of tests have none; and how many tasks each call had."""

    tasks: ClassVar[list[int]] = []

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        listed = list(tasks)
        self.tasks.append(len(listed))
        return super().map(function, listed)


SOURCE = {"p/0": ("a", "b"), "p/1": ("c",), "q/0": ("d",), "r/0": ("e", "f"), "r/1": ("g",), "r/2": ("h",)}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SourceData]:
    monkeypatch.setattr(writer, "service_runner", Recording)
    monkeypatch.setattr(Recording, "tasks", [])
    options = {
        "hoodie.bootstrap.base.path": str(tmp_path / "source"),
        "hoodie.bootstrap.mode.selector": "BootstrapRegexModeSelector",
        "hoodie.bootstrap.mode.selector.regex": "part=[pq]",
        "hoodie.bootstrap.parallelism": "2",
    }

    def make(files: Mapping[str, tuple[str | None, ...]], **more: pa.Scalar) -> tuple[SourceData, Options]:
        for path, ids in files.items():
            file = tmp_path / "source" / f"part={path}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            columns = {name: pa.repeat(value, len(ids)) for name, value in more.items()}
            options["hoodie.bootstrap.mode.selector.regex"] = "none" if more else "part=[pq]"
            pq.write_table(pa.table({"id": pa.array(ids, pa.string()), "ts": [1] * len(ids), **columns}), file)
        given = Options(options)
        return read_source(open_source(given), ["id"], BootstrapSettings.of(given), ThreadRunner(1)), given

    return make


@pytest.mark.parametrize(
    "more",
    [{}, pytest.param({"at": pa.scalar(7, pa.time64("us"))}, id="a type that Spark lacks", marks=pytest.mark.slow)],
)
def test_a_bootstrap_by_executors(
    spark: Any, source: Callable[..., Any], make_table: Callable[..., HudiTable], more: dict[str, pa.Scalar]
) -> None:
    """Skeletons by tasks that take several files each; rows that are written again are read by tasks."""
    data, options = source(SOURCE, **more)
    table = make_table(to_arrow(data.columns), hive_style=True).with_options(options)
    *skeletons, rows = SparkWriter(table, spark).bootstrap(data)
    if more:  # JVM Hudi can't read such a column where it is: all rows are written, by tasks that get them along
        assert (skeletons, len(rows.metadata.stats)) == ([], 3)
    else:
        assert Recording.tasks[0] == 2
        assert [len(each.metadata.stats) for each in (*skeletons, rows)] == [3, 2]
    found = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    expected = {(key, f"part={path[0]}") for path, keys in SOURCE.items() for key in keys}
    assert {(row["id"], row["_hoodie_partition_path"]) for row in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("path", ["q/0", "r/1"])
def test_a_null_key_is_refused_and_leaves_nothing(
    spark: Any, source: Callable[..., Any], make_table: Callable[..., HudiTable], path: str
) -> None:
    data, options = source({**SOURCE, path: (None,)})
    table = make_table(to_arrow(data.columns), hive_style=True).with_options(options)
    with pytest.raises(KeyFieldError):
        SparkWriter(table, spark).bootstrap(data)
    assert not table.reload().timeline.data().instants
    assert not list(Path(table.storage.root).rglob("*.parquet"))
