"""The streamer from flags to commits: on the command line, in Python, after kills, and for what can't work."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import logging
import random
import shutil
import sqlite3
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_storage import FaultyStorage
from file_jobs import KEYS, ORDER, Job, command, row, words
from pyarrow import parquet

import skep
from skep.query.spark import SparkHolder
from skep_format.errors import (
    CorruptFileError,
    FolderInUseError,
    InputError,
    OptionError,
    SchemaError,
    SkepError,
    StorageError,
    TableMismatchError,
    UnsupportedError,
)
from skep_format.storage import open_storage
from skep_format.timeline.instant import Action
from skep_stream.flags import FlagWarning
from skep_stream.schemas.providers import DroppedColumnWarning
from skep_stream.sources.jdbc import database_of
from skep_stream.unfit import unfit
from skep_table.events import Event
from skep_table.table import HudiTable


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_round_is_one_commit_and_nothing_new_is_none(job: Job) -> None:
    job.put("a.json", row("a", 1), row("b", 1))
    streamer = job.streamer()
    done = streamer.run_once()
    assert (done.rows, done.checkpoint) == (2, "1700000000000")
    assert streamer.run_once().result is None
    job.put("b.json", row("a", 2), at=1_700_000_001)
    assert job.streamer().run_once().rows == 1
    assert job.rows() == [row("a", 2), row("b", 1)]
    assert len(HudiTable.open(job.table).timeline.data()) == 2


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_files_with_types_need_no_schema(job: Job, kind: str) -> None:
    if kind == "avro":
        import fastavro

        with (job.source / "a.avro").open("wb") as file:
            fastavro.writer(file, ORDER, [row("a", 1, "x")])
    else:
        job.put(f"a.{kind}", row("a", 1, "x"))
    source = {"parquet": "ParquetDFSSource", "orc": "ORCDFSSource", "avro": "AvroDFSSource"}[kind]
    job.streamer(source_class=source, schemaprovider_class=None).run_once()
    assert job.rows() == [row("a", 1, "x")]


def test_a_session_that_is_started_has_the_master_and_name_of_the_flags(job: Job) -> None:
    spark = SparkHolder()
    job.streamer(spark=spark, spark_master="local[1]", spark_app_name="orders")
    assert spark.conf == {"spark.master": "local[1]", "spark.app.name": "orders"}
    spark._made = object()  # type: ignore[assignment]
    with pytest.warns(FlagWarning, match="a session is there"):
        job.streamer(spark=spark, spark_master="local[1]")


def test_operations_of_hudi(job: Job) -> None:
    by_city = {"hoodie.datasource.write.partitionpath.field": "city"}
    job.put("a.json", row("a", 1, "x"), row("b", 1, "y"))
    job.streamer(by_city, op="BULK_INSERT").run_once()
    job.put("b.json", row("c", 1, "x"), at=1_700_000_001)
    job.streamer(by_city, op="INSERT_OVERWRITE").run_once()
    assert [each["id"] for each in job.rows()] == ["b", "c"]
    job.put("c.json", row("any", 1, "y"), at=1_700_000_002)
    job.streamer(by_city, op="delete_partition").run_once()
    assert [each["id"] for each in job.rows()] == ["c"]
    job.put("d.json", row("d", 1, "z"), at=1_700_000_003)
    job.streamer(by_city, op="INSERT_OVERWRITE_TABLE").run_once()
    assert [each["id"] for each in job.rows()] == ["d"]
    assert job.streamer(by_city, op="INSERT_OVERWRITE_TABLE").run_once().result is None


def test_rows_that_are_marked_are_deleted(job: Job) -> None:
    marked = {**ORDER, "fields": [*ORDER["fields"], {"name": "_hoodie_is_deleted", "type": ["null", "boolean"]}]}  # type: ignore[misc]
    (job.work / "order.avsc").write_text(json.dumps(marked))
    job.put("a.json", row("a", 1), row("b", 1))
    job.streamer().run_once()
    job.put(
        "b.json",
        {**row("a", 2), "_hoodie_is_deleted": True},
        {**row("z", 2), "_hoodie_is_deleted": True},
        at=1_700_000_001,
    )
    job.streamer().run_once()
    assert [each["id"] for each in job.rows()] == ["b"]


def test_no_file_at_all_makes_a_table_and_an_empty_commit(job: Job) -> None:
    done = job.streamer().run_once()
    assert (done.rows, done.checkpoint) == (0, "-9223372036854775808")
    assert done.result is not None
    assert job.streamer().run_once().result is None
    job.put("a.json", row("a", 1))
    assert job.streamer().run_once().rows == 1


def test_transformers_in_a_chain_each_with_its_id(job: Job) -> None:
    job.put("a.json", row("a", 1, "x"), row("b", 2, "y"))
    conf = {
        "hoodie.streamer.transformer.sql.one": "SELECT id, ts + 1 AS ts, city FROM <SRC>",
        "hoodie.streamer.transformer.sql.two": "SELECT id, ts * 10 AS ts, upper(city) city FROM <SRC> WHERE id = 'b'",
    }
    query = "org.apache.hudi.utilities.transform.SqlQueryBasedTransformer"
    job.streamer(conf, transformer_class=f"flat:FlatteningTransformer,one:{query},two:{query}").run_once()
    assert job.rows() == [row("b", 30, "Y")]


def test_a_script_of_views(job: Job) -> None:
    job.put("a.json", row("a", 1, "x"), row("b", 2, "y"))
    (job.work / "job.sql").write_text(
        "CREATE OR REPLACE TEMPORARY VIEW late AS SELECT * FROM <SRC> WHERE ts > 1;\nSELECT id, ts, city FROM late;\n"
    )
    conf = {"hoodie.streamer.transformer.sql.file": str(job.work / "job.sql")}
    job.streamer(conf, transformer_class="SqlFileBasedTransformer").run_once()
    assert job.rows() == [row("b", 2, "y")]


def test_functions_of_ones_own(job: Job) -> None:
    job.put("a.json", row("a", 1), row("b", 2))
    job.streamer(transformer_class=[lambda rows: rows.slice(1)]).run_once()
    assert [each["id"] for each in job.rows()] == ["b"]
    job.put("b.json", row("c", 1), at=1_700_000_001)
    with pytest.raises(InputError, match="transformer builtins:len returned int, not an Arrow table"):
        job.streamer(transformer_class="builtins:len").run_once()


def test_nested_rows_are_flattened_to_a_schema_of_their_own(job: Job) -> None:
    job.put("a.parquet", {"id": "a", "ts": 1, "at": {"x": 1, "in": {"y": 2}}}, {"id": "b", "ts": 1, "at": None})
    job.streamer(
        source_class="ParquetDFSSource", schemaprovider_class=None, transformer_class="FlatteningTransformer"
    ).run_once()
    assert job.rows() == [
        {"id": "a", "ts": 1, "at_x": 1, "at_in_y": 2},
        {"id": "b", "ts": 1, "at_x": None, "at_in_y": None},
    ]


def test_transformed_rows_without_columns_of_the_source_need_a_target_schema(job: Job) -> None:
    job.put("a.json", row("a", 1))
    flags = {"transformer_class": [lambda rows: rows.select(["id", "ts"])]}
    with pytest.raises(InputError, match="lack column city"):
        job.streamer(**flags).run_once()
    with pytest.warns(DroppedColumnWarning, match="more"):
        job.streamer(transformer_class=[lambda rows: rows.append_column("more", rows["id"])]).run_once()


def test_a_failed_round_names_the_line_and_leaves_nothing(job: Job) -> None:
    job.put("a.json", row("a", 1))
    job.streamer().run_once()
    before = HudiTable.open(job.table).timeline.instants
    (job.source / "bad.json").write_text('{"id": "b", "ts": 1}\n{"id": "c", "ts": \n')
    with pytest.raises(InputError, match=r"in/bad.json, line 2: not JSON"):
        job.streamer().run_once()
    assert HudiTable.open(job.table).timeline.instants == before


def test_columns_evolve_as_by_any_write(job: Job) -> None:
    job.put("a.json", row("a", 1))
    job.streamer().run_once()
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": ["null", "int"]}]}  # type: ignore[misc]
    (job.work / "order.avsc").write_text(json.dumps(wider))
    job.put("b.json", {**row("b", 1), "more": 5}, at=1_700_000_001)
    job.streamer().run_once()
    assert job.rows() == [{**row("a", 1), "more": None}, {**row("b", 1), "more": 5}]
    (job.work / "order.avsc").write_text(json.dumps({**ORDER, "fields": ORDER["fields"][:2]}))  # type: ignore[index]
    job.put("c.json", row("c", 1), at=1_700_000_002)
    with pytest.raises(SchemaError, match="city"):
        job.streamer().run_once()


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({"op": "UPSERT", "filter_dupes": True}, OptionError, "--filter-dupes needs to be disabled"),
        ({"op": "MERGE"}, OptionError, "--op: 'MERGE' is none of"),
        ({"source_class": "JsonKafkaSourc"}, OptionError, "source JsonKafkaSourc is not known"),
        ({"source_class": "S3EventsSource"}, UnsupportedError, "S3EventsSource is known, and not built yet"),
        ({"schemaprovider_class": None}, OptionError, "please provide a schema provider"),
        ({"base_file_format": "HFILE"}, OptionError, "PARQUET or ORC: rows in HFiles"),
        ({"checkpoint": "yesterday"}, InputError, "'yesterday' is no checkpoint"),
        ({"transformer_class": "SqlQueryBasedTransformer"}, OptionError, "needs hoodie.streamer.transformer.sql"),
    ],
)
def test_what_can_not_work_is_refused_before_anything_is_written(
    job: Job, flags: dict[str, Any], error: type[Exception], message: str
) -> None:
    job.put("a.json", row("a", 1))
    with pytest.raises(error, match=message):
        job.streamer(**flags).run_once()
    assert not Path(job.table).exists()


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT"])
def test_rows_of_known_keys_are_filtered_and_of_a_batch_the_greatest_stays(job: Job, operation: str, kind: str) -> None:
    """As Hudi: dropDuplicates before either operation, and combine.before.insert."""
    streamer = job.streamer(op=operation, filter_dupes=True, table_type=kind, source_ordering_field="ts")
    job.put("a.json", row("a", 2), row("a", 1), row("b", 1))
    streamer.run_once()
    job.put("b.json", row("a", 3), row("c", 2), row("c", 3), at=1_700_000_001)
    done = streamer.run_once()
    assert [(each["id"], each["ts"]) for each in job.rows()] == [("a", 2), ("b", 1), ("c", 3)]
    assert done.result is not None
    table = streamer.target.table()
    assert table is not None
    assert table.commit_metadata(done.result.instant).operation_type.name == operation


def test_a_changed_type_is_refused_in_a_round_without_news(job: Job) -> None:
    """HoodieStreamer compares the schemas (getDeducedSchemaProvider) before it finds that nothing is new."""
    job.put("a.json", row("a", 1, "delft"))
    job.streamer().run_once()
    other = json.dumps({**ORDER, "fields": [*ORDER["fields"][:2], {"name": "city", "type": ["null", "boolean"]}]})  # type: ignore[index]
    (job.work / "order.avsc").write_text(other)
    with pytest.raises(SchemaError, match="column city: rows have boolean, the table has string"):
        job.streamer().run_once()
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}  # type: ignore[misc]
    (job.work / "order.avsc").write_text(json.dumps(wider))
    assert job.streamer().run_once().result is None
    assert job.rows() == [row("a", 1, "delft")]


@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_event_times_are_recorded_of_the_rows_that_are_written(job: Job, kind: str, version: str) -> None:
    """WriteStatus.markSuccess: 13 digits are ms, 10 are seconds, and a row that loses against a stored one has none."""
    conf = {"hoodie.payload.event.time.field": "ts", "hoodie.write.table.version": version}
    payload = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"

    def recorded() -> tuple[int | None, int | None]:
        streamer = job.streamer(conf, table_type=kind, payload_class=payload, source_ordering_field="ts")
        done = streamer.run_once()
        table = streamer.target.table()
        assert table is not None
        assert done.result is not None
        commit = table.commit_metadata(done.result.instant)
        (stat,) = [stat for stats in commit.partition_to_write_stats.values() for stat in stats]
        return stat.min_event_time, stat.max_event_time

    start = 1_700_000_000_000
    job.put("a.json", row("a", start + 5), row("b", start + 2), row("c", start + 9))
    assert recorded() == (start + 2, start + 9)
    job.put("b.json", row("a", start + 7), row("d", start + 8), row("c", start + 1), at=1_700_000_001)
    assert recorded() == (start + 7, start + 8)
    job.put("c.json", row("e", 1_700_000_001), row("f", 5), at=1_700_000_002)
    assert recorded() == (1_700_000_001_000, 1_700_000_001_000)
    job.put("d.json", row("a", start + 20), row("b", start + 21), at=1_700_000_003)  # updates alone: logs
    assert recorded() == (start + 20, start + 21)


CODECS: dict[str, Any] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "deflate": zlib.compress,
    "zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


def test_compressed_text_is_read_as_spark_and_hudi_do(job: Job) -> None:
    for number, (ending, compress) in enumerate(CODECS.items()):
        lines = [json.dumps(row(f"{ending}{at}", at)) for at in range(2)]
        parts = [f"{line}\n".encode() for line in lines]
        data = compress(parts[0] + parts[1]) if ending == "deflate" else compress(parts[0]) + compress(parts[1])
        (job.source / f"{number}.json.{ending}").write_bytes(data)
    assert job.streamer().run_once().rows == 2 * len(CODECS)
    assert [each["id"] for each in job.rows()] == sorted(f"{ending}{at}" for ending in CODECS for at in range(2))
    (job.source / "bad.json.gz").write_bytes(gzip.compress(b'{"id": "a", "ts": 1}')[:-9])
    with pytest.raises(CorruptFileError, match=r"bad\.json\.gz can't be decompressed"):
        job.streamer().run_once()
    (job.source / "bad.json.gz").rename(job.source / "bad.json.snappy")
    with pytest.raises(UnsupportedError, match=r"bad\.json\.snappy: \.snappy is not built"):
        job.streamer().run_once()


def test_compressed_csv_is_read(job: Job) -> None:
    for ending, compress in CODECS.items():
        (job.source / f"a.csv.{ending}").write_bytes(compress(f"id,ts,city\n{ending},1,delft\n".encode()))
    streamer = job.streamer({"hoodie.streamer.csv.header": "true"}, source_class="CsvDFSSource")
    assert streamer.run_once().rows == len(CODECS)
    assert [each["id"] for each in job.rows()] == sorted(CODECS)


def test_other_settings_than_the_tables_are_refused(job: Job) -> None:
    job.put("a.json", row("a", 1))
    job.streamer().run_once()
    job.put("b.json", row("b", 1), at=1_700_000_001)
    with pytest.raises(TableMismatchError, match="MERGE_ON_READ"):
        job.streamer(table_type="MERGE_ON_READ").run_once()
    with pytest.raises(TableMismatchError, match="city"):
        job.streamer({"hoodie.datasource.write.recordkey.field": "city"}).run_once()


def test_a_source_that_fails_is_read_again(job: Job) -> None:
    class Shaky:
        calls = 0

        def fetch(self, last: object, limit: int) -> object:
            from skep_stream.protocols import Batch

            self.calls += 1
            if self.calls < 3:
                raise InputError("not now")
            return Batch(pa.table({"id": ["a"], "ts": [1]}), "1")

    given = {"retry_on_source_failures": True, "retry_interval_seconds": 0, "schemaprovider_class": None}
    with pytest.raises(InputError, match="not now"):
        job.streamer(source_class=Shaky(), max_retry_count=1, **given).run_once()
    job.streamer(source_class=Shaky(), max_retry_count=2, **given).run_once()
    assert [each["id"] for each in job.rows()] == ["a"]


def test_the_command_prints_a_line_a_round_and_ends_with_1_for_a_round_that_failed(job: Job) -> None:
    job.put("a.json", row("a", 1))
    done = command(job)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["rows"], facts["from"], facts["checkpoint"]) == (1, None, "1700000000000")
    nothing = json.loads(command(job).stdout)
    assert (nothing["instant"], nothing["rows"]) == (None, 0)
    (job.source / "bad.json").write_text("{")
    failed = command(job)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert "bad.json, line 1: not JSON" in failed.stderr
    twice = command(job, "--op", "UPSERT", "--op", "INSERT")
    assert twice.returncode == 2
    assert "Can only specify option --op once." in twice.stderr


def test_a_continuous_stream_ends_well_when_it_is_terminated(job: Job) -> None:
    job.put("a.json", row("a", 1))
    given = words(job, "--continuous", "--min-sync-interval-seconds", "1")
    process = subprocess.Popen(given, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["rows"] == 1
        job.put("b.json", row("b", 1), at=int(time.time()))
        while json.loads(process.stdout.readline())["rows"] == 0:
            pass
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert [each["id"] for each in job.rows()] == ["a", "b"]
    assert not list(HudiTable.open(job.table).timeline.pending())


def test_a_stream_of_the_settings_takes_flags_over_its_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.put("a.json", row("a", 1), row("b", 1))
    (job.work / "skep.toml").write_text(
        f"""
        [stream.orders]
        target_base_path = "{job.table}"
        target-table = "other"
        table_type = "COPY_ON_WRITE"
        schemaprovider_class = "FilebasedSchemaProvider"
        filter_dupes = false

        [stream.orders.hoodie_conf]
        hoodie.datasource.write.recordkey.field = "ts"
        hoodie.streamer.source.dfs.root = "{job.source}"
        hoodie.streamer.schemaprovider.source.schema.file = "{job.work}/order.avsc"
        """
    )
    monkeypatch.chdir(job.work)
    streamer = skep.Streamer.named("orders", target_table="t", hoodie_conf=[f"{key}={KEYS[key]}" for key in KEYS])
    assert streamer.run_once().rows == 2
    assert HudiTable.open(job.table).config.name == "t"
    assert [each["id"] for each in job.rows()] == ["a", "b"]
    with pytest.raises(OptionError, match="no settings have a stream none; there are: orders"):
        skep.Streamer.named("none")


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_later_table_versions_have_the_keys_of_their_releases(job: Job, version: int, kind: str) -> None:
    conf = {"hoodie.write.table.version": str(version)}
    for at in range(3):
        job.put(f"{at}.json", row("a", at), row(str(at), at), at=1_700_000_000 + at)
        job.streamer(conf, table_type=kind).run_once()
    table = HudiTable.open(job.table)
    last = table.timeline.data().completed().last()
    assert last is not None
    assert table.commit_extra(last)["streamer.checkpoint.key.v2"] == "1700000002000"
    assert job.rows() == [*(row(str(at), at) for at in range(3)), row("a", 2)]
    assert job.streamer(conf, table_type=kind).run_once().result is None


def test_a_new_table_of_the_newest_version_has_a_metadata_table(job: Job) -> None:
    job.put("a.json", row("a", 1))
    job.streamer({"hoodie.write.table.version": "newest"}).run_once()
    table = HudiTable.open(job.table)
    assert (table.config.version, set(table.config.metadata_partitions)) == (9, {"files", "column_stats"})
    assert job.rows() == [row("a", 1)]


def test_a_table_source_gives_its_commits_one_after_another(job: Job) -> None:
    conf = {"hoodie.streamer.source.hoodieincr.path": job.table, "hoodie.streamer.source.hoodieincr.num_instants": "1"}
    for at in range(3):
        job.put(f"{at}.json", row(str(at), at), at=1_700_000_000 + at)
        job.streamer().run_once()
    copy = {
        "target_base_path": str(job.work / "copy"),
        "source_class": "HoodieIncrSource",
        "schemaprovider_class": None,
    }
    with pytest.raises(InputError, match="no checkpoint to begin from"):
        job.streamer(conf, **copy).run_once()
    first = str(HudiTable.open(job.table).timeline.instants[0].requested_time)
    rounds = [job.streamer(conf, **copy, checkpoint=first if not at else None).run_once().rows for at in range(3)]
    assert rounds == [1, 1, 0]
    latest = {**copy, "target_base_path": str(job.work / "latest")}
    strategy = {"hoodie.streamer.source.hoodieincr.missing.checkpoint.strategy": "READ_LATEST"}
    assert job.streamer({**conf, **strategy}, **latest).run_once().rows == 1


@pytest.mark.parametrize("made", [False, True], ids=["first round", "second round"])
@pytest.mark.parametrize("version", [6, pytest.param(9, marks=pytest.mark.slow)])
def test_a_killed_round_is_taken_up_again(
    job: Job, made: bool, version: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At whatever storage call it dies: rows and checkpoint are both there, or neither is. INSERT would show others."""
    caplog.set_level(logging.CRITICAL, "skep")
    monkeypatch.setattr("skep.flows.stream_target.open_storage", lambda path, _options: path)
    conf = {"hoodie.write.table.version": str(version)}
    job.put("a.json", row("a", 1))
    if made:
        monkeypatch.undo()
        job.streamer(conf, op="INSERT").run_once()
        monkeypatch.setattr("skep.flows.stream_target.open_storage", lambda path, _options: path)
        job.put("b.json", row("b", 1), at=1_700_000_001)
    seeded, at, committed = job.work / "seeded", 1, set()
    if made:
        shutil.copytree(job.table, seeded)
    while True:
        shutil.rmtree(job.table, ignore_errors=True)
        if made:
            shutil.copytree(seeded, job.table)
        storage = FaultyStorage(job.table, at, dies=True)
        streamer = job.streamer(conf, op="INSERT")
        streamer.target.path = storage  # type: ignore[assignment]
        with contextlib.suppress(SkepError):
            streamer.run_once()
        with monkeypatch.context() as plain:
            plain.setattr("skep.flows.stream_target.open_storage", open_storage)
            committed.add(job.streamer(conf, op="INSERT").run_once().result is None)
        where = storage.calls[at - 1] if storage.hit else "no fault"
        assert [each["id"] for each in job.rows()] == (["a", "b"] if made else ["a"]), where
        assert not HudiTable.open(job.table).timeline.pending().instants, where
        if not storage.hit:
            break
        at += 3
    assert committed == {True, False}


