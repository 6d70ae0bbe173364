"""One comparison with one release and mode of Spark: its questions, and the judged answers of each contender."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine_choice import everyday, hostile
from benchmarks.engine_choice.allow_list import RIGHT, AllowList, allow_list, features, let_through
from benchmarks.engine_choice.answers import load
from benchmarks.engine_choice.compare import Judged, Verdict, judged
from benchmarks.engine_choice.environments import SAIL, SPARK4, TPCH
from skep_format.errors import SkepError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = [str(ROOT / each) for each in ("format", "table", "catalog", "writer", "sync", "sql", "stream", ".")]
ENVIRONMENT = {**os.environ, "RUST_LOG": "off", "PYTHONPATH": os.pathsep.join(PACKAGES)}
SKEP, SAIL_NAME = "Sail, by the translator", "Sail"
DOCUMENTED, EVERYDAY, TPC_H, HOSTILE = "documented examples", "everyday queries", "TPC-H", "random expressions"
SEED, EACH = 20, 2  # of the random expressions, and how many of each form
TPCH_SCALE = 0.01
PARTS = 10
Q15 = """with revenue0 as (
  select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue from lineitem
  where l_shipdate >= date '1996-08-01' and l_shipdate < date '1996-08-01' + interval '3' month group by l_suppkey
)
select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue0
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue0) order by s_suppkey"""


@dataclass(frozen=True)
class Mode:
    """A release of Spark and the settings that both engines get."""

    name: str
    spark: Callable[[], Path]
    zone: str
    is_ansi: bool
    contenders: tuple[str, ...]

    @property
    def settings(self) -> dict[str, str]:
        return {"spark.sql.session.timeZone": self.zone, "spark.sql.ansi.enabled": str(self.is_ansi).lower()}


MODES = (
    Mode("Spark 3.5, UTC", lambda: Path(sys.executable), "UTC", False, (SKEP, SAIL_NAME)),
    Mode("Spark 4.3, UTC, ANSI", lambda: SPARK4.python, "UTC", True, (SKEP, SAIL_NAME)),
    Mode("Spark 3.5, New York", lambda: Path(sys.executable), "America/New_York", False, (SAIL_NAME,)),
)


@dataclass
class Round:
    """What came out: by contender and group of questions."""

    mode: Mode
    judgements: dict[str, dict[str, list[Judged]]] = field(default_factory=dict)
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: dict[str, pa.DataType] = field(default_factory=dict)

    def all_of(self, contender: str) -> list[Judged]:
        return [each for group in self.judgements[contender].values() for each in group]

    def lists(self, contender: str, *, by_types: bool) -> Listed:
        """The allow-list of all questions, and what it lets through."""
        found = self._features(contender, by_types)
        allowed = allow_list(self.all_of(contender), found, self.owners)
        unseen = []
        for part in range(PARTS):
            known = [each for at, each in enumerate(self.all_of(contender)) if at % PARTS != part]
            others = [each for at, each in enumerate(self.all_of(contender)) if at % PARTS == part]
            unseen += let_through(others, found, allow_list(known, found, self.owners))
        return Listed(
            allowed,
            {name: let_through(each, found, allowed) for name, each in self.judgements[contender].items()},
            unseen,
        )

    def _features(self, contender: str, by_types: bool) -> dict[str, frozenset[str]]:
        found = {}
        for each in self.all_of(contender):
            try:
                found[each.query] = features(each.query, self.columns, by_types=by_types)
            except SkepError:  # skep's parser refuses a few, which are then left to Spark
                continue
        return found


@dataclass(frozen=True)
class Listed:
    """An allow-list, what it lets through, and `unseen`: of each tenth of the queries, what a list of the others does.

    The latter shows how far a list can be trusted with queries that were not compared.
    """

    allowed: AllowList
    through: Mapping[str, Sequence[Judged]]
    unseen: Sequence[Judged]


def count(judgements: Iterable[Judged], *verdicts: Verdict) -> int:
    """How many have one of these verdicts."""
    return sum(each.verdict in verdicts for each in judgements)


def right(judgements: Iterable[Judged]) -> int:
    """How many are as Spark's, whatever the names of columns."""
    return count(judgements, *RIGHT)


def tpch_queries() -> list[str]:
    """The 22 of TPC-H in Spark's dialect, which come with Sail; that with a view is written as a WITH here."""
    (folder,) = SAIL.python.parents[1].glob("lib/python*/site-packages/pysail/data/tpch/queries")
    texts = [(folder / f"q{at}.sql").read_text(encoding="utf-8") for at in range(1, 23)]
    plain = ["\n".join(line for line in text.splitlines() if not line.startswith("--")) for text in texts]
    return [Q15 if at == 14 else text.strip().rstrip(";") for at, text in enumerate(plain)]


def compare(mode: Mode, folder: Path, scale: float, progress: Callable[[str], None]) -> Round:
    """Asks Spark, then the contenders, and judges."""
    tables, tpch_tables = folder / "tables", folder / "tpch"  # both have one named orders
    is_first = not tables.exists()
    if is_first:
        tables.mkdir(parents=True)
        pq.write_table(everyday.edge_rows(), tables / "edge.parquet")
        tpchgen = TPCH.python.parent / "tpchgen-cli"
        command = [tpchgen, "parquet", "-s", str(TPCH_SCALE * scale), "--output-dir", tpch_tables]
        subprocess.run(command, check=True, capture_output=True)
    groups = {
        EVERYDAY: [*everyday.QUERIES, *everyday.MORE_QUERIES],
        TPC_H: tpch_queries(),
        HOSTILE: hostile.queries(SEED, EACH),
    }
    queries = {str(tables): [*groups[EVERYDAY], *groups[HOSTILE]], str(tpch_tables): groups[TPC_H]}
    own = folder / mode.name.replace(" ", "-").replace(",", "")
    own.mkdir()
    common = {"folder": str(own), "settings": mode.settings}
    progress(f"{mode.name}: Spark answers")
    _work(
        "ask_spark.py",
        mode.spark(),
        own,
        {**common, "queries": queries, "tables": str(tables), "writes_tables": is_first},
    )
    examples = json.loads((own / "examples.json").read_text(encoding="utf-8"))
    wanted = {**load(own / "queries.arrow"), **load(own / "examples.arrow")}
    again = load(own / "examples-again.arrow")
    groups = {DOCUMENTED: list(examples), **groups}
    done = Round(mode, owners=examples)
    for file in (*tables.glob("*.parquet"), *tpch_tables.glob("*.parquet")):
        done.columns |= {each.name.lower(): each.type for each in pq.read_schema(file)}
    for contender in mode.contenders:
        progress(f"{mode.name}: {contender} answers")
        script, python = ("ask_sail.py", SAIL.python) if contender == SAIL_NAME else ("ask_skep.py", sys.executable)
        out = own / f"{script}.arrow"
        asked = {str(own): list(examples), **queries}  # examples read no tables
        _work(script, python, own, {**common, "queries": asked, "out": str(out)})
        found = load(out)
        done.judgements[contender] = {
            name: [judged(query, found[query], wanted[query], again.get(query)) for query in group]
            for name, group in groups.items()
        }
    return done


def _work(script: str, python: str | Path, folder: Path, task: Mapping[str, object]) -> None:
    file = folder / f"{script}.json"
    file.write_text(json.dumps(task), encoding="utf-8")
    subprocess.run(
        [str(python), "-W", "ignore", str(HERE / script), str(file)], check=True, env=ENVIRONMENT, cwd=folder
    )
