"""The golden scripts: what real Hudi answered to statements, each given to skep.

A statement passes when it answers what one of the two releases answered. The others are in `exceptions.toml`, each with
what skep answers instead and the reason; an entry that is not needed fails the test of its script.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sql_lakes import NeedsSession

from skep.handles.statements import StatementResult
from skep.lake import Lake
from skep_format.errors import NoSuchTableError, SkepError
from skep_sql.effects import run
from skep_sql.parsing.statements import Query

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [
    pytest.mark.metastore,
    pytest.mark.filterwarnings("ignore::skep_table.write.flow.EmptyPartitionWarning"),
]
HERE = Path(__file__).parent
HIDDEN = {"_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"}
EXCEPTIONS = tomllib.loads((HERE / "exceptions.toml").read_text(encoding="utf-8"))["exception"]


def scripts() -> dict[str, dict[str, dict[str, Any]]]:
    """Script → release of Hudi → what it answered."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in (HERE / "golden.jsonl").read_text(encoding="utf-8").splitlines():
        script = json.loads(line)
        found.setdefault(script["script"], {})[script["hudi"]] = script
    return found


SCRIPTS = scripts()
# The quick loop runs every third.
SAMPLED = [pytest.param(each, marks=pytest.mark.engine("spark") if at % 3 else ()) for at, each in enumerate(SCRIPTS)]