def test_rows_of_a_database_by_a_column_that_grows(job: Job) -> None:
    path = job.work / "shop.db"
    conf = {
        "hoodie.streamer.jdbc.url": f"jdbc:sqlite:{path}",
        "hoodie.streamer.jdbc.table.name": "orders",
        "hoodie.streamer.jdbc.incr.pull": "true",
        "hoodie.streamer.jdbc.table.incr.column.name": "ts",
    }
    flags = {"source_class": "JdbcSource", "schemaprovider_class": None, "source_limit": 2}
    with pytest.raises(InputError, match=r"shop\.db is not there"):
        job.streamer(conf, **flags).run_once()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE orders (id TEXT, ts INTEGER, city TEXT)")
        database.executemany("INSERT INTO orders VALUES (?, ?, 'x')", [("a", 1), ("b", 2), ("c", 2), ("d", 10)])
        database.commit()
    done = [job.streamer(conf, **flags).run_once() for _ in range(3)]
    assert [(each.rows, each.checkpoint) for each in done] == [(3, "2"), (1, "10"), (0, "10")]
    assert job.rows() == [row("a", 1, "x"), row("b", 2, "x"), row("c", 2, "x"), row("d", 10, "x")]
    whole = job.streamer(
        {**conf, "hoodie.streamer.jdbc.incr.pull": "false"}, **flags, target_base_path=f"{job.work}/whole"
    )
    assert [whole.run_once().rows, whole.run_once().rows] == [4, 4]
    with pytest.raises(StorageError, match="no such table: other"):
        job.streamer({**conf, "hoodie.streamer.jdbc.table.name": "other"}, **flags).run_once()


