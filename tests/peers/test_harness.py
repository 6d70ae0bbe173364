"""The judge is judged: JVM Hudi, as these tests start and ask it, answers golden tables as it once did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import golden_archives
import pytest

from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.peers.spelling import difference


@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.parametrize("name", ["cow_types_edge", "mor_upsert", "cow_cdc"])
def test_golden_answers_come_again(name: str, golden: Path, jvm: Callable[[str], Jvm]) -> None:
    hudi = jvm("0.15.0")
    case = next(c for c in golden_archives.cases(golden) if (c.version, c.name) == ("0.15.0", name))
    for query in case.queries:
        if query.file is not None:
            found = hudi.read(case.table, query.options).rows
            assert not (differs := difference(found, case.expected(query.file))), f"{query.id}: {differs}"


@pytest.mark.peer("hudi-0.15.0")
def test_rows_come_back_as_they_were_written(jvm: Callable[[str], Jvm], golden: Path, tmp_path: Path) -> None:
    hudi = jvm("0.15.0")
    case = next(c for c in golden_archives.cases(golden) if (c.version, c.name) == ("0.15.0", "cow_upsert"))
    rows = [json.loads(line) for line in (case.folder / "input" / "01_insert.jsonl").read_text().split("\n") if line]
    schema = json.dumps(case.facts["schema"])
    hudi.write(tmp_path / "table", rows, schema, case.facts["base_options"], operation="insert")
    meta = [name for name in hudi.read(tmp_path / "table").rows[0] if name.startswith("_hoodie")]
    assert not difference(hudi.read(tmp_path / "table").rows, rows, without=meta)


@pytest.mark.peer("hudi-0.15.0")
def test_refusals_are_reported(jvm: Callable[[str], Jvm], tmp_path: Path) -> None:
    with pytest.raises(HudiRefused):
        jvm("0.15.0").read(tmp_path)
