"""`python -m benchmarks.spark_answers.record`: real Spark's answers, with which tests compare those given without it.

Writes `tests/sql/spark_answers`: the tables that the queries read, and a file of answers for each group of queries.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from benchmarks.spark_answers import everyday, hostile, structures
from benchmarks.spark_answers.answers import Answer, answered, save
from benchmarks.spark_answers.compare import same
from benchmarks.spark_answers.examples import documented_examples
from skep_catalog.class_archive import spark_environment
from skep_writer import collect_answer, collect_arrow, make_spark

FOLDER: Final = Path(__file__).resolve().parents[2] / "tests" / "sql" / "spark_answers"
TPCHGEN: Final = "tpchgen-cli==4.0.0"
SCALE: Final = 0.002  # 12,000 rows in the largest table
Q15: Final = """with revenue0 as (
  select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue from lineitem
  where l_shipdate >= date '1996-08-01' and l_shipdate < date '1996-08-01' + interval '3' month group by l_suppkey
)
select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue0
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue0) order by s_suppkey"""
SEED, EACH = 20, 2  # of the random expressions, and how many of each form
SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # days before 1582 in files of Arrow are as written
}


def tpch_queries() -> list[str]:
    """The 22 of TPC-H in Spark's dialect, which come with Sail; that with a view is a WITH here."""
    folder = files("pysail") / "data" / "tpch" / "queries"
    texts = [(folder / f"q{at}.sql").read_text(encoding="utf-8") for at in range(1, 23)]
    plain = ["\n".join(line for line in text.splitlines() if not line.startswith("--")) for text in texts]
    return [Q15 if at == 14 else text.strip().rstrip(";") for at, text in enumerate(plain)]


def write_tables(spark: Any, folder: Path) -> None:
    """The everyday tables, in the types that Spark gives them, those of edges, and those of TPC-H."""
    for name, columns in everyday.TABLES.items():
        spark.sql(f"CREATE TABLE made_{name} {columns} USING parquet")
    for text in everyday.ROWS:
        spark.sql(text.replace("INSERT INTO ", "INSERT INTO made_"))
    (folder / "everyday").mkdir()
    for name in everyday.TABLES:
        pq.write_table(collect_arrow(spark.table(f"made_{name}")), folder / "everyday" / f"{name}.parquet")
    pq.write_table(everyday.edge_rows(), folder / "everyday" / "edge.parquet")
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, with_pip=True)
        subprocess.run([f"{name}/bin/python", "-m", "pip", "install", "-q", TPCHGEN], check=True)
        command = [f"{name}/bin/tpchgen-cli", "parquet", "-s", str(SCALE), "--output-dir", f"{name}/tpch"]
        subprocess.run(command, check=True)
        (folder / "tpch").mkdir()
        for file in sorted(Path(name, "tpch").glob("*.parquet")):
            pq.write_table(pq.read_table(file), folder / "tpch" / file.name, compression="zstd")


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as warehouse:
        settings = {**SETTINGS, "spark.sql.warehouse.dir": warehouse}
        spark = make_spark(spark_environment(), master="local[2]", conf=settings)
        spark.sparkContext.setLogLevel("OFF")
        write_tables(spark, FOLDER)

        def ask(text: str) -> Any:
            return collect_answer(spark.sql(text))

        examples = list(documented_examples(spark))
        first, again = answered(examples, ask), answered(examples, ask)
        save(
            {text: found for text, found in first.items() if same(text, found, again[text])},
            FOLDER / "documented.arrow",
        )
        groups = {
            "tpch": tpch_queries(),
            "everyday": [*everyday.QUERIES, *everyday.MORE_QUERIES],
            "structures": structures.QUERIES,
            "random": hostile.queries(SEED, EACH),
        }
        for group, queries in groups.items():
            for file in sorted((FOLDER / ("tpch" if group == "tpch" else "everyday")).glob("*.parquet")):
                spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
            found: dict[str, Answer] = answered(queries, ask)
            save(found, FOLDER / f"{group}.arrow")
        spark.stop()
    (FOLDER / "PROVENANCE.md").write_text(
        f"Answers of Spark {version('pyspark')} (UTC, without ANSI), rows of {TPCHGEN.partition('=')[0]} at scale"
        f" {SCALE}; written by `python -m benchmarks.spark_answers.record`, never edited.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