def test_urls_of_other_databases_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no driver for jdbc:mysql"):
        database_of("jdbc:mysql://db/shop", "u", "secret")


def test_files_of_one_round_that_lack_a_column_of_another(job: Job) -> None:
    for name, more in (("a", {}), ("b", {"n": 3})):
        kinds = {"id": pa.string(), "ts": pa.int64(), **dict.fromkeys(more, pa.int32())}
        schema = pa.schema([pa.field(each, kind, nullable=False) for each, kind in kinds.items()])
        path = job.work / "in" / f"{name}.parquet"
        parquet.write_table(pa.Table.from_pylist([{"id": name, "ts": 1, **more}], schema), path)
    job.streamer(source_class="ParquetDFSSource", schemaprovider_class=None).run_once()
    assert job.rows() == [{"id": "a", "ts": 1, "n": None}, {"id": "b", "ts": 1, "n": 3}]


def test_changes_of_aws_dms_are_applied(job: Job) -> None:
    conf = {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload"}
    flags = {"source_class": "ParquetDFSSource", "schemaprovider_class": None, "transformer_class": "AWSDmsTransformer"}
    job.put("a.parquet", {"id": "a", "ts": 1}, {"id": "b", "ts": 1})
    job.streamer(conf, **flags).run_once()
    job.put("b.parquet", {"id": "a", "ts": 2, "Op": "D"}, {"id": "b", "ts": 3, "Op": "U"}, at=1_700_000_001)
    job.streamer(conf, **flags).run_once()
    assert job.rows() == [{"id": "b", "ts": 3, "Op": "U"}]


def test_a_continuous_stream_compacts_beside_its_rounds(job: Job) -> None:
    for at in range(4):
        job.put(f"{at}.json", row("a", at), at=1_700_000_000 + at)
    conf = {"hoodie.compact.inline.max.delta.commits": "2", "max.rounds.without.new.data.to.shutdown": "1"}
    flags = {"post_write_termination_strategy_class": "NoNewDataTerminationStrategy", "source_limit": 40}
    streamer = job.streamer(conf, continuous=True, table_type="MERGE_ON_READ", max_pending_compactions=1, **flags)
    assert [done.rows for done in streamer.run()] == [1, 1, 1, 1, 0]
    timeline = HudiTable.open(job.table).timeline
    assert not timeline.pending().instants
    assert len(timeline.completed().of(Action.COMMIT)) == 2
    assert job.rows() == [row("a", 3)]
    job.put("4.json", row("a", 4), row("b", 4), at=1_700_000_004)
    job.streamer(conf, table_type="MERGE_ON_READ", disable_compaction=True).run_once()
    job.put("5.json", row("a", 5), at=1_700_000_005)
    job.streamer(conf, table_type="MERGE_ON_READ", disable_compaction=True).run_once()
    assert len(HudiTable.open(job.table).timeline.completed().of(Action.COMMIT)) == 2


def test_a_continuous_stream_takes_turns_with_its_services_by_weight(job: Job) -> None:
    for at in range(4):
        job.put(f"{at}.json", row("a", at), at=1_700_000_000 + at)
    conf = {"hoodie.compact.inline.max.delta.commits": "2", "max.rounds.without.new.data.to.shutdown": "1"}
    flags = {"post_write_termination_strategy_class": "NoNewDataTerminationStrategy", "source_limit": 40}
    flags |= {"continuous": True, "table_type": "MERGE_ON_READ", "compact_scheduling_weight": 3}
    streamer, seen = job.streamer(conf, **flags), list[tuple[str, str]]()
    streamer.stream.events.listen(lambda event: seen.append((event.name, str(event.facts.get("service", "")))))
    assert [done.rows for done in streamer.run()] == [1, 1, 1, 1, 0]
    turns = [each for each in seen if each[0].startswith("stream.round") or each[1] == "compact"]
    assert {service for _, service in turns} == {"", "compact"}
    within: list[str] = []
    for name, service in turns:
        if name.endswith(".start"):
            assert not within or within == [""]  # what is part of a round only plans
            within.append(service)
        else:
            within.remove(service)
    assert not HudiTable.open(job.table).timeline.pending().instants
    assert job.rows() == [row("a", 3)]
    with pytest.warns(FlagWarning, match="take turns with rounds of a continuous stream"):
        job.streamer(cluster_scheduling_minshare=1)
    with pytest.raises(OptionError, match="--delta-sync-scheduling-weight: 0 is less than 1"):
        job.streamer(continuous=True, delta_sync_scheduling_weight=0)


def test_a_fetch_reports_how_much_of_it_is_done(job: Job) -> None:
    for name in ("a", "b"):
        job.put(f"{name}.json", row(name, 1))
    size = (job.source / "a.json").stat().st_size
    seen: list[Event] = []
    streamer = job.streamer()
    streamer.stream.events.listen(seen.append)
    streamer.run_once()
    done = [(event.done, event.total) for event in seen if event.name == "stream.fetch" and event.seconds is None]
    assert done == [(size, 2 * size), (2 * size, 2 * size)]


def test_the_status_shows_what_waits_and_changes_nothing(job: Job) -> None:
    job.put("a.json", row("a", 1))
    assert job.streamer().status()["waiting_files"] == 1
    assert not Path(job.table).exists()
    done = job.streamer().run_once()
    assert done.result is not None
    job.put("late.json", row("b", 1), at=1_600_000_000)
    found = json.loads(command(job, "--status").stdout)
    size = (job.source / "late.json").stat().st_size
    assert found == {
        "table": "t",
        "commits": 1,
        "instant": str(done.result.instant.requested_time),
        "checkpoint": "1700000000000",
        "next": "1700000000000",
        "pending": [],
        "waiting_files": 1,
        "waiting_bytes": size,
        "waiting_since": 1_600_000_000_000,
    }


@pytest.mark.parametrize("version", [6, 9])
def test_a_table_source_takes_the_checkpoints_of_later_releases(job: Job, version: int) -> None:
    conf = {"hoodie.streamer.source.hoodieincr.path": job.table, "hoodie.write.table.version": str(version)}
    for at in range(2):
        job.put(f"{at}.json", row(str(at), at), at=1_700_000_000 + at)
        job.streamer(conf).run_once()
    requested = HudiTable.open(job.table).timeline.instants[0].requested_time
    copy = {
        "target_base_path": str(job.work / "copy"),
        "source_class": "HoodieIncrSource",
        "schemaprovider_class": None,
    }
    asked = f"resumeFromInstantRequestTime:{requested}"
    assert job.streamer(conf, **copy, checkpoint=asked).run_once().rows == 1
    with pytest.raises(InputError, match="'garbage' is no checkpoint of a table"):
        job.streamer(conf, **copy, checkpoint="garbage").run_once()
    if version == 6:
        with pytest.raises(InputError, match="is no checkpoint of a table of version 6"):
            job.streamer(conf, **copy, checkpoint=f"resumeFromInstantCompletionTime:{requested}").run_once()


def test_records_that_can_not_be_read_are_kept_once(job: Job) -> None:
    errors = job.work / "errors"
    conf = {"hoodie.errortable.enable": "true"}
    with pytest.raises(OptionError, match=r"needs hoodie\.errortable\.base\.path"):
        job.streamer(conf)
    conf["hoodie.errortable.base.path"] = str(errors)
    (job.source / "a.json").write_text('{"id": "a", "ts": 1}\nnot this\n{"id": "b", "ts": "soon"}\n')
    streamer = job.streamer(conf)
    write = streamer.target.write
    streamer.target.write = None  # type: ignore[assignment]
    with pytest.raises(TypeError):  # a round that dies after its errors were kept
        streamer.run_once()
    streamer.target.write = write  # type: ignore[method-assign]
    assert streamer.run_once().rows == 1
    kept = skep.load(errors).to_arrow().select(["line", "record", "error"]).sort_by("line").to_pylist()
    assert [(each["line"], each["record"]) for each in kept] == [(2, "not this"), (3, '{"id": "b", "ts": "soon"}')]
    assert kept[1]["error"] == 'column ts: "soon" is no long'
    assert HudiTable.open(errors).config.name == "t_errors"
    assert len(HudiTable.open(errors).timeline.data()) == 1
    assert [each["id"] for each in job.rows()] == ["a"]


def test_an_error_table_that_fails_fails_the_round_or_is_logged(job: Job) -> None:
    (job.work / "file").write_text("")
    conf = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.work}/file/errors"}
    (job.source / "a.json").write_text('{"id": "a", "ts": 1}\nnot this\n')
    with pytest.raises(SkepError):
        job.streamer(conf).run_once()
    assert not Path(job.table).exists()
    assert job.streamer({**conf, "hoodie.errortable.write.failure.strategy": "LOG_ERROR"}).run_once().rows == 1


