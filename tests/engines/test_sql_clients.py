"""Java clients of HiveServer2 at skep's SQL server: beeline and hive-jdbc of Hive 2.3, hive-jdbc of Hive 4."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import engine_services as services
import pyarrow as pa
import pytest

from skep.lake import Lake
from skep.serve.hive.run import SqlServer, sql_server
from skep.serve.hive.settings import SqlServerSettings
from skep.serve.hive.users import Users, kept_password
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Database

pytestmark = [pytest.mark.metastore, pytest.mark.engine("hive-clients")]

PROBE = Path(__file__).with_name("java") / "JdbcProbe.java"
OPENS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "net")]


@pytest.fixture(scope="module")
def server(metastore_server: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    """A lake with a table `typed`, for the user ann."""
    name, folder = f"db_{uuid.uuid4().hex[:10]}", tmp_path_factory.mktemp("lake")
    (folder / "users").write_text(f"ann:write:{kept_password('correct-horse')}\n")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    rows = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "t": ["zoë", None, "x"], "l": [[1, 2], None, []]})
    with Metastore.connect(metastore_server.uri, timeout_seconds=30, attempts=2) as client:
        client.create_database(Database(name, location=f"file://{folder}/{name}.db"))
        lake = Lake(client, str(folder), database=name)
        lake.create_table("typed", rows.schema, key="n").upsert(rows)
        settings = SqlServerSettings(port=0, http_port=0, users=Users.from_file(folder / "users"))
        with sql_server(lake, settings) as served:
            yield served
        lake.spark_holder.stop()
        client.drop_database(name, cascade=True)


def java(profile: str, *arguments: str) -> str:
    """What a program prints."""
    try:
        jars = services._artifacts(profile)
    except services.ServiceMissing as missing:
        pytest.skip(str(missing))
    command = [str(services.java(17)), "-Xmx256m", *OPENS, "-cp", os.pathsep.join(map(str, jars)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("transport", [0, 1], ids=["tcp", "http"])
@pytest.mark.parametrize("profile", ["beeline2", "jdbc4"])
def test_jdbc(server: SqlServer, profile: str, transport: int) -> None:
    statements = [
        "select n, t, l from typed order by n",
        "create table made (id bigint) tblproperties (primaryKey = 'id')",
        "insert into made values (7)",
        "select id from made",
        "drop table made purge",
        "select * from nothing",
        "selec 1",
    ]
    out = java(profile, str(PROBE), server.urls[transport], "ann", "correct-horse", *statements).splitlines()
    assert out[0] == "product skep"
    expected = ["columns n:bigint t:string l:array", "row|1|zoë|[1,2]", "row|2|null|null", "row|3|x|[]"]
    expected += ["done", "done", "columns id:bigint", "row|7", "done"]
    assert out[1:10] == expected
    assert out[10].startswith("error 42S02 ")
    assert "there is no table nothing" in out[10]
    assert out[11].startswith("error 42000 ")
    assert [line for line in out if line.startswith("tables|")] == [
        f"tables|{server.urls[0].rpartition('/')[2]}|typed|TABLE"
    ]
    assert {"columns|n|-5|BIGINT|19|6", "columns|l|2003|array<bigint>|2147483647|8"} < set(out)
    assert {"keys|typed|n|1", "table types|TABLE", "functions|hudi_query", "prepared|1"} < set(out)


@pytest.mark.parametrize("transport", [0, 1], ids=["tcp", "http"])
def test_beeline(server: SqlServer, transport: int) -> None:
    flags = ["-u", server.urls[transport], "-n", "ann", "-p", "correct-horse", "--outputformat=csv2", "--silent=true"]
    out = java("beeline2", "org.apache.hive.beeline.BeeLine", *flags, "-e", "select n, t from typed order by n;")
    assert out.split() == ["n,t", "1,zoë", "2,NULL", "3,x"]
