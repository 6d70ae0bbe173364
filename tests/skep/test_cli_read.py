"""The read commands on a path: what goes to stdout and stderr, and the exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import golden_archives as archives
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from skep.cli.scope import App
from skep.cli.table import inspect, read
from skep_format import options
from skep_format.options import IneffectiveOptionWarning

ORDERS = ("1.1.1", "mor_upsert")


@pytest.fixture
def run(golden: Path) -> Any:
    """Runs a command on a golden table."""
    app = App()
    app.add(read, "read")
    app.add(inspect, "schema", "timeline", "files", "properties")

    def command(name: str, *arguments: str, table: tuple[str, str] = ORDERS) -> Result:
        return CliRunner().invoke(app, [name, str(golden / table[0] / table[1] / "table"), *arguments])

    return command


def rows_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout_bytes.split(b"\n") if line]


def canonical(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("version", archives.VERSIONS)
def test_jsonl_is_spelt_as_the_golden_answers(run: Any, golden: Path, version: str) -> None:
    case = archives.Case(version, "cow_types_edge", golden / version / "cow_types_edge")
    found = rows_of(run("read", "-o", "jsonl", table=(version, "cow_types_edge")))
    assert canonical(found) == canonical(case.expected("snapshot.jsonl"))
    assert list(found[0])[:5] == list(case.expected("snapshot.jsonl")[0])[:5]  # meta columns first


def test_what_is_read_and_by_what_the_rest_is_left_out(run: Any) -> None:
    table = ("1.1.1", "cow_record_index")
    key = rows_of(run("read", "--columns", "order_id", "--limit", "1", "-o", "jsonl", table=table))[0]["order_id"]
    where = f"order_id = '{key}'"
    assert rows_of(run("read", "--where", where, "--explain", "-o", "jsonl", table=table)) == [
        {"step": "in the table", "file_slices": 3, "partitions": 3, "logs_only": 0,
         "row_groups": None, "row_groups_read": None},
        {"step": "by the record index", "file_slices": 1, "partitions": 1, "logs_only": 0,
         "row_groups": 1, "row_groups_read": 1},
    ]  # fmt: skip
    shown = run("read", "--where", where, "--explain", table=table)
    assert shown.stdout.splitlines()[0] == f"cow_record_index: snapshot where {where}"
    assert shown.stdout.splitlines()[-1] == "row groups: 1 of 1 are read, by footers"


def test_images_of_changes_are_no_texts_in_json(run: Any) -> None:
    """Hudi's own answer has them as texts, and so have formats without objects."""
    table = ("1.1.1", "cow_cdc")
    rows = rows_of(run("read", "--query", "cdc", "--since", "0", "-o", "jsonl", table=table))
    images = [row[name] for row in rows for name in ("before", "after") if row[name] is not None]
    assert images
    assert all(isinstance(image, dict) for image in images)
    texts = list(
        csv.DictReader(io.StringIO(run("read", "--query", "cdc", "--since", "0", "-o", "csv", table=table).stdout))
    )
    assert [json.loads(row["after"]) if row["after"] else None for row in texts] == [row["after"] for row in rows]


def test_ranges_make_the_query_incremental(run: Any, golden: Path) -> None:
    case = archives.Case(*ORDERS, golden / "/".join(ORDERS))
    query = next(query for query in case.queries if query.kind == "incremental" and "000" not in query.file)
    since = query.options["hoodie.datasource.read.begin.instanttime"]
    expected = canonical(case.expected(query.file))
    assert canonical(rows_of(run("read", "--since", since, "-o", "jsonl"))) == expected
    some = rows_of(run("read", "--since", since, "--max-commits", "1", "-o", "jsonl"))
    assert len({row["_hoodie_commit_time"] for row in some}) == 1
    assert len(some) <= len(expected)
    keyed = [f"--option={key}={value}" for key, value in query.options.items()]
    assert canonical(rows_of(run("read", *keyed, "-o", "jsonl"))) == expected


def test_columns_where_and_limit(run: Any) -> None:
    rows = rows_of(run("read", "--columns", "qty, order_id", "--where", "qty > 50000", "--limit", "4", "-o", "jsonl"))
    assert len(rows) == 4
    assert all(list(row) == ["qty", "order_id"] and row["qty"] > 50000 for row in rows)


def test_the_same_rows_in_every_output(run: Any) -> None:
    choice = ("--columns", "order_id,amount,tags,ship_date", "--as-of", "2999-01-01")
    rows = rows_of(run("read", *choice, "-o", "jsonl"))
    assert json.loads(run("read", *choice, "-o", "json").stdout) == rows
    lines = list(csv.DictReader(io.StringIO(run("read", *choice, "-o", "csv").stdout)))
    assert [line["order_id"] for line in lines] == [row["order_id"] for row in rows]
    assert [line["amount"] for line in lines] == [row["amount"] or "" for row in rows]
    assert [line["tags"] and json.loads(line["tags"]) for line in lines] == [
        "" if row["tags"] is None else row["tags"] for row in rows
    ]
    table = pq.read_table(io.BytesIO(run("read", *choice, "-o", "parquet").stdout_bytes))
    assert table["order_id"].to_pylist() == [row["order_id"] for row in rows]
    shown = run("read", *choice).stdout.splitlines()
    assert shown[0].split() == ["order_id", "amount", "tags", "ship_date"]
    assert [line.split()[0] for line in shown[1:]] == [row["order_id"] for row in rows]


