"""Clients of HiveServer2 at skep's SQL server: beeline and hive-jdbc of Hive 2.3, hive-jdbc of Hive 4.

And impyla, dbt-spark, Airflow's hook and Superset's description of Hive, each in an environment of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import engine_services as services
import pyarrow as pa
import pytest
from pyhive import hive

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
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
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
        "create table made (id bigint, x int) tblproperties (primaryKey = 'id')",
        "insert into made values (7, 1), (8, 1)",
        "update made set x = 2",
        "select id from made order by id",
        "drop table made purge",
        "select * from nothing",
        "selec 1",
    ]
    out = java(profile, str(PROBE), server.urls[transport], "ann", "correct-horse", *statements).splitlines()
    assert out[0] == "product skep"
    del out[1 : out.index("client info")]  # what the driver logs of a call that is refused
    expected = ["columns n:bigint t:string l:array", "row|1|zoë|[1,2]", "row|2|null|null", "row|3|x|[]"]
    changed = [0, 2, 2, 0] if profile == "jdbc4" else [-1] * 4  # drivers of Hive 2 do not ask
    expected += [*(f"done {count}" for count in changed[:3]), "columns id:bigint", "row|7", "row|8"]
    assert out[2:13] == [*expected, f"done {changed[3]}"]
    assert out[13].startswith("error 42S02 ")
    assert "there is no table nothing" in out[13]
    assert out[14].startswith("error 42000 ")
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


def python(*requirements: str) -> Path:
    """The interpreter of an environment with these packages, which is kept from run to run."""
    folder = services.cache() / f"clients-{hashlib.sha256(repr(requirements).encode()).hexdigest()[:12]}"
    made = folder / "bin" / "python"
    if not (folder / "complete").exists():
        steps = (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(made), "-m", "pip", "install", "-q", *requirements],
        )
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{', '.join(requirements)} can't be installed: {done.stderr[-300:]}")
        (folder / "complete").touch()
    return made


def ran(*command: object, **env: str) -> str:
    """What a program prints."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env={**plain, **env})
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-3000:]}"
    return done.stdout


IMPYLA = """
import json, sys
from impala.dbapi import connect
from impala.error import HiveServer2Error

kind, port, database = sys.argv[1:]
over_http = dict(use_http_transport=True, http_path="cliservice") if kind == "http" else {}
login = dict(auth_mechanism="PLAIN", user="ann", password="correct-horse")
cursor = connect("127.0.0.1", int(port), database, **login, **over_http).cursor()
cursor.execute("select n, t, current_user() from typed where n <= %(most)s order by n", {"most": 2})
found = [cursor.fetchall()]
cursor.get_databases()
found.append(database in [row[0] for row in cursor.fetchall()])
found.append([cursor.table_exists(name, database) for name in ("typed", "nothing")])
found.append(cursor.get_table_schema("typed", database)[-3:])
try:
    cursor.execute("selec 1")
except HiveServer2Error as error:
    found.append(str(error))
cursor.ping()
cursor.execute("select 1")
found.append(cursor.fetchall())
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", "http"])
def test_impyla(server: SqlServer, kind: str) -> None:
    database = server.urls[0].rpartition("/")[2]
    port = server.port if kind == "tcp" else server.http_port
    found = json.loads(ran(python("impyla==0.23.0"), "-c", IMPYLA, kind, port, database))
    assert found[:3] == [[[1, "zoë", "ann"], [2, None, "ann"]], True, [True, False]]
    assert found[3] == [["n", "BIGINT"], ["t", "STRING"], ["l", "array<bigint>"]]
    assert "expected a statement" in found[4]
    assert found[5] == [[1]]


AIRFLOW = """
import json, sys
from airflow.providers.apache.hive.hooks.hive import HiveServer2Hook

