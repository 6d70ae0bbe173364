"""Answers of the engine without a JVM beside those that real Spark gave, see spark_answers/PROVENANCE.md."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.spark_answers.answers import Answer, load
from benchmarks.spark_answers.compare import Verdict, judged
from skep.query.over_rows import query_of
from skep.query.sail import LeftToSpark, SailEngine
from skep_format.errors import SkepError
from skep_sql.spark_release import is_spark_3

FOLDER = Path(__file__).with_name("spark_answers")
LEAST = {"documented": 514, "everyday": 55, "tpch": 20, "structures": 160, "random": 200}


@pytest.mark.skipif(not is_spark_3(), reason="the answers, and what is left to Spark, are those of Spark 3.5")
@pytest.mark.parametrize("group", LEAST)
def test_each_answer_is_that_of_spark_or_left_to_it(group: str) -> None:
    tables = sorted((FOLDER / ("tpch" if group == "tpch" else "everyday")).glob("*.parquet"))
    relations = {file.stem: pq.read_table(file) for file in tables}
    engine, count, wrong = SailEngine(), 0, []
    for text, wanted in load(FOLDER / f"{group}.arrow").items():
        try:
            rows = engine.rows(query_of(text), relations)
        except (LeftToSpark, SkepError):
            continue
        found = judged(text, Answer(rows, "", 0), wanted)
        count += 1
        if found.verdict not in (Verdict.EQUAL, Verdict.DIGITS):
            wrong.append(f"{text}: {found.why}")
    assert wrong == []
    assert count >= LEAST[group]