def test_folders_of_dates_are_read_from_some_days_back(job: Job) -> None:
    for day in ("2026-01-01", "2026-01-02", "2026-01-04", "no-date"):
        (job.source / "eu" / f"day={day}").mkdir(parents=True)
        job.put(f"eu/day={day}/a.json", row(day, 1))
    selector = "hoodie.streamer.source.dfs.datepartitioned.selector"
    conf = {
        "hoodie.streamer.source.input.selector": "org.apache.hudi.utilities.sources.helpers.DatePartitionPathSelector",
        f"{selector}.depth": "1",
        f"{selector}.currentdate": "2026-01-04",
    }
    job.streamer(conf).run_once()
    assert [each["id"] for each in job.rows()] == ["2026-01-02", "2026-01-04"]
    with pytest.raises(OptionError, match="has parts beside yyyy, MM, dd"):
        job.streamer({**conf, "hoodie.streamer.source.dfs.datepartitioned.date.format": "yyyy-MM-dd HH"})
    with pytest.raises(OptionError, match="S3EventsMetaSelector is not known"):
        job.streamer({"hoodie.streamer.source.input.selector": "S3EventsMetaSelector"})


def test_the_first_checkpoint_of_a_table_may_be_that_of_another(job: Job) -> None:
    job.put("a.json", row("a", 1))
    job.streamer().run_once()
    job.put("b.json", row("b", 1), at=1_700_000_001)
    other = {"target_base_path": str(job.work / "other")}
    named = {"initial_checkpoint_provider": "InitialCheckpointFromAnotherHoodieTimelineProvider"}
    with pytest.raises(OptionError, match=r"needs hoodie\.streamer\.checkpoint\.provider\.path"):
        job.streamer(**other, **named)
    conf = {"hoodie.streamer.checkpoint.provider.path": job.table}
    assert [job.streamer(conf, **other, **named).run_once().rows for _ in range(2)] == [1, 0]


