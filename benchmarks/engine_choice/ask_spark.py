"""A process with real Spark: its documented examples, the tables of the everyday queries, and answers to queries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import pyarrow.parquet as pq  # noqa: E402

from benchmarks.engine_choice import everyday  # noqa: E402
from benchmarks.engine_choice.answers import answered, save, task  # noqa: E402
from benchmarks.engine_choice.examples import documented_examples  # noqa: E402
from skep_catalog.class_archive import spark_environment  # noqa: E402
from skep_writer import collect_answer, collect_arrow, make_spark  # noqa: E402


def write_tables(spark: Any, folder: Path) -> None:
    """The everyday tables as Parquet files of Arrow, in the types that Spark gives them."""
    for name, columns in everyday.TABLES.items():
        spark.sql(f"CREATE TABLE made_{name} {columns} USING parquet")
    for text in everyday.ROWS:
        spark.sql(text.replace("INSERT INTO ", "INSERT INTO made_"))
    for name in everyday.TABLES:
        pq.write_table(collect_arrow(spark.table(f"made_{name}")), folder / f"{name}.parquet")


def main() -> None:
    given = task()
    folder = Path(given["folder"])
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # days before 1582 in files of Arrow are as written
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **given["settings"],
    }
    spark = make_spark(spark_environment(), master="local[2]", conf=settings)
    spark.sparkContext.setLogLevel("OFF")
    if given["writes_tables"]:
        write_tables(spark, Path(given["tables"]))
    examples = documented_examples(spark)
    (folder / "examples.json").write_text(json.dumps(examples), encoding="utf-8")

    def ask(text: str) -> Any:
        return collect_answer(spark.sql(text))

    first = answered(examples, ask)
    found = {}
    for each, queries in given["queries"].items():
        for file in sorted(Path(each).glob("*.parquet")):
            spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        found |= answered(queries, ask)
    save(found, folder / "queries.arrow")
    again = answered(examples, ask)
    save(first, folder / "examples.arrow")
    save(again, folder / "examples-again.arrow")
    spark.stop()


if __name__ == "__main__":
    main()
