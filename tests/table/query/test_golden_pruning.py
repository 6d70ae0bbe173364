"""Tables of Hudi with a metadata table: whatever its indexes leave out, no row of any query is lost."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_archives as archives
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skep_table.query import ReadRequest, read
from skep_table.query.filters.text import parse_predicate
from skep_table.table import HudiTable

CASES = [
    *["cow_bloom_index", "cow_column_stats", "cow_record_index", "cow_upsert_mdt", "cow_clustering", "cow_clean"],
    *["cow_special_chars_urlencode_hive", "cow_types_edge", "cow_schema_evolution", "cow_savepoint_restore"],
    *["cow_insert_overwrite", "mor_upsert", "mor_compaction", "mor_delete", "mor_partial_update", "mor_log_rollback"],
]
Values = list[tuple[str, list[Any]]]


def literal(value: Any) -> str:
    match value:
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
        case dt.datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case dt.date():
            return f"DATE '{value}'"
        case bytes():
            return f"X'{value.hex()}'"
        case float() if not math.isfinite(value):
            return f"'{value}'"
    return str(value)


def values_of(rows: pa.Table) -> Values:
    """The values of columns, and of members of structs, by how a filter names them."""
    found: Values = []
    for field in rows.schema:
        if pa.types.is_struct(field.type):
            members = rows[field.name].combine_chunks()
            named = [(f"`{field.name}`.`{each.name}`", pc.struct_field(members, each.name)) for each in field.type]
        else:
            named = [(f"`{field.name}`", rows[field.name])]
        found += [
            (name, column.drop_null().to_pylist()) for name, column in named if not pa.types.is_nested(column.type)
        ]
    return found


def leaf(chance: random.Random, values: Values) -> str:
    name, held = chance.choice(values)
    form = chance.choice(["=", "=", "<", ">", "<=", ">=", "<>", "<=>", "in", "between", "null"])
    if form == "null" or not held:
        return f"{name} IS {chance.choice(['', 'NOT '])}NULL"
    some = [literal(chance.choice(held)) for _ in range(3)]
    negated = chance.choice(["", "", "NOT "])
    if form == "in":
        return f"{name} {negated}IN ({', '.join(some)})"
    return f"{name} {negated}BETWEEN {some[0]} AND {some[1]}" if form == "between" else f"{name} {form} {some[0]}"


def condition(chance: random.Random, values: Values) -> str:
    one, other = leaf(chance, values), leaf(chance, values)
    return chance.choice([one, one, f"({one}) AND ({other})", f"({one}) OR NOT ({other})"])


def check(folder: Path, filters: int) -> None:
    table, chance = HudiTable.open(folder), random.Random(f"{folder.parent.name}")
    first, *_, last = [each.requested_time for each in table.timeline.data().completed()]
    requests = [ReadRequest(), ReadRequest(as_of=last), ReadRequest(query="incremental", since=first)]  # type: ignore[arg-type]
    if table.config.is_mor:
        requests.append(ReadRequest(query="read_optimized"))  # type: ignore[arg-type]
    for request in requests:
        rows = read(table, replace(request, metadata=False, data_skipping=False)).to_arrow()
        values = values_of(rows)
        for where in [condition(chance, values) for _ in range(filters)]:
            expected = rows.filter(parse_predicate(where, rows.schema).mask(rows))
            found = read(table, replace(request, where=where)).to_arrow()
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), (request, where)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", archives.VERSIONS)
def test_no_row_is_lost(golden: Path, version: str, case: str) -> None:
    check(golden / version / case / "table", 3)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", archives.VERSIONS)
def test_no_row_is_lost_by_many_filters(golden: Path, version: str, case: str) -> None:
    check(golden / version / case / "table", 60)