def test_bad_lines_of_all_texts_go_into_the_error_table(job: Job) -> None:
    (job.source / "a.csv").write_text("id,ts,city\na,+1,\nb,soon,\nc,2\nd,3,delft\n")
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    conf = {"hoodie.streamer.csv.header": "true"}
    with pytest.raises(InputError, match=r"a\.csv, line 3: column ts: .*'soon'"):
        job.streamer(conf, source_class="CsvDFSSource").run_once()
    done = job.streamer({**conf, **errors}, source_class="CsvDFSSource").run_once()
    assert (done.rows, done.rejected) == (2, 2)
    assert [each["id"] for each in job.rows()] == ["a", "d"]
    kept = skep.load(f"{job.table}-errors").to_arrow().sort_by("line")
    assert list(zip(kept["line"].to_pylist(), kept["record"].to_pylist(), strict=True)) == [(3, "b,soon,"), (4, "c,2")]


_FIELDS = {"id": "string", "ts": "long", "city": "string"}
NULLABLE = {**ORDER, "fields": [{"name": name, "type": ["null", kind]} for name, kind in _FIELDS.items()]}
EVENT_TIME = {"payload_class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload", "source_ordering_field": "ts"}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rows_that_can_not_be_written_are_kept_and_the_others_committed(job: Job, table_type: str) -> None:
    (job.work / "order.avsc").write_text(json.dumps(NULLABLE))
    flags = {"table_type": table_type, **EVENT_TIME}
    job.put("a.json", row("a", 1), {"id": None, "ts": 1, "city": "delft"}, row("b", 1), {"id": "c", "ts": None})
    with pytest.raises(SkepError, match="null"):
        job.streamer(**flags).run_once()
    assert not list(Path(job.table).glob("*"))
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    done = job.streamer(errors, commit_on_errors=True, **flags).run_once()
    assert (done.rows, done.rejected) == (2, 2)
    assert done.result is not None
    assert done.result.errors == 0
    assert job.rows() == [row("a", 1), row("b", 1)]
    kept = skep.load(f"{job.table}-errors").to_arrow().sort_by("line").to_pylist()
    assert [(each["source"], each["line"], json.loads(each["record"])["id"]) for each in kept] == [
        ("the batch after None", 2, None),
        ("the batch after None", 4, "c"),
    ]
    assert ["id" in kept[0]["error"], "ts" in kept[1]["error"]] == [True, True]
    # a later round, which has none that can be written, and no error table
    job.put("b.json", {"id": None, "ts": 2, "city": "delft"}, at=1_700_000_001)
    done = job.streamer(commit_on_errors=True, **flags).run_once()
    assert (done.rows, done.rejected, done.checkpoint) == (0, 1, "1700000001000")
    assert job.rows() == [row("a", 1), row("b", 1)]
    assert job.streamer(commit_on_errors=True, **flags).run_once().result is None


