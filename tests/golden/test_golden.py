"""Every query that Hudi answered over the golden tables: row for row, value for value, order aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import golden_archives as archives
import golden_faults as faults
import pytest
from golden_requests import asked

from skep_format.errors import InputError, SkepError
from skep_format.json_text import json_lines
from skep_format.options import Options
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable


def answered(case: archives.Case, request: ReadRequest) -> list[dict[str, Any]]:
    rows = read(HudiTable.open(case.table), request).to_arrow().combine_chunks()  # kernels cost by the call here
    text = b"".join(bytes(json_lines(batch)) for batch in rows.to_batches())
    return [json.loads(line) for line in text.split(b"\n") if line]


def multiset(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


def differences(found: Counter[str], expected: Counter[str]) -> str:
    missing, extra = list((expected - found).elements()), list((found - expected).elements())
    lines = [f"{len(missing)} rows missing, {len(extra)} too many"]
    lines += [f"- {row}" for row in missing[:3]] + [f"+ {row}" for row in extra[:3]]
    return "\n".join(lines)


def test_answer_equals_hudis(case: archives.Case, query: archives.Query, fault: faults.Fault | None) -> None:
    if query.file is None and fault is None:
        with pytest.raises(SkepError):
            answered(case, asked(case, query))
        return
    found = multiset(answered(case, asked(case, query)))
    if fault is None:
        expected = multiset(case.expected(query.file))
        assert found == expected, differences(found, expected)
        return
    right = multiset(faults.right_answer(fault, case, query))
    normal = multiset(faults.comparable(fault, case, (json.loads(row) for row in found.elements())))
    assert normal == right, differences(normal, right)
    if fault.is_exact and query.file is not None:
        assert found != multiset(case.expected(query.file)), "this exception does not occur: strike it"


# Hudi 0.15.0 leaves archived commits out of the range of a copy-on-write table. The answer that has all of them.
_WITHOUT_ARCHIVED = {("v5_cow_long", "incremental_all.jsonl"): "snapshot.jsonl"}


def test_answer_for_a_table_of_an_older_version_equals_hudis(older_case: archives.Case, query: archives.Query) -> None:
    request = ReadRequest.of(Options(query.options))
    if query.file is None:
        with pytest.raises(SkepError):
            answered(older_case, request)
        return
    right = _WITHOUT_ARCHIVED.get((older_case.name, query.file), query.file)
    found, expected = multiset(answered(older_case, request)), multiset(older_case.expected(right))
    assert found == expected, differences(found, expected)


def test_listings_agree(case_with_metadata_table: archives.Case) -> None:
    """Where a table has a metadata table, listing storage gives the same answer."""
    case = case_with_metadata_table
    assert multiset(answered(case, ReadRequest())) == multiset(answered(case, ReadRequest(metadata=False)))


def test_every_fault_names_a_query(fault_entry: faults.Fault, golden_cases: list[archives.Case]) -> None:
    assert any(fault_entry.covers(case, query) for case in golden_cases for query in case.queries)


def test_refusal_is_clear(golden_cases: list[archives.Case]) -> None:
    case = next(case for case in golden_cases if case.name == "cow_clean")
    query = next(query for query in case.queries if query.error)
    with pytest.raises(InputError, match="clean"):
        answered(case, asked(case, query))