def test_no_rows(run: Any) -> None:
    nothing = ("--where", "order_id = 'none'", "--columns", "order_id")
    assert run("read", *nothing, "-o", "jsonl").stdout == ""
    assert json.loads(run("read", *nothing, "-o", "json").stdout) == []
    assert run("read", *nothing, "-o", "csv").stdout.strip() == '"order_id"'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--where", "price_eur > 1"), "price_eur is no column"),
        (("--where", "foo(qty) = 1"), "not supported"),
        (("--columns", "price_eur"), "no column price_eur"),
        (("--query", "newest"), "unknown query"),
        (("--since", "yesterday"), "is no time"),
        (("--as-of", "2026-01-01", "--since", "000"), "incremental"),
        (("--option", "nonsense"), "KEY=VALUE"),
        (("--limit", "-1"), "limit"),
    ],
)
def test_wrong_usage_exits_with_2(run: Any, arguments: tuple[str, ...], message: str) -> None:
    result = run("read", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_options_that_reading_does_not_need_are_known(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_warned", set())
    with pytest.warns(IneffectiveOptionWarning, match="hoodie.metadata.dir.filter.regex has no effect: "):
        run("read", "--option", "hoodie.metadata.dir.filter.regex=x")
    refused = run("read", "--option", "hoodie.metadata.table.service.manager.enabled=true")
    assert refused.exit_code == 1
    assert "hoodie.metadata.table.service.manager.enabled is known but not supported" in refused.stderr


def test_failures_exit_with_1(tmp_path: Path) -> None:
    app = App()
    app.add(read, "read")
    app.add(inspect, "schema", "timeline", "files", "properties")
    for command in ("read", "schema", "timeline", "files", "properties"):
        result = CliRunner().invoke(app, [command, str(tmp_path)])
        assert result.exit_code == 1
        assert str(tmp_path) in result.stderr
        assert result.stdout == ""


def test_timeline(run: Any, golden: Path) -> None:
    case = archives.Case(*ORDERS, golden / "/".join(ORDERS))
    rows = rows_of(run("timeline", "--details", "-o", "jsonl"))
    assert [(row["requested_time"], row["completion_time"], row["action"]) for row in rows] == [
        (added["instant"], added["completion"], added["action"]) for added in case.instants
    ]
    assert [row["operation"] for row in rows] == ["INSERT", "UPSERT", "UPSERT", "DELETE", "UPSERT"]
    assert len(rows_of(run("timeline", "--limit", "2", "-o", "jsonl"))) == 2
    archived = rows_of(run("timeline", "--archived", "-o", "jsonl", table=("1.1.1", "cow_archive")))
    assert len(archived) > len(rows_of(run("timeline", "-o", "jsonl", table=("1.1.1", "cow_archive"))))


def test_files(run: Any, golden: Path) -> None:
    rows = rows_of(run("files", "-o", "jsonl"))
    folder = golden / "/".join(ORDERS) / "table"
    assert all((folder / row["partition"] / row["base_file"]).stat().st_size == row["base_bytes"] for row in rows)
    assert {row["partition"] for row in rows_of(run("files", "--partition", "chennai", "-o", "jsonl"))} == {"chennai"}
    assert rows_of(run("files", "--no-metadata", "-o", "jsonl")) == rows


def test_schema_and_properties(run: Any) -> None:
    columns = {row["column"]: row["type"] for row in rows_of(run("schema", "-o", "jsonl"))}
    assert (columns["qty"], columns["amount"]) == ("int32", "decimal128(10, 2)")
    assert json.loads(run("schema", "--avro").stdout)["type"] == "record"
    properties = {row["key"]: row["value"] for row in rows_of(run("properties", "-o", "jsonl"))}
    assert properties["hoodie.table.version"] == "9"


def test_a_schema_of_the_past_by_instant_and_by_time(run: Any, golden: Path) -> None:
    table = ("1.1.1", "cow_schema_evolution")
    first = archives.Case(*table, golden / "/".join(table)).instants[0]["instant"]
    text = f"{first[:4]}-{first[4:6]}-{first[6:8]} {first[8:10]}:{first[10:12]}:{first[12:14]}.{first[14:]}"
    then = rows_of(run("schema", "--as-of", first, "-o", "jsonl", table=table))
    assert rows_of(run("schema", "--as-of", text, "-o", "jsonl", table=table)) == then
    assert len(then) < len(rows_of(run("schema", "-o", "jsonl", table=table)))
    assert "is no time" in run("schema", "--as-of", "once", table=table).stderr