def test_values_that_do_not_fit_are_kept_and_a_column_that_does_not_fails_the_round(job: Job) -> None:
    rows = [{"id": "a", "ts": 1, "n": 1.0}, {"id": "b", "ts": 1, "n": 2.0}]
    flags = {"source_class": "ParquetDFSSource", "schemaprovider_class": None, "commit_on_errors": True}
    flags["source_ordering_field"] = "n"  # whose type stays as it is

    def given(kind: pa.DataType) -> list[Any]:
        return [lambda rows: rows.set_column(2, "n", rows["n"].cast(kind))]

    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    job.put("a.parquet", *rows)
    job.streamer(errors, transformer_class=given(pa.int32()), **flags).run_once()
    job.put("b.parquet", {**rows[0], "n": 5.0}, {**rows[1], "n": 2.5}, {"id": "c", "ts": 1, "n": 3.0}, at=1_700_000_001)
    done = job.streamer(errors, **flags).run_once()
    assert (done.rows, done.rejected) == (2, 1)
    assert [each["n"] for each in job.rows()] == [5, 2, 3]
    (kept,) = skep.load(f"{job.table}-errors").to_arrow().to_pylist()
    assert (kept["line"], json.loads(kept["record"])) == (2, {"id": "b", "ts": 1, "n": 2.5})
    assert "column n" in kept["error"]
    job.put("c.parquet", {"id": "d", "ts": 1, "n": 1.0}, at=1_700_000_002)
    before = HudiTable.open(job.table).timeline.instants
    with pytest.raises(SchemaError, match="column n"):
        job.streamer(errors, transformer_class=given(pa.bool_()), **flags).run_once()
    assert HudiTable.open(job.table).timeline.instants == before


