"""Bootstraps by every way that there is: a lake's method, the command, CALL, the writer of jobs, a stream's flag."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep.lake import Lake
from skep_format.errors import InputError, OptionError, SkepError, TableExistsError, UnsupportedError
from skep_format.names import BaseFormat
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP

SELECTOR = "hoodie.bootstrap.mode.selector"
WHOLE = [("a", 1, "p"), ("b", 1, "p"), ("c", 1, "q")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for part, ids in {"p": ["a", "b"], "q": ["c"]}.items():
        (folder / f"part={part}").mkdir(parents=True)
        rows = pa.table({"id": ids, "ts": pa.array([1] * len(ids), pa.int64())})
        pq.write_table(rows, folder / f"part={part}" / "0.parquet")
    return folder


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    rows = table.read().to_arrow().select(["id", "ts", "part"])
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def times_of(path: Path | str) -> list[str]:
    return [str(instant.requested_time) for instant in skep.open_table(path).snapshot.timeline.instants]


# -- of a lake ---------------------------------------------------------------------------------------------------------


def test_a_lake_makes_a_table_and_its_entry(lake: Lake, database: str, source: Path) -> None:
    (plan,) = lake.bootstrap("t", str(source), key="id", ordering="ts", plan=True)
    assert (plan.state, plan.what) == ("planned", "2 folders")
    assert [(row["partition"], row["mode"], row["rows"]) for row in plan.details] == [
        ("part=p", "METADATA_ONLY", 2),
        ("part=q", "METADATA_ONLY", 1),
    ]
    assert {0 < row["bytes_read"] < row["bytes_written"] for row in plan.details} == {True}
    assert "t" not in lake
    (done,) = lake.bootstrap("t", str(source), key="id", ordering="ts")
    assert (done.instant, done.state, done.what) == (METADATA_BOOTSTRAP, "completed", "2 skeletons of 3 rows")
    table = lake["t"]
    assert rows_of(table) == WHOLE
    assert (table.key, table.partition_by) == (("id",), ("part",))
    entry = lake.metastore.table(database, "t")
    assert [column.name for column in entry.partition_keys] == ["part"]
    assert lake.metastore.partition_names(database, "t") == ["part=p", "part=q"]
    table.upsert(pa.table({"id": ["a", "d"], "ts": [2, 2], "part": ["p", "q"]}))
    assert rows_of(lake["t"]) == [("a", 2, "p"), *WHOLE[1:], ("d", 2, "q")]


def test_one_that_fails_leaves_no_table(lake: Lake, source: Path) -> None:
    rows = pa.table({"id": pa.array([None], pa.string()), "ts": pa.array([1], pa.int64())})
    pq.write_table(rows, source / "part=q" / "1.parquet")
    for mode in ("metadata_only", "full_record"):
        with pytest.raises(SkepError, match="record key column id is null"):
            lake.bootstrap("t", str(source), key="id", mode=mode, matching="part=q")
        assert "t" not in lake
        assert not list(Path(lake.warehouse).rglob("*.parquet"))


def test_a_table_without_commits_is_bootstrapped(lake: Lake, source: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("part", pa.string())])
    lake.create_table("t", schema, key="id", partition_by="part", hive_style=True)
    lake.bootstrap("t", str(source), mode="full_record")
    assert rows_of(lake["t"]) == WHOLE
    with pytest.raises(InputError, match="is the first write"):
        lake.bootstrap("t", str(source))


def test_a_table_with_other_columns_is_not(lake: Lake, source: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("part", pa.string())])
    lake.create_table("t", schema, key="id", partition_by="part", hive_style=True)
    for plan in (True, False):
        with pytest.raises(SkepError, match="column ts is int there, and bigint in"):
            lake.bootstrap("t", str(source), plan=plan)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"mode": "some"}, "mode 'some' is not one of metadata_only, full_record"),
        ({"matching": ".*"}, "matching needs mode"),
        ({"mode": "full_record", SELECTOR: "FullRecordBootstrapModeSelector"}, "mode is given twice"),
        ({"mode": "full_record", "matching": "("}, "is not a regular expression"),
    ],
)
def test_arguments_that_do_not_go_together(lake: Lake, source: Path, how: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        lake.bootstrap("t", str(source), key="id", **how)


def test_the_procedure(lake: Lake, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    call = f"CALL run_bootstrap(table => 't', table_type => 'MERGE_ON_READ', bootstrap_path => '{source}',"
    call += f" base_path => '{place}', rowKey_field => 'id', partition_path_field => 'part'"
    with pytest.raises(UnsupportedError, match="argument bootstrap_overwrite is not supported"):
        lake.sql(f"{call}, bootstrap_overwrite => true)")
    with pytest.raises(UnsupportedError, match=r"its base files are ORC .* are PARQUET"):
        lake.sql(f"{call}, base_file_format => 'ORC')")
    lake.sql("SET hoodie.datasource.write.hive_style_partitioning = true")
    options = "hoodie.bootstrap.mode.selector.regex=part=p,hoodie.datasource.write.precombine.field=ts"
    selector = "org.apache.hudi.client.bootstrap.selector.BootstrapRegexModeSelector"
    answer = lake.sql(f"{call}, selector_class => '{selector}', options => '{options}')").to_arrow()
    assert answer.to_pydict() == {"status": [0]}
    assert rows_of(lake["t"]) == WHOLE
    assert lake["t"].snapshot.config.is_mor
    assert times_of(place) == ["00000000000001", "00000000000002"]
    (mapping,) = lake.sql("CALL show_bootstrap_mapping(table => 't')").to_arrow().to_pylist()
    assert (mapping["source_partition"], mapping["source_file"]) == ("part=p", "0.parquet")


# -- of ORC files: a new table has their format ------------------------------------------------------------------------

FORMAT = "hoodie.table.base.file.format"


@pytest.fixture
def in_orc(source: Path) -> Path:
    """The same rows in ORC files."""
    for file in source.rglob("*.parquet"):
        orc.write_table(pq.read_table(file, partitioning=None), file.with_suffix(".orc"))
        file.unlink()
    return source


def check_orc(table: Any) -> None:
    assert table.snapshot.config.base_format is BaseFormat.ORC
    assert rows_of(table) == WHOLE
    table.upsert(pa.table({"id": ["a", "d"], "ts": [2, 2], "part": ["p", "r"]}))
    assert rows_of(table) == [("a", 2, "p"), *WHOLE[1:], ("d", 2, "r")]
    assert {Path(base.path).suffix for base in bases_of(table)} == {".orc"}


def bases_of(table: Any) -> list[Any]:
    view = table.snapshot.reload().view()
    return [slice_.base_file for path in view.partitions() for slice_ in view.slices(path)]


def test_a_lake_makes_a_table_of_orc_files(lake: Lake, database: str, in_orc: Path) -> None:
    for stated in ({"properties": {FORMAT: "PARQUET"}}, {FORMAT: "PARQUET"}):
        for plan in (True, False):
            with pytest.raises(
                UnsupportedError, match=r"t: its base files are PARQUET \(hoodie\.table\.base.* are ORC"
            ):
                lake.bootstrap("t", str(in_orc), key="id", ordering="ts", plan=plan, **stated)
            assert "t" not in lake
    (plan,) = lake.bootstrap("t", str(in_orc), key="id", ordering="ts", plan=True)
    assert {row["mode"] for row in plan.details} == {"METADATA_ONLY"}
    sizes = {file.parent.name: file.stat().st_size for file in in_orc.rglob("*.orc")}
    assert {0 < row["bytes_read"] < sizes[row["folder"]] / 4 for row in plan.details} == {True}
    lake.bootstrap("t", str(in_orc), key="id", ordering="ts")
    entry = lake.metastore.table(database, "t")
    assert "orc" in (entry.storage.input_format or "").lower()
    check_orc(lake["t"])


def test_a_table_of_orc_files_by_all_other_ways(
    lake: Lake, run: Callable[..., Any], in_orc: Path, tmp_path: Path
) -> None:
    ways = [tmp_path / name for name in ("command", "call", "job", "over", "stream")]
    run(in_orc, ways[0], "--key", "id", "--ordering", "ts", "--plan")
    run(in_orc, ways[0], "--key", "id", "--ordering", "ts")
    lake.sql("SET hoodie.datasource.write.hive_style_partitioning = true")
    call = "CALL run_bootstrap(table => 't', table_type => 'COPY_ON_WRITE', rowKey_field => 'id'"
    call += f", bootstrap_path => '{in_orc}', base_path => '{ways[1]}', partition_path_field => 'part'"
    lake.sql(f"{call}, options => 'hoodie.datasource.write.precombine.field=ts')")
    job = skep.write(pa.table({})).options(**options_of(in_orc))
    for path in ways[2:4]:
        job.mode("append").save(path)
    job.mode("overwrite").save(ways[3])
    conf = {key: text for key, text in options_of(in_orc).items() if "operation" not in key and ".name" not in key}
    flags = {"target_base_path": str(ways[4]), "target_table": "t", "table_type": "COPY_ON_WRITE"}
    list(skep.Streamer(**flags, run_bootstrap=True, hoodie_conf=conf).run())
    for path in ways:
        check_orc(skep.open_table(path))
    with pytest.raises(UnsupportedError, match="its base files are PARQUET"):
        job.options(**{FORMAT: "PARQUET"}).mode("overwrite").save(ways[3])
    assert len(rows_of(skep.open_table(ways[3]))) == len(WHOLE) + 1


# -- at a path ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run() -> Callable[..., Any]:
    def call(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(app, ["--output", "json", "bootstrap", *map(str, arguments)])
        assert result.exit_code == code, result.stderr
        return json.loads(result.stdout) if code == 0 else result.stderr

    return call


def test_the_command(run: Callable[..., Any], source: Path, tmp_path: Path) -> None:
    table = tmp_path / "t"
    assert "--key makes it" in run(source, table, code=1)
    how = ("--mode", "full_record", "--matching", "part=q", "--key", "id", "--ordering", "ts")
    plan = run(source, table, *how, "--plan")
    assert [(row["folder"], row["mode"], row["files"], row["rows"]) for row in plan] == [
        ("part=p", "METADATA_ONLY", 1, 2),
        ("part=q", "FULL_RECORD", 1, 1),
    ]
    sizes = {row["folder"]: row["bytes_read"] for row in plan}
    assert sizes["part=p"] < sizes["part=q"] == (source / "part=q" / "0.parquet").stat().st_size
    assert not table.exists()
    done = run(source, table, *how)
    assert [(row["instant"], row["what"]) for row in done] == [
        ("00000000000001", "1 skeleton of 2 rows"),
        ("00000000000002", "1 file of 1 row"),
    ]
    assert rows_of(skep.open_table(table)) == WHOLE
    assert "is the first write of a table" in run(source, table, "--plan", code=2)


def options_of(source: Path, **more: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.operation": "bootstrap",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.bootstrap.base.path": str(source),
        **more,
    }


def test_the_operation_of_jobs(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    nothing = pa.table({})
    writer = skep.write(nothing).options(**options_of(source))
    result = writer.mode("overwrite").save(path)
    assert result is not None
    assert result.metadata.operation_type is not None
    assert result.metadata.operation_type.value == "BOOTSTRAP"
    assert rows_of(skep.open_table(path)) == WHOLE
    with pytest.raises(TableExistsError, match="exists at"):
        writer.mode("error").save(path)
    assert writer.mode("ignore").save(path) is None
    with pytest.raises(InputError, match="is the first write"):
        writer.mode("append").save(path)
    full = {SELECTOR: "org.apache.hudi.client.bootstrap.selector.FullRecordBootstrapModeSelector"}
    skep.write(nothing).options(**options_of(source, **full)).mode("overwrite").save(path)
    assert times_of(path) == ["00000000000002"]
    assert rows_of(skep.open_table(path)) == WHOLE
    with pytest.raises(InputError, match="its frame has no columns"):
        skep.write(pa.table({"id": ["x"]})).options(**options_of(source)).mode("overwrite").save(tmp_path / "u")


def test_overwriting_never_deletes_the_source(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    skep.write(pa.table({})).options(**options_of(source)).mode("append").save(path)
    within = path / "more"
    shutil.copytree(source, within)
    with pytest.raises(InputError, match="lie in each other"):
        skep.write(pa.table({})).options(**options_of(within)).mode("overwrite").save(path)
    assert rows_of(skep.open_table(path)) == WHOLE


def test_a_stream_that_bootstraps_its_target(source: Path, tmp_path: Path) -> None:
    conf = {key: text for key, text in options_of(source).items() if "operation" not in key and ".name" not in key}
    flags: dict[str, Any] = {
        "target_base_path": str(tmp_path / "t"),
        "target_table": "t",
        "table_type": "COPY_ON_WRITE",
    }
    streamer = skep.Streamer(**flags, run_bootstrap=True, checkpoint="earlier", hoodie_conf=conf)
    (done,) = streamer.run()
    assert (done.rows, done.checkpoint) == (3, "earlier")
    assert done.result is not None
    assert done.result.metadata.extra_metadata["deltastreamer.checkpoint.key"] == "earlier"
    assert rows_of(skep.open_table(tmp_path / "t")) == WHOLE
    with pytest.raises(InputError, match="is the first write"):
        list(skep.Streamer(**flags, run_bootstrap=True, hoodie_conf=conf).run())
