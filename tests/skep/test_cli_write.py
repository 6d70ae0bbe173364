"""`skep write`, `delete` and `callbacks` on tables by their path."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import skep
from skep.cli.main import app

Run = Callable[..., Any]
ROWS = pa.table({"id": [1, 2], "day": ["d1", "d2"], "v": [1.5, None]})


@pytest.fixture
def run() -> Run:
    def call(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.stderr
        return result

    return call


def as_parquet(path: Path) -> None:
    pyarrow.parquet.write_table(ROWS, path)


def as_csv(path: Path) -> None:
    pyarrow.csv.write_csv(ROWS, path)


def as_json(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()))


def as_orc(path: Path) -> None:
    pyarrow.orc.write_table(ROWS, path)


def as_avro(path: Path) -> None:
    fields = [("id", "long"), ("day", ["null", "string"]), ("v", ["null", "double"])]
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), ROWS.to_pylist())


def stored(path: Path) -> list[dict[str, Any]]:
    rows = skep.load(path).to_arrow().select(["id", "day", "v"]).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("ending", "make"),
    [
        ("parquet", as_parquet),
        ("csv", as_csv),
        ("json", as_json),
        ("jsonl", as_json),
        ("avro", as_avro),
        ("orc", as_orc),
    ],
)
def test_files_make_and_fill_a_table(run: Run, tmp_path: Path, ending: str, make: Callable[[Path], None]) -> None:
    make(tmp_path / f"rows.{ending}")
    shown = run(
        "write", tmp_path / "t", tmp_path / f"rows.{ending}", "--key", "id", "--partition-by", "day", "-o", "json"
    )
    (fact,) = json.loads(shown.stdout)
    assert (fact["operation"], fact["inserted"], fact["files"]) == ("upsert", 2, 2)
    assert stored(tmp_path / "t") == ROWS.to_pylist()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_columns_in_the_names_of_folders_are_those_of_their_files(run: Run, tmp_path: Path, ending: str) -> None:
    """As Hive and Spark read folders of partitions."""
    table, source = tmp_path / "t", tmp_path / "src"
    for number, folder in enumerate(
        ("day=2026-01-01/hour=07", "day=2026-01-02/hour=10", "day=__HIVE_DEFAULT_PARTITION__/hour=a%2Fb")
    ):
        (source / folder).mkdir(parents=True)
        rows = pa.table({"id": [number], "v": [number * 1.5]})
        if ending == "csv":
            pa.csv.write_csv(rows, source / folder / "a.csv")
        else:
            pa.parquet.write_table(rows, source / folder / "a.parquet")
    run("write", table, source, "--key", "id", "--partition-by", "day", "--hive-style")
    rows = skep.load(table).to_arrow().sort_by("id")
    assert rows.schema.field("day").type == pa.date32()
    days = [None if day is None else day.isoformat() for day in rows["day"].to_pylist()]
    assert days == ["2026-01-01", "2026-01-02", None]
    assert rows["hour"].to_pylist() == ["07", "10", "a/b"]  # digits with a zero before them stay text
    assert (table / "day=2026-01-01").is_dir()
    (source / "day=2026-01-01/b.csv").write_text("id,v,day\n9,1.5,2026-01-05\n")  # what a file states counts
    run("write", table, source)
    rows = skep.load(table).to_arrow().sort_by("id")
    assert (rows["day"][3].as_py().isoformat(), rows["hour"][3].as_py()) == ("2026-01-05", None)


def test_a_folder_of_files_is_one_commit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    as_parquet(tmp_path / "in/a.parquet")
    as_csv(tmp_path / "in/b.csv")
    (tmp_path / "in/_SUCCESS").touch()
    run("write", tmp_path / "t", tmp_path / "in", "-p", "bulk_insert", "--key", "id", "--type", "mor")
    table = skep.open_table(tmp_path / "t")
    assert (table.read().count(), len(table.history())) == (4, 1)
    assert table.hudi.config.is_mor


def test_the_version_of_a_new_table_is_chosen(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    make = ("write", tmp_path / "t", tmp_path / "a.parquet", "--key", "id", "--table-version")
    run(*make, 9)
    table = skep.open_table(tmp_path / "t")
    assert table.hudi.config.version == 9
    assert stored(tmp_path / "t") == ROWS.to_pylist()
    assert "has version 9, not 8" in run(*make, 8, code=1).stderr
    assert "one of 6, 8, 9" in run("write", tmp_path / "u", *make[2:], 7, code=2).stderr
    assert not (tmp_path / "u").exists()


def test_operations_and_options(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    table = tmp_path / "t"
    run("write", table, tmp_path / "a.parquet", "--key", "id", "--partition-by", "day")
    run("write", table, tmp_path / "a.parquet", "-p", "insert", "--option", "hoodie.datasource.insert.dup.policy=drop")
    assert len(stored(table)) == 2
    (tmp_path / "b.jsonl").write_text('{"id": 9, "day": "d1", "v": 2.0}\n')
    run("write", table, tmp_path / "b.jsonl", "-p", "insert_overwrite")
    assert [row["id"] for row in stored(table)] == [2, 9]
    run("write", table, tmp_path / "b.jsonl", "-p", "insert_overwrite_table")
    assert [row["id"] for row in stored(table)] == [9]
    run("write", table, tmp_path / "b.jsonl", "-p", "delete")
    assert stored(table) == []


def test_rows_and_partitions_are_deleted(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    table = tmp_path / "t"
    run("write", table, tmp_path / "a.parquet", "--key", "id", "--partition-by", "day")
    shown = run("delete", table, "--where", "v > 1", "-o", "json")
    assert json.loads(shown.stdout)[0]["deleted"] == 1
    shown = run("delete", table, "--partition", "d*", "-o", "json")
    assert json.loads(shown.stdout)[0]["operation"] == "delete_partition"
    assert stored(table) == []
    assert "one of them" in run("delete", table, code=2).stderr


def test_quotes_in_predicates(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "name": "O\'Brien"}\n{"id": 2, "name": "OBrien"}\n')
    table, where = tmp_path / "t", ("--where", "name = 'O''Brien'")
    run("write", table, tmp_path / "a.jsonl", "--key", "id")
    assert [json.loads(row)["id"] for row in run("read", table, *where, "-o", "jsonl").stdout.splitlines()] == [1]
    assert json.loads(run("delete", table, *where, "-o", "json").stdout)[0]["deleted"] == 1
    assert skep.load(table).to_arrow().column("name").to_pylist() == ["OBrien"]


def test_a_batch_is_written_once(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    batch = ("write", tmp_path / "t", tmp_path / "a.parquet", "--key", "id", "-p", "insert", "--batch-id", "b1")
    assert "committed before" not in run(*batch).stderr
    assert "committed before" in run(*batch).stderr
    assert len(stored(tmp_path / "t")) == 2


def test_events_are_json_lines_on_stderr(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    shown = run("write", tmp_path / "t", tmp_path / "a.parquet", "--key", "id", "--events", "-o", "json")
    events = {event["event"]: event for event in map(json.loads, shown.stderr.splitlines())}
    assert events["read.file"]["done"] == 1
    assert {"write.tag", "write.files", "write.commit"} <= set(events)
    assert (events["write"]["inserted"], events["write"]["files"]) == (2, 1)
    assert events["write"]["seconds"] > 0
    assert events["write"]["bytes"] > 0
    text = run("-v", "write", tmp_path / "t", tmp_path / "a.parquet").stderr
    assert "write.files" in text
    assert "updated=2" in text


@pytest.mark.parametrize(
    ("name", "content", "expected_message"),
    [
        ("rows.txt", b"x", "unknown kind of file"),
        ("bad.parquet", b"no", "can't be read"),
        ("gone.csv", None, "not there"),
    ],
)
def test_files_that_can_not_be_read(
    run: Run, tmp_path: Path, name: str, content: bytes | None, expected_message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    shown = run("write", tmp_path / "t", tmp_path / name, "--key", "id", code=2)
    assert name in shown.stderr
    assert expected_message in shown.stderr
    assert not (tmp_path / "t").exists()


def test_a_table_that_is_not_there_needs_keys_to_be_made(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    refused = run("write", tmp_path / "t", tmp_path / "a.parquet", "--partition-by", "day", code=1).stderr
    assert "no Hudi table" in refused
    assert "--key makes it" in refused


def test_rows_of_a_table_without_record_key_are_inserted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n1,x\n")
    table = tmp_path / "t"
    for _ in range(2):
        (fact,) = json.loads(run("write", table, tmp_path / "rows.csv", "--key", "", "-o", "json").stdout)
        assert (fact["operation"], fact["inserted"]) == ("insert", 2)
    assert len(skep.load(table)) == 4


def test_text_files_are_read_in_the_types_of_the_table(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,zip,n\n1,01234,1\n")
    (tmp_path / "b.csv").write_text("id,zip,n\n2,99999,2\n")
    (tmp_path / "c.jsonl").write_text('{"id": 3, "zip": "2026-01-01", "n": 3}\n')
    (tmp_path / "bad.csv").write_text("id,zip,n\n2,99999,two\n")
    run("write", tmp_path / "t", tmp_path / "a.csv", "--key", "id", "--schema", "zip string, n int")
    for name in ("b.csv", "c.jsonl"):
        run("write", tmp_path / "t", tmp_path / name)
    assert "bad.csv, line 2: column n" in run("write", tmp_path / "t", tmp_path / "bad.csv", code=2).stderr
    rows = skep.load(tmp_path / "t").to_arrow().select(["id", "zip", "n"])
    assert rows.schema.types == [pa.int64(), pa.string(), pa.int32()]
    assert sorted(rows.column("zip").to_pylist()) == ["01234", "2026-01-01", "99999"]


@pytest.mark.filterwarnings("default")
def test_a_new_table_keeps_leading_zeros_and_warns(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,zip\n1,01234\n")
    assert "column zip is read as text" in run("write", tmp_path / "t", tmp_path / "a.csv", "--key", "id").stderr
    assert skep.load(tmp_path / "t").to_arrow().column("zip").to_pylist() == ["01234"]


@pytest.mark.parametrize(("format", "make"), [("csv", as_csv), ("jsonl", as_json), ("parquet", as_parquet)])
def test_rows_come_from_standard_input(
    run: Run, tmp_path: Path, format: str, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "rows")
    with monkeypatch.context() as here:
        here.chdir(tmp_path)
        given = ["write", "./t", "-", "--key", "id", "--partition-by", "day", "--format", format]
        result = CliRunner().invoke(app, given, input=(tmp_path / "rows").read_bytes())
    assert result.exit_code == 0, result.stderr
    assert stored(tmp_path / "t") == ROWS.to_pylist()
    assert "--format" in run("write", tmp_path / "t", "-", code=2).stderr


def test_the_format_of_files_may_be_named(run: Run, tmp_path: Path) -> None:
    as_csv(tmp_path / "rows.txt")
    run("write", tmp_path / "t", tmp_path / "rows.txt", "--key", "id", "--format", "csv")
    assert stored(tmp_path / "t") == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("flag", "same", "other", "expected_message"),
    [
        ("--key", "id", "v", "has key id, not v"),
        ("--key", "id", "id,v", "has key id, not id,v"),
        ("--partition-by", "day", "v", "has partition_by day, not v"),
        ("--ordering", "v", "id", "has ordering v, not id"),
        ("--type", "cow", "mor", "has type COPY_ON_WRITE, not MERGE_ON_READ"),
    ],
)
def test_flags_that_contradict_the_table_are_refused(
    run: Run, tmp_path: Path, flag: str, same: str, other: str, expected_message: str
) -> None:
    pyarrow.parquet.write_table(ROWS.drop_columns("v").append_column("v", pa.array([1, 2])), tmp_path / "a.parquet")
    table = tmp_path / "t"
    run("write", table, tmp_path / "a.parquet", "--key", "id", "--partition-by", "day", "--ordering", "v")
    run("write", table, tmp_path / "a.parquet", flag, same)
    assert expected_message in run("write", table, tmp_path / "a.parquet", flag, other, code=1).stderr
    hive_style = run("write", table, tmp_path / "a.parquet", "--hive-style", code=1).stderr
    assert "has hive_style False, not True" in hive_style
    assert len(skep.open_table(table).history()) == 2


def test_a_new_table_does_not_outlive_the_refusal_of_its_first_rows(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,v\n1,2\n,3\n")
    assert "id" in run("write", tmp_path / "t", tmp_path / "rows.csv", "--key", "id", code=2).stderr
    assert not (tmp_path / "t/.hoodie").exists()
    (tmp_path / "rows.csv").write_text("id,v\n1,2\n")
    run("write", tmp_path / "t", tmp_path / "rows.csv", "--key", "id")
    (tmp_path / "rows.csv").write_text("id,v\n,3\n")
    run("write", tmp_path / "t", tmp_path / "rows.csv", code=2)
    assert len(skep.open_table(tmp_path / "t").history()) == 1


def test_a_table_is_not_made_with_other_settings_than_its_options(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    other = ("--option", "hoodie.datasource.write.recordkey.field=day")
    refused = run("write", tmp_path / "t", tmp_path / "a.parquet", "--key", "id", *other, code=1)
    assert "recordkey.field id, not day" in refused.stderr
    assert not (tmp_path / "t").exists()


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Any]]]:
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", got
    server.shutdown()
    server.server_close()


def test_callbacks_are_sent_and_replayed(run: Run, tmp_path: Path, receiver: tuple[str, list[Any]]) -> None:
    url, got = receiver
    as_parquet(tmp_path / "a.parquet")
    table, prefix = tmp_path / "t", "hoodie.write.commit.callback."
    to = ["--option", f"{prefix}http.url={url}"]
    run("write", table, tmp_path / "a.parquet", "--key", "id", *to, "--option", f"{prefix}on=true")
    assert len(got) == 1
    run("write", table, tmp_path / "a.parquet")
    shown = json.loads(run("callbacks", "pending", table, *to, "-o", "json").stdout)
    assert [row["state"] for row in shown] == ["undelivered"]
    run("callbacks", "replay", table, *to)
    assert len(got) == 2
    assert run("callbacks", "pending", table, *to, "-o", "json").stdout.strip() == "[]"
    run("callbacks", "replay", table, *to, "--since", got[0]["commitTime"])
    assert [message["commitTime"] for message in got[1:]] == [got[1]["commitTime"]] * 2
    failed = run(
        "callbacks", "replay", table, "--since", "0", "--option", f"{prefix}http.url=http://127.0.0.1:9", code=1
    )
    assert "could not be sent" in failed.stderr


def test_callbacks_without_an_address_are_refused_before_the_write(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "a.parquet")
    run("write", tmp_path / "t", tmp_path / "a.parquet", "--key", "id")
    refused = run(
        "write", tmp_path / "t", tmp_path / "a.parquet", "--option", "hoodie.write.commit.callback.on=true", code=2
    )
    assert "http.url" in refused.stderr
    assert len(skep.open_table(tmp_path / "t").history()) == 1


def test_a_table_with_change_data_is_made_and_read(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "in.parquet")
    made = ("--key", "id", "--changes", "data_before")
    run("write", tmp_path / "t", tmp_path / "in.parquet", *made)
    run("write", tmp_path / "t", tmp_path / "in.parquet", *made)
    found = run("read", tmp_path / "t", "--query", "cdc", "-o", "jsonl").stdout
    assert sorted(json.loads(line)["op"] for line in found.splitlines()) == ["i", "i", "u", "u"]
    changed = skep.open_table(tmp_path / "t").changes(cdc=True).to_arrow()
    assert changed.num_rows == 4
    refused = run("write", tmp_path / "t", tmp_path / "in.parquet", "--key", "id", "--changes", "op_key_only", code=1)
    assert "has changes DATA_BEFORE, not OP_KEY_ONLY" in refused.stderr


def test_changes_are_sent_once_each(run: Run, tmp_path: Path) -> None:
    as_parquet(tmp_path / "in.parquet")
    run("write", tmp_path / "t", tmp_path / "in.parquet", "--key", "id", "--changes", "data_before_after")
    printed = [json.loads(line)["op"] for line in run("changes", tmp_path / "t").stdout.splitlines()]
    assert printed == ["i", "i"]
    assert run("changes", tmp_path / "t").stdout.count("\n") == 2, "stdout has no position"
    to = ("--to", tmp_path / "out", "-o", "jsonl")
    (sent,) = map(json.loads, run("changes", tmp_path / "t", *to).stdout.splitlines())
    assert sent["changes"] == 2
    assert run("changes", tmp_path / "t", *to).stdout == ""
    run("write", tmp_path / "t", tmp_path / "in.parquet")
    run("changes", tmp_path / "t", "--consumer", "mine", "--since", sent["instant"])
    assert run("changes", tmp_path / "t", "--consumer", "mine").stdout == ""
    run("changes", tmp_path / "t", *to)
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 2
    assert skep.open_table(tmp_path / "t").send_changes(str(tmp_path / "out")) == []
    run("changes", tmp_path / "t", "--to", "kafka://nowhere", code=2)