hook, database = HiveServer2Hook(), sys.argv[1]
records = hook.get_records("select n, current_user() from typed order by n", schema=database)
frame = hook.get_df("select n, t from typed where n = 1", schema=database)
print(json.dumps([records, frame.to_dict("list")]))
"""


@pytest.mark.slow
def test_airflow(server: SqlServer, tmp_path: Path) -> None:
    interpreter = python("apache-airflow<3", "apache-airflow-providers-apache-hive", "pandas<3")
    database = server.urls[0].rpartition("/")[2]
    given = {"host": "127.0.0.1", "port": server.port, "login": "ann", "password": "correct-horse"}
    connection = json.dumps({"conn_type": "hiveserver2", **given, "extra": {"auth_mechanism": "LDAP"}})
    out = ran(
        *(interpreter, "-c", AIRFLOW, database), AIRFLOW_HOME=str(tmp_path), AIRFLOW_CONN_HIVESERVER2_DEFAULT=connection
    )
    assert json.loads(out.splitlines()[-1]) == [[[1, "ann"], [2, "ann"], [3, "ann"]], {"n": [1], "t": ["zoë"]}]


SUPERSET_CONFIG = """
SECRET_KEY = "of a test, and as long as Superset wants it"
SQLALCHEMY_DATABASE_URI = "sqlite://"
FILTER_STATE_CACHE_CONFIG = EXPLORE_FORM_DATA_CACHE_CONFIG = {"CACHE_TYPE": "NullCache"}
"""
SUPERSET = """
import json, sys
from superset.app import create_app

uri, schema = sys.argv[1:]
with create_app().app_context():
    from superset.models.core import Database
    from superset.sql.parse import Table

    database = Database(database_name="lake", sqlalchemy_uri=uri)
    database.set_sqlalchemy_uri(uri)
    spec, table = database.db_engine_spec, Table("days", schema)
    with database.get_inspector() as inspector:
        found = {
            "spec": spec.__name__,
            "schemas": schema in database.get_all_schema_names(),
            "tables": sorted(spec.get_table_names(database, inspector, schema)),
            "views": sorted(spec.get_view_names(database, inspector, schema)),
            "columns": [[each["column_name"], str(each["type"])] for each in spec.get_columns(inspector, table)][-3:],
            "indexes": [each["column_names"] for each in spec.get_indexes(database, inspector, table)],
        }
    found["rows"] = database.get_df("select n, t from days order by n", schema=schema).to_dict("list")
    found["latest"] = spec.latest_partition(database, table)
    star = database.select_star(table, limit=10, show_cols=False, latest_partition=True)
    found["star"] = database.get_df(star, schema=schema)["n"].to_list()
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_superset(server: SqlServer, tmp_path: Path) -> None:
    """By its description of Hive: what its editor and its charts read of a database."""
    schema = server.urls[0].rpartition("/")[2]
    (tmp_path / "superset_config.py").write_text(SUPERSET_CONFIG)
    interpreter = python("apache-superset==6.1.0", "Flask-Caching<2.4", "cachetools", "pyhive", "thrift", "thrift_sasl")
    connection = hive.connect("127.0.0.1", port=server.port, auth="LDAP", username="ann", password="correct-horse")
    cursor = connection.cursor()
    for statement in (
        f"create table {schema}.days (n bigint, t string, day string) partitioned by (day)"
        " tblproperties (primaryKey = 'n')",
        f"insert into {schema}.days values (1, 'zoë', '2026-01-01'), (2, null, '2026-01-02')",
        f"create view {schema}.seen as select n from {schema}.days",
    ):
        cursor.execute(statement)
    uri = f"hive://ann:correct-horse@127.0.0.1:{server.port}/{schema}?auth=LDAP"
    place = {"SUPERSET_CONFIG_PATH": str(tmp_path / "superset_config.py"), "SUPERSET_HOME": str(tmp_path)}
    try:
        found = json.loads(ran(interpreter, "-c", SUPERSET, uri, schema, **place).splitlines()[-1])
    finally:
        for statement in (f"drop view {schema}.seen", f"drop table {schema}.days purge"):
            cursor.execute(statement)
        connection.close()
    assert {"days", "typed"} <= set(found.pop("tables"))
    assert found == {
        "spec": "HiveEngineSpec",
        "schemas": True,
        "views": ["seen"],
        "columns": [["n", "BIGINT"], ["t", "VARCHAR"], ["day", "VARCHAR"]],
        "indexes": [["day"]],
        "rows": {"n": [1, 2], "t": ["zoë", None]},
        "latest": [["day"], ["2026-01-02"]],
        "star": [2],
    }


