"""A process with real Spark: the signatures that are compared, or what it answers to some of them.

Without compiled expressions, which take longer to compile than such a table takes to compute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks.spark_answers.answers import task  # noqa: E402
from benchmarks.spark_answers.examples import documented_examples  # noqa: E402
from benchmarks.spark_answers.functions import values  # noqa: E402
from benchmarks.spark_answers.functions.contexts import GROUPS, contexts, windows  # noqa: E402
from benchmarks.spark_answers.functions.signatures import Role, Signature, signatures  # noqa: E402
from skep_catalog.class_archive import spark_environment  # noqa: E402
from skep_writer import collect_arrow, make_spark  # noqa: E402

AT_ONCE = 25
ANALYZED_AT_ONCE = 60
OTHER_GROUPS = ("agg_funcs", "window_funcs", "generator_funcs")
INTERVAL = "interval day to second"
SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": "-Xss16m",
    "spark.ui.enabled": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
}


class Worker:
    """A session, and the file that the next answers go to."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.spark = make_spark(
            spark_environment(), master="local[2]", conf={**SETTINGS, "spark.sql.warehouse.dir": str(folder / "w")}
        )
        self.spark.sparkContext.setLogLevel("OFF")
        self.folder, self.prefix, self.files = folder, prefix, 0
        self.index: list[dict[str, Any]] = []

    def load(self) -> None:
        """Registers the values, and the same columns without them."""
        rows = values.table()
        for name, table in (("v", rows), ("few", values.few()), ("empty", values.empty_of_values(rows))):
            file = self.folder / f"{self.prefix}-{name}.parquet"
            plain = [each.cast(pa.int64()) if pa.types.is_duration(each.type) else each for each in table.columns]
            pq.write_table(pa.table(plain, names=table.column_names), file)
            intervals = [field.name for field in table.schema if pa.types.is_duration(field.type)]
            columns = [
                f"timestamp_micros({each}) - timestamp_micros(0) AS {each}" if each in intervals else each
                for each in table.column_names
            ]
            frame = self.spark.read.parquet(str(file)).selectExpr(*columns).coalesce(1).cache()
            frame.createOrReplaceTempView(name)

    def analyzed(self, texts: Sequence[str]) -> list[tuple[str, str] | None]:
        """Name and type of each column. None where Spark refuses it."""
        state = self.spark._jsparkSession.sessionState()
        try:
            plan = state.analyzer().execute(state.sqlParser().parsePlan(f"SELECT {', '.join(texts)} FROM v"))
            is_aggregate = plan.nodeName() == "Aggregate"
            columns = plan.aggregateExpressions() if is_aggregate else plan.projectList()
            found = [columns.apply(at) for at in range(len(texts))]
            return [(each.name(), each.dataType().simpleString()) if each.resolved() else None for each in found]
        except Exception:  # one of them has a number of arguments that its function does not take, or the like
            if len(texts) == 1:
                return [None]
            return [*self.analyzed(texts[: len(texts) // 2]), *self.analyzed(texts[len(texts) // 2 :])]

    def ask(self, wanted: Sequence[Signature], mode: str) -> None:
        """Answers of one mode go to files, and what is where to the index."""
        self.spark.conf.set("spark.sql.ansi.enabled", str(mode == "ansi").lower())
        kept: dict[tuple[Role, str, range], list[Signature]] = {}
        groups: dict[tuple[Role, str, range], list[Signature]] = {}
        for each in wanted:
            groups.setdefault((each.role, each.source, contexts(each)), []).append(each)
        for group, listed in groups.items():
            for at in range(0, len(listed), ANALYZED_AT_ONCE):
                part = listed[at : at + ANALYZED_AT_ONCE]
                windowed = [f" OVER ({windows(each)[0]})" if each.role is Role.WINDOW else "" for each in part]
                texts = [each.sql + window for each, window in zip(part, windowed, strict=True)]
                for each, found in zip(part, self.analyzed(texts), strict=True):
                    if found is None:
                        continue
                    kind = "day_interval" if found[1] == INTERVAL else found[1]
                    entry = {"signature": each, "shown": found[0], "kind": kind}
                    if kind in values.RESULTS or kind == (each.arguments or ("",))[0]:
                        entry["is_kept"] = True
                        kept.setdefault(group, []).append(each)
                    self.index.append(entry)
        places = {tuple(entry["signature"]): entry for entry in self.index}
        for (role, _, numbers), listed in kept.items():
            for at in range(0, len(listed), AT_ONCE):
                part = listed[at : at + AT_ONCE]
                for context in numbers:
                    for one, columns in self.answers(role, part, context):
                        file = f"{self.prefix}-{self.files}.arrow"
                        self.files += 1
                        with pa.ipc.new_file(self.folder / file, columns.schema) as writer:
                            writer.write_table(columns)
                        for number, each in enumerate(one):
                            places[tuple(each)].setdefault("answers", {})[str(context)] = [file, number]

    def answers(
        self, role: Role, part: Sequence[Signature], context: int
    ) -> Iterator[tuple[Sequence[Signature], pa.Table]]:
        """Columns, each of structs: null where the evaluation was an error. Those that fail altogether are left out."""
        try:
            yield part, self.table(role, part, context)
        except Exception:
            if len(part) > 1:
                yield from self.answers(role, part[: len(part) // 2], context)
                yield from self.answers(role, part[len(part) // 2 :], context)

    def table(self, role: Role, part: Sequence[Signature], context: int) -> pa.Table:
        if role is Role.SCALAR:
            return self.caught(part[0].source, [each.sql for each in part])
        if role is Role.WINDOW:
            texts = [f"{each.sql} OVER ({windows(each)[context]})" for each in part]
            listed = ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts))
            return collect_arrow(self.spark.sql(f"SELECT {listed}, n FROM v ORDER BY n"))
        source, key = GROUPS[context]
        listed = ", ".join(f"{each.sql} AS c{at}" for at, each in enumerate(part))
        group = f" GROUP BY {key} ORDER BY {key}" if key else ""
        return collect_arrow(self.spark.sql(f"SELECT {listed}{f', {key} AS k' if key else ''} FROM {source}{group}"))

    def caught(self, source: str, texts: Sequence[str]) -> pa.Table:
        """A struct for each row, null where the evaluation is an error."""
        from pyspark.sql import Column
        from pyspark.sql.functions import expr

        jvm = self.spark._jvm
        columns = []
        for at, text in enumerate(texts):
            struct = expr(f"named_struct('x', {text})")._jc.expr()
            tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(struct)
            columns.append(Column(jvm.org.apache.spark.sql.Column(tried)).alias(f"c{at}"))
        found = collect_arrow(self.spark.table(source).select(*columns, "n"))
        return found.sort_by("n")


def main() -> None:
    given = task()
    folder = Path(given["folder"])
    worker = Worker(folder, given["prefix"])
    if "signatures" not in given:
        spark = worker.spark
        examples = documented_examples(spark)

        def type_of(text: str) -> str | None:
            try:
                found: str = spark._jsparkSession.sql(f"SELECT {text}").schema().apply(0).dataType().simpleString()
            except Exception:
                return None
            return found

        registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        found = registry.listFunction()
        groups = {
            found.apply(at).funcName(): registry.lookupFunction(found.apply(at)).get().getGroup()
            for at in range(found.size())
        }
        others = [name for name, group in groups.items() if group in OTHER_GROUPS]
        listed = {"signatures": signatures(examples, type_of, others), "groups": groups}
        (folder / "signatures.json").write_text(json.dumps(listed), encoding="utf-8")
    else:
        worker.load()
        wanted = [Signature(Role(role), name, tuple(each)) for role, name, each in given["signatures"]]
        worker.ask(wanted, given["mode"])
        (folder / f"{given['prefix']}.json").write_text(json.dumps(worker.index), encoding="utf-8")
    worker.spark.stop()


if __name__ == "__main__":
    main()