def test_each_row_that_a_check_refuses_is_found() -> None:
    chance, calls = random.Random(7), 0

    def check(rows: pa.Table) -> None:
        nonlocal calls
        calls += 1
        if any(value % 10 == 0 for value in rows["n"].to_pylist()):
            raise InputError("a ten")

    for size in (0, 1, 2, 37, 500):
        values = [chance.randrange(1, 100) for _ in range(size)]
        rows = pa.concat_tables([pa.table({"n": pa.array(part, pa.int64())}) for part in (values[:20], values[20:])])
        assert unfit(rows, check) == {at: "a ten" for at, value in enumerate(values) if value % 10 == 0}
    calls = 0
    assert unfit(pa.table({"n": range(1, 10)}), check) == {}
    assert calls == 1


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_target_with_other_files_is_refused_and_left_as_it_is(job: Job, table_type: str) -> None:
    job.put("a.json", row("a", 1))
    folder = Path(job.table)
    (folder / "reports").mkdir(parents=True)
    (folder / "reports/may.csv").write_text("1")
    with pytest.raises(FolderInUseError, match=r"is not empty and no Hudi table: it holds reports/may\.csv"):
        job.streamer(table_type=table_type).run_once()
    assert [each for each in folder.rglob("*") if each.is_file()] == [folder / "reports/may.csv"]