@pytest.mark.slow
def test_dbt(server: SqlServer, tmp_path: Path) -> None:
    """A project runs, again with the same outcome, and after its source and a model's columns have changed."""
    dbt = python("dbt-core>=1.10,<1.11", "dbt-spark[PyHive]>=1.10,<1.11").with_name("dbt")
    project, schema = tmp_path / "project", f"dbt_{uuid.uuid4().hex[:8]}"
    shutil.copytree(Path(__file__).with_name("dbt"), project)
    connection = hive.connect(
        "127.0.0.1", port=server.port, auth="LDAP", username="ann", password="correct-horse", database="default"
    )

    def run(*command: str) -> None:
        where = ["--project-dir", project, "--profiles-dir", project]
        ran(dbt, "--no-use-colors", *command, *where, LAKE_PORT=str(server.port), LAKE_SCHEMA=schema)

    def rows(query: str) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.execute(query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def outcome() -> dict[str, list[tuple[Any, ...]]]:
        return {
            "customers": rows(f"select customer, orders, total from {schema}.customers order by customer"),
            "merged": rows(f"select id, amount from {schema}.merged order by id"),
            "daily": rows(f"select id, amount, day from {schema}.daily order by id"),
            "history": rows(f"select id, amount, dbt_valid_to is null from {schema}.history order by id, amount"),
        }

    try:
        run("build")
        first = outcome()
        assert first == {
            "customers": [("ann", 2, 15.75), ("bob", 1, 20.0)],
            "merged": [(1, 10.5), (2, 20.0), (3, 5.25)],
            "daily": [(1, 10.5, "2026-01-01"), (2, 20.0, "2026-01-01"), (3, 5.25, "2026-01-02")],
            "history": [(1, 10.5, True), (2, 20.0, True), (3, 5.25, True)],
        }
        run("build")
        assert outcome() == first
        shutil.copy(project / "changed" / "orders.csv", project / "seeds" / "orders.csv")
        run("build", "--vars", "{wide: true}")
        assert outcome() == {
            "customers": [("ann", 2, 15.75), ("bob", 1, 25.0), ("eve", 1, 1.0)],
            "merged": [(1, 10.5), (2, 25.0), (3, 5.25), (4, 1.0)],
            "daily": [
                *((1, 10.5, "2026-01-01"), (2, 25.0, "2026-01-01")),
                *((3, 5.25, "2026-01-02"), (4, 1.0, "2026-01-03")),
            ],
            "history": [(1, 10.5, True), (2, 20.0, False), (2, 25.0, True), (3, 5.25, True), (4, 1.0, True)],
        }
        assert rows(f"select customer from {schema}.merged order by id") == [(None,), ("bob",), ("ann",), ("eve",)]
        run("docs", "generate")
        nodes = json.loads((project / "target" / "catalog.json").read_text())["nodes"]
        found = {node["metadata"]["name"]: node for node in nodes.values()}
        kinds = {name: node["metadata"]["type"] for name, node in found.items()}
        assert kinds == {
            **dict.fromkeys(["orders", "customers", "merged", "daily", "history"], "table"),
            "recent": "view",
        }
        assert list(found["recent"]["columns"]) == ["id", "customer", "amount", "day"]
        assert found["customers"]["metadata"]["owner"]
    finally:
        rows_of = connection.cursor()
        rows_of.execute(f"drop database if exists {schema} cascade")
        connection.close()
