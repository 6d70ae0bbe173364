"""Incremental pulls: folders of Avro files, what is refused, Hive's statements, and streams that read the pulls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import skep
from skep.flows.pulls import Pull, Pulled, pull
from skep.lake import Lake
from skep.metastore.hive_client import HiveAddress, HiveClient
from skep_format.errors import InputError, NoSuchTableError, OptionError, SkepError, UnsupportedError

pytestmark = pytest.mark.metastore
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("city", pa.string())])


class Job:
    """A source of a few commits, and a folder of pulls."""

    def __init__(self, lake: Lake, folder: Path, version: int = 6) -> None:
        self.lake, self.tmp = lake, folder / "pulls"
        self.source = lake.create_table("trips", SCHEMA, key="id", ordering="ts", table_version=version)
        self.times: list[str] = []

    def put(self, *ids: int, city: str = "delft") -> None:
        at = len(self.times) + 1
        done = self.source.upsert(pa.table([ids, [at] * len(ids), [city] * len(ids)], SCHEMA))
        self.times.append(str(done.instant.completion_time or done.instant.requested_time))

    @property
    def query(self) -> str:
        return f"SELECT id, ts, upper(city) AS city FROM {self.lake.database}.trips WHERE `_hoodie_commit_time` > '%s'"

    def described(self, **more: Any) -> dict[str, Any]:
        return {
            "source_db": self.lake.database,
            "source_table": "trips",
            "target_db": self.lake.database,
            "target_table": "copies",
            "tmp": str(self.tmp),
            "sql": self.query,
            **more,
        }

    def pull(self, **more: Any) -> Pulled | None:
        return self.lake.pull(**self.described(**more))

    def streamer(self, source: str = "HiveIncrPullSource") -> skep.Streamer:
        conf = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.streamer.source.incrpull.root": str(self.tmp / "copies__trips"),
            "hoodie.streamer.source.dfs.root": str(self.tmp),
        }
        path = f"{self.lake.warehouse}/copies"
        return skep.Streamer(
            target_base_path=path,
            target_table="copies",
            table_type="COPY_ON_WRITE",
            source_class=source,
            hoodie_conf=conf,
        )

    def found(self, folder: str) -> list[dict[str, Any]]:
        with (self.tmp / "copies__trips" / folder / "000000_0").open("rb") as file:
            return sorted(fastavro.reader(file), key=lambda row: row["id"])  # type: ignore[arg-type, return-value]


@pytest.fixture
def job(lake: Lake, tmp_path: Path) -> Job:
    return Job(lake, tmp_path)


@pytest.mark.parametrize("version", [6, 9])
def test_pulls_of_some_commits_are_read_by_a_stream(lake: Lake, tmp_path: Path, version: int) -> None:
    job = Job(lake, tmp_path, version)
    for at in range(5):
        job.put(at, 99)
    first = job.pull(from_commit_time="0")
    assert first == Pulled((job.tmp / "copies__trips" / job.times[2]).as_uri(), "0", job.times[2], 3, 4)
    assert job.found(job.times[2]) == [
        *({"id": at, "ts": at + 1, "city": "DELFT"} for at in range(3)),
        {"id": 99, "ts": 3, "city": "DELFT"},
    ]
    assert job.streamer().run_once().checkpoint == job.times[2]
    lake.register(f"{lake.warehouse}/copies", "copies")
    second = job.pull(max_commits=-1)  # behind the checkpoint of the target
    assert second is not None
    assert (second.since, second.until, second.commits, second.rows) == (job.times[2], job.times[4], 2, 3)
    assert [done.rows for done in (job.streamer().run_once(), job.streamer().run_once())] == [3, 0]
    assert job.pull() is None
    copies = lake.table("copies").read(columns=["id", "ts"]).to_arrow().sort_by("id").to_pylist()
    assert copies == [*({"id": at, "ts": at + 1} for at in range(5)), {"id": 99, "ts": 5}]


def test_a_pull_is_made_again_as_a_whole(job: Job) -> None:
    job.put(1, 2)
    job.pull(from_commit_time="0")
    folder = job.tmp / "copies__trips" / job.times[0]
    (folder / "000001_0").write_bytes(b"of another run")
    again = job.pull(from_commit_time="0")
    assert again is not None
    assert again.rows == 2
    assert [each.name for each in folder.iterdir()] == ["000000_0"]


def test_a_stream_leaves_a_pull_that_is_not_complete(job: Job) -> None:
    job.put(1)
    job.pull(from_commit_time="0")
    newer = job.tmp / "copies__trips" / "99991231000000000"
    newer.mkdir()
    assert [job.streamer().run_once().rows for _ in range(2)] == [1, 0]
    job.put(2)
    job.pull(from_commit_time=job.times[0])
    assert job.streamer().run_once().checkpoint == job.times[1]


def test_pulls_are_files_of_avro_to_other_sources(job: Job) -> None:
    job.put(1, 2)
    job.pull(from_commit_time="0")
    assert job.streamer("AvroDFSSource").run_once().rows == 2


def test_other_tables_of_the_lake_are_joined(job: Job) -> None:
    job.put(1, 2)
    names = job.lake.create_table("names", pa.schema([("city", pa.string()), ("name", pa.string())]), key="city")
    names.upsert(pa.table({"city": ["delft"], "name": ["Delft"]}))
    sql = (
        f"SELECT t.id, n.name FROM {job.lake.database}.trips t JOIN names n ON t.city = n.city"
        " WHERE t.`_hoodie_commit_time` > '%targetBasePath'"
    )
    done = job.pull(from_commit_time="0", sql=sql)
    assert done is not None
    assert job.found(done.until) == [{"id": 1, "name": "Delft"}, {"id": 2, "name": "Delft"}]


def test_what_can_not_be_pulled_is_refused(job: Job) -> None:
    job.put(1)
    refused: list[tuple[dict[str, Any], type[SkepError], str]] = [
        ({"sql": "SELECT * FROM other WHERE `_hoodie_commit_time` > '%s'"}, InputError, "does not read .*trips"),
        ({"sql": f"SELECT * FROM {job.lake.database}.trips"}, InputError, "lacks the clause"),
        ({"max_commits": 0}, OptionError, "maxCommits is 1 at least"),
        ({"target_db": None}, OptionError, "without targetDb a pull needs fromCommitTime"),
        ({"from_commit_time": "yesterday"}, InputError, "is no time of a commit"),
        ({"source_table": "none", "sql": job.query.replace("trips", "none")}, NoSuchTableError, "none"),
    ]
    for more, error, message in refused:
        with pytest.raises(error, match=message):
            job.pull(**more)
    job.lake.create_table("copies", SCHEMA, key="id").upsert(pa.table([[1], [1], ["x"]], SCHEMA))
    with pytest.raises(InputError, match="has commits and no checkpoint"):
        job.pull()
    assert not job.tmp.exists()


class Cursor:
    """Of a HiveServer2 that knows some tables."""

    def __init__(self, locations: dict[str, str], done: list[str]) -> None:
        self.locations, self.done, self.rows = locations, done, []
        self.description: object = None

    def execute(self, statement: str) -> None:
        from pyhive.exc import OperationalError

        described = re.fullmatch(r"DESCRIBE FORMATTED (.*)", statement)
        if described is None:
            self.done.append(statement)
            self.description = None
            return
        if described[1] not in self.locations:
            raise OperationalError(f"Table not found {described[1]}")
        self.description = ["col_name"]
        self.rows = [("# Detailed", None, None), ("Location:  ", f"{self.locations[described[1]]} ", None)]

    def fetchall(self) -> list[Any]:
        return self.rows

    def close(self) -> None:
        pass


class Connection:
    def __init__(self, locations: dict[str, str]) -> None:
        self.locations, self.done = locations, list[str]()

    def cursor(self) -> Cursor:
        return Cursor(self.locations, self.done)


def test_hive_is_given_the_settings_of_an_incremental_read(job: Job) -> None:
    job.put(1)
    job.put(2)
    temporary = "hoodie_temp.copies__trips"
    connection = Connection({f"{job.lake.database}.trips": job.source.path, temporary: "/earlier"})
    asked = Pull(**job.described(max_commits=1))
    done = pull(job.lake, asked, HiveClient(connection), queue="nightly")
    path = (job.tmp / "copies__trips" / job.times[0]).as_uri()
    assert done == Pulled(path, "0", job.times[0], 1, None)
    assert connection.done == [
        "CREATE DATABASE IF NOT EXISTS hoodie_temp",
        f"ALTER TABLE {temporary} SET TBLPROPERTIES ('EXTERNAL'='TRUE', 'external.table.purge'='false')",
        f"DROP TABLE {temporary}",
        "SET mapred.job.queue.name=nightly",
        "SET hive.input.format=org.apache.hudi.hadoop.hive.HoodieCombineHiveInputFormat",
        "SET hive.strict.checks.large.query=false",
        "SET hive.stats.autogather=false",
        "SET hive.fetch.task.conversion=none",
        "SET hoodie.trips.consume.mode=INCREMENTAL",
        "SET hoodie.trips.consume.start.timestamp=0",
        "SET hoodie.trips.consume.max.commits=1",
        f"CREATE TABLE {temporary} STORED AS AVRO LOCATION '{path}' AS {job.query.replace('%s', '0')}",
    ]


def test_hive_pulls_no_tables_of_later_versions(lake: Lake, tmp_path: Path) -> None:
    job = Job(lake, tmp_path, 9)
    job.put(1)
    connection = Connection({f"{lake.database}.trips": job.source.path})
    with pytest.raises(UnsupportedError, match="has version 9"):
        pull(lake, Pull(**job.described(from_commit_time="0")), HiveClient(connection))


def test_addresses_of_hive() -> None:
    http = HiveAddress.parse("jdbc:hive2://localhost:10014/;transportMode=http;httpPath=hs2")
    assert http == HiveAddress("localhost", 10014, "default", "hs2")
    assert HiveAddress.parse("jdbc:hive2://hive/shop") == HiveAddress("hive", 10000, "shop", None)
    for strange in (
        "localhost:10000",
        "jdbc:hive2://a:1,b:2/;serviceDiscoveryMode=zooKeeper",
        "jdbc:hive2://a/;ssl=true",
    ):
        with pytest.raises(InputError, match="can't be used"):
            HiveAddress.parse(strange)


def test_the_command_has_the_options_of_the_puller(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from skep.cli.main import app

    job.put(1)
    (tmp_path / "query.sql").write_text(f"{job.query};\n")
    (tmp_path / "skep.toml").write_text(f'metastore = "{job.lake.metastore.uri}"\nwarehouse = "{job.lake.warehouse}"\n')
    monkeypatch.chdir(tmp_path)
    words = ["--extractSQLFile", "query.sql", "--sourceDb", job.lake.database, "--sourceTable", "trips"]
    words += ["--targetDb", job.lake.database, "--targetTable", "copies", "--tmp", str(job.tmp), "--output", "jsonl"]
    done = CliRunner().invoke(app, ["pull", *words])
    assert done.exit_code == 0, done.stderr
    assert f'"until": "{job.times[0]}"' in done.stdout
    nothing = CliRunner().invoke(app, ["pull", *words, "--fromCommitTime", job.times[0]])
    assert (nothing.exit_code, nothing.stderr) == (0, "there are no commits to pull\n")
    refused = CliRunner().invoke(app, ["pull", *words, "--hiveUrl", "jdbc:hive2://127.0.0.1:1/"])
    assert refused.exit_code == 1
    assert "can't be used" in refused.stderr