@pytest.mark.parametrize(("table_type", "version"), [("COPY_ON_WRITE", "6"), ("MERGE_ON_READ", "9")])
@pytest.mark.parametrize("strict", [True, False])
def test_rows_with_some_of_the_columns_set_these_only(job: Job, table_type: str, version: str, strict: bool) -> None:
    conf = {"hoodie.write.table.version": version}
    flags = {"table_type": table_type, "commit_on_errors": not strict, **EVENT_TIME}
    job.put("a.json", row("a", 1, "delft"), row("b", 1, "leiden"))
    job.streamer(conf, **flags).run_once()
    fields = [*ORDER["fields"][:2], {"name": "note", "type": ["null", "string"]}]  # type: ignore[index]
    (job.work / "order.avsc").write_text(json.dumps({**ORDER, "fields": fields}))
    job.put("b.json", {"id": "a", "ts": 2, "note": "late"}, {"id": "c", "ts": 2, "note": None}, at=1_700_000_001)
    before = HudiTable.open(job.table).timeline.instants
    with pytest.raises(SchemaError, match="city"):
        job.streamer(conf, **flags).run_once()
    assert HudiTable.open(job.table).timeline.instants == before
    conf["skep.stream.partial.updates"] = "true"
    assert job.streamer(conf, **flags).run_once().rows == 2
    assert job.rows() == [
        {**row("a", 2, "delft"), "note": "late"},
        {**row("b", 1, "leiden"), "note": None},
        {**row("c", 2), "note": None},
    ]
    assert job.streamer(conf, **flags).run_once().result is None
    with pytest.raises(OptionError, match="only UPSERT updates some of the columns"):
        job.streamer(conf, op="INSERT", **flags)


def test_some_of_the_columns_of_transformed_rows_and_what_can_not_be(job: Job) -> None:
    conf = {"hoodie.write.table.version": "6"}
    job.put("a.json", row("a", 1, "delft"))
    job.streamer(conf, table_type="MERGE_ON_READ").run_once()
    job.put("b.json", row("a", 2, "leiden"), at=1_700_000_001)
    conf["skep.stream.partial.updates"] = "true"
    some = {"transformer_class": [lambda rows: rows.drop_columns(["city"])]}
    with pytest.raises(UnsupportedError, match="log files of table version 6 hold whole rows"):
        job.streamer(conf, table_type="MERGE_ON_READ", **some).run_once()
    shutil.rmtree(job.table)
    job.streamer(conf, checkpoint="1700000000000", **some).run_once()  # a new table has the columns of the provider
    job.put("c.json", row("a", 3, "leiden"), at=1_700_000_002)
    job.streamer(conf).run_once()
    job.put("d.json", row("a", 4, "other"), at=1_700_000_003)
    job.streamer(conf, **some).run_once()
    assert job.rows() == [row("a", 4, "leiden")]


@pytest.mark.parametrize("version", ["6", "8", "9"])
def test_payloads_that_complete_rows_take_rows_with_some_of_the_columns(job: Job, version: str) -> None:
    conf = {"hoodie.write.table.version": version, "hoodie.write.set.null.for.missing.columns": "true"}
    flags = {
        "table_type": "MERGE_ON_READ",
        "payload_class": "org.apache.hudi.common.model.PartialUpdateAvroPayload",
        "source_ordering_field": "ts",
    }
    job.put("a.json", row("a", 1, "delft"))
    job.streamer(conf, **flags).run_once()
    (job.work / "order.avsc").write_text(json.dumps({**ORDER, "fields": ORDER["fields"][:2]}))  # type: ignore[index]
    job.put("b.json", {"id": "a", "ts": 2}, at=1_700_000_001)
    job.streamer(conf, **flags).run_once()
    assert job.rows() == [row("a", 2, "delft")]
