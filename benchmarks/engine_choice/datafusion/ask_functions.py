"""A process with real Spark: the answers of functions to the values of `values`, for the kinds that they take.

Without compiled expressions, which take longer to compile than such a table takes to compute. Functions that make
something of a size that they are given are left out: the largest numbers would end the process.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks.engine_choice.answers import task  # noqa: E402
from benchmarks.engine_choice.datafusion import values  # noqa: E402
from benchmarks.engine_choice.datafusion.calls_of_examples import calls  # noqa: E402
from benchmarks.engine_choice.datafusion.templates import CASTS  # noqa: E402
from benchmarks.engine_choice.examples import documented_examples  # noqa: E402
from skep_catalog.class_archive import spark_environment  # noqa: E402
from skep_writer import collect_answer, make_spark  # noqa: E402

OF_SIZES = ("repeat", "lpad", "rpad", "space", "array_repeat", "sequence")
OF_CHANCE = ("shuffle", "rand", "randn", "random", "uuid")
MOST_ARGUMENTS = 3
AT_ONCE = 20
CONSTANT = re.compile(r"'[^'|;]*'|-?\d+")
LIKE = {"string": "array<string>", "double": "array<double>", "int": "array<int>", "bigint": "array<int>"}
Signature = tuple[str, tuple[str, ...]]


def kind_of(spark_type: str) -> str | None:
    """The kind whose values stand for those of a type."""
    if spark_type in values.KINDS:
        return spark_type
    if spark_type.startswith("decimal"):
        return "decimal(10,2)"
    if spark_type.startswith("array<"):
        return LIKE.get(spark_type[6:-1])
    return "map<string,int>" if spark_type.startswith("map<") else "string" if spark_type == "void" else None


def signatures(spark: Any, examples: dict[str, list[str]]) -> Iterator[Signature]:
    """Of each call in the examples, with each argument in turn of all kinds; constants behind the first stay, too."""
    for name, arguments in calls(examples):
        if name in OF_SIZES or name in OF_CHANCE or not 1 <= len(arguments) <= MOST_ARGUMENTS:
            continue
        types = (_type(spark, f"select {each} as x") for each in arguments)
        kinds = [kind_of(each) if each is not None else None for each in types]
        if None in kinds:
            continue
        base = tuple(kinds)
        pairs = enumerate(zip(arguments, kinds, strict=True))
        constant = tuple(text if at and CONSTANT.fullmatch(text) else kind for at, (text, kind) in pairs)
        for kind in values.KINDS:
            yield name, (kind, *constant[1:])
            for at in range(len(base)):
                yield name, (*base[:at], kind, *base[at + 1 :])
    yield from ((f"cast to {to}", (kind,)) for to in CASTS for kind in values.KINDS)


def text_of(name: str, arguments: Sequence[str]) -> str:
    """The expression over the columns of the table."""
    texts = [values.column(at, each) if each in values.KINDS else each for at, each in enumerate(arguments)]
    if name.startswith("cast to "):
        return f"cast({texts[0]} as {name.removeprefix('cast to ')})"
    return f"{name}({', '.join(texts)})" if name[0].isalpha() else f"({texts[0]} {name} {texts[1]})"


def _type(spark: Any, query: str) -> str | None:
    try:
        found: str = spark.sql(query).schema[0].dataType.simpleString()
    except Exception:  # Spark refuses it: no such signature
        return None
    return found


def _answers(spark: Any, part: Sequence[Signature]) -> Iterator[tuple[Signature, str, pa.ChunkedArray]]:
    texts = [text_of(*each) for each in part]
    try:
        found = collect_answer(spark.sql(f"select n, {', '.join(texts)} from v"))
    except Exception:  # one of them is an error for one of the values
        if len(part) > 1:
            yield from _answers(spark, part[: len(part) // 2])
            yield from _answers(spark, part[len(part) // 2 :])
        return
    for at, each in enumerate(part):
        yield each, found.schema.names[at + 1], found.column(at + 1)


def main() -> None:
    given = task()
    folder = Path(given["folder"])
    settings = {
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "w"),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        **given["settings"],
    }
    spark = make_spark(spark_environment(), master="local[2]", conf=settings)
    spark.sparkContext.setLogLevel("OFF")
    pq.write_table(values.table(), folder / "v.parquet")
    spark.read.parquet(str(folder / "v.parquet")).coalesce(1).cache().createOrReplaceTempView("v")
    wanted = [
        each
        for each in dict.fromkeys(signatures(spark, documented_examples(spark)))
        if _type(spark, f"select {text_of(*each)} as x from v") is not None
    ]
    print(len(wanted), "signatures", file=sys.stderr, flush=True)
    kept = []
    for at in range(0, len(wanted), AT_ONCE):
        for (name, arguments), shown, column in _answers(spark, wanted[at : at + AT_ONCE]):
            file = folder / f"{len(kept)}.arrow"
            answer = pa.table({"x": column})
            with pa.ipc.new_file(file, answer.schema) as writer:
                writer.write_table(answer)
            kept.append([name, arguments, shown, file.name])
        if at % 1000 == 0:
            print(at, "computed", file=sys.stderr, flush=True)
    (folder / "answers.json").write_text(json.dumps(kept), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