@pytest.fixture
def utc(spark: Any) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def plain(value: object, kind: pa.DataType) -> object:
    """A value as the golden file writes it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        assert isinstance(value, dict)
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [[plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in value]  # type: ignore[attr-defined]
    if pa.types.is_list(kind):
        return [plain(each, kind.value_type) for each in value]  # type: ignore[attr-defined]
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return re.sub(r"(\.\d*?)0+$", r"\1", f"{value:%Y-%m-%d %H:%M:%S.%f}").rstrip(".")
    if isinstance(value, (Decimal, dt.date)):
        return str(value)
    return value


class Run:
    """One script on one lake. Without Spark, statements whose queries need it are left out."""

    def __init__(self, lake: Lake, database: str, folder: Path, *, with_spark: bool) -> None:
        self._lake = lake
        self._with_spark = with_spark
        self._names = {"dir": str(folder), "db": database}
        folder.mkdir()

    def instants(self) -> list[tuple[str, str]]:
        """Requested and completion times of the completed writes of table t."""
        try:
            table = self._lake.table("t").hudi
        except (NoSuchTableError, SkepError):
            return []
        found = table.timeline.data().completed().instants
        return [(str(each.requested_time), str(each.requested_time)) for each in found]

    def text(self, sql: str) -> str | None:
        """The statement with its placeholders filled; None where it names an instant that is not there."""
        instants = self.instants()

        def fill(found: re.Match[str]) -> str:
            kind, number = re.fullmatch(r"([a-z]+)(\d*)", found[1]).groups()  # type: ignore[union-attr]
            if not number:
                return self._names[kind]
            requested = instants[int(number) - 1][0]
            if kind != "ts":
                return requested
            time = dt.datetime.strptime(requested[:14], "%Y%m%d%H%M%S")
            return f"{time:%Y-%m-%d %H:%M:%S}.{requested[14:]}"

        try:
            return re.sub(r"\{([a-z]+\d*)\}", fill, sql)
        except IndexError:
            return None

    def answer(self, sql: str) -> tuple[str, Any]:
        """`ok` and rows, or `error` and its text."""
        text = self.text(sql)
        if text is None:
            return "not_run", None
        try:
            result = self._lake.sql(text) if self._with_spark else self._without_spark(text)
            rows = result.to_arrow()
        except NeedsSession:
            return "needs Spark", None
        except SkepError as error:
            return "error", f"{type(error).__name__}: {error.message}"
        if isinstance(result, StatementResult) and not rows.schema.names:
            return "ok", None
        kept = [field for field in rows.schema if field.name not in HIDDEN]
        times = {time: f"<t:i{at + 1}>" for at, (time, _) in enumerate(self.instants())}
        return "ok", [
            [self._named(plain(row[field.name], field.type), times) for field in kept] for row in rows.to_pylist()
        ]

    def _without_spark(self, text: str) -> StatementResult:
        session = self._lake._statements().session
        return StatementResult(run(session, session.parse(text)), self._lake)

    def _named(self, value: object, times: dict[str, str]) -> object:
        if value == self._names["db"]:
            return "<db>"
        return times.get(value, value) if isinstance(value, str) else value


def same(mine: tuple[str, Any], golden: dict[str, Any]) -> bool:
    """Whether an answer is that of a release. Sizes, times and generated names are not compared."""
    if golden["outcome"] != mine[0]:
        return False
    if mine[0] != "ok":
        return True
    expected, found = golden.get("rows"), mine[1]
    if expected is None or found is None:
        return not expected and not found
    expected = [[comparable(value) for value in row] for row in expected]
    found = [[comparable(value) for value in row] for row in found]
    if not golden.get("ordered", True):
        expected, found = sorted(expected, key=json.dumps), sorted(found, key=json.dumps)
    return bool(expected == found)


def comparable(value: object) -> object:
    if isinstance(value, str):
        value = re.sub(r"<t:c(\d+)>", r"<t:i\1>", value)
        value = re.sub(r"^s_\w+$", "<db>", value)
        value = re.sub(r"\b[0-9a-f-]{36}-0\b", "<uuid>-0", value)
        value = re.sub(r"^\d\d-\d\d \d\d:\d\d:\d\d$", "<moment>", value)
        value = re.sub(r"^<t:i(\d+)>$|^\d{17}$", "<instant>", value)
        value = re.sub(
            r"\S+(/\w+/\.hoodie/metadata) \(duration=[\d.]+sec", r"<warehouse>\1 (duration=<seconds>sec", value
        )
    return "<bytes>" if isinstance(value, int) and not isinstance(value, bool) and value > 1_500 else value


@pytest.mark.parametrize("script", SAMPLED)
def test_script_without_spark(script: str, lake: Lake, database: str, tmp_path: Path) -> None:
    check(script, Run(lake, database, tmp_path / "dir", with_spark=False), lake)


@pytest.mark.spark
@pytest.mark.engine("spark")
@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script: str, spark_lake: Lake, database: str, tmp_path: Path, utc: None) -> None:
    check(script, Run(spark_lake, database, tmp_path / "dir", with_spark=True), spark_lake)


def check(script: str, run: Run, lake: Lake) -> None:
    releases = SCRIPTS[script]
    first = next(iter(releases.values()))
    for key, value in first["session"].items():
        if key != "hoodie.metadata.enable":
            lake.sql(f"SET {key}={value}")
    allowed = {each["statement"]: each for each in EXCEPTIONS if each["script"] == script}
    wrong, used = [], set()
    for at, statement in enumerate(first["statements"]):
        sql = statement["sql"]
        outcomes = [release["statements"][at] for release in releases.values()]
        mine = run.answer(sql)
        if mine[0] == "needs Spark":
            used.add(at)
            if not isinstance(lake._statements().session.parse(run.text(sql) or "SHOW TABLES"), Query):
                break  # what follows depends on it
            continue
        if any(same(mine, outcome) for outcome in outcomes):
            continue
        exception = allowed.get(at)
        if exception is not None and exception.get("answer", "error") in (mine[0], json.dumps(mine[1])):
            used.add(at)
            continue
        wrong.append((at, sql, mine, [(each["outcome"], each.get("rows")) for each in outcomes]))
    else:
        assert not (unused := set(allowed) - used), f"exceptions that are not needed: {unused}"
    assert not wrong, "\n".join(f"{at}: {sql}\n    skep {mine}\n    Hudi {hudi}" for at, sql, mine, hudi in wrong)
