"""Each benchmark at a tiny scale: every contender does its work, all agree on the rows, the result file is whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import report, spark_reads
from benchmarks.object_proxy import kind_of


@pytest.fixture
def measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_jvm: None
) -> Callable[..., dict[tuple[str, str], float]]:
    """Runs a benchmark and gives the seconds by (task, contender)."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setenv("SKEP_BENCHMARK_CACHE", str(tmp_path / "cache"))

    def run(name: str, only: str, *more: str) -> dict[tuple[str, str], float]:
        assert command.main([name, "--scale", "0.002", "--runs", "1", "--only", only, *more]) == 0
        (file,) = tmp_path.glob(f"{name}-*.json")
        found = json.loads(file.read_text())
        assert not [row for row in found["measured"] if row["failed"]]
        # what grows is measured beyond what the process has before
        assert name == "growth" or all(row["peak_bytes"] > 10_000_000 for row in found["measured"])
        return {(row["task"], row["contender"]): row["median_seconds"] for row in found["measured"]}

    return run


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_upsert(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    seconds = measured("upsert", "skep,Hudi 0.15.0,floor")
    assert {("upsert", "skep"), ("upsert", "Hudi 0.15.0"), ("bulk insert", "skep")} <= set(seconds)
    assert all(value > 0 for value in seconds.values())


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0", "hudi-1.2.0")
def test_write(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    seconds = measured("write", "skep,Hudi 0.15.0,Hudi 1.2.0")
    everyone = {task for task, who in seconds if who == "Hudi 0.15.0"}
    assert {"cow bulk insert", "cow upsert", "cow delete", "cow small commit"} <= everyone
    assert {"mor upsert", "mor compaction", "mor small commit"} <= everyone
    assert {(task, who) for task in everyone for who in ("skep", "Hudi 1.2.0")} <= set(seconds)
    assert {("cow bulk insert", "Spark's plain parquet"), ("upsert into one of 1000 partitions", "skep")} <= set(
        seconds
    )


@pytest.mark.slow
@pytest.mark.peer("hudi-1.2.0")
def test_write_in_a_later_version(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    names = ("skep", "skep in version 6", "Hudi 1.2.0")
    seconds = measured("write", ",".join(names), "--table-version", "9")
    tasks = {task for task, _ in seconds}
    assert {"cow upsert", "cow small commit", "mor upsert", "mor compaction", "mor small commit"} <= tasks
    assert set(seconds) == {(task, name) for task in tasks for name in names}


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_read(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    seconds = measured("read", "skep,Hudi 0.15.0,hudi-rs,pyarrow")
    tasks = {task for task, _ in seconds}
    through_spark = {task.name for task in spark_reads.TASKS}
    assert tasks == {"snapshot count and sum", "copy-on-write scan", "key looked up", "streamed read"} | through_spark
    assert {(task, who) for task in through_spark for who in ("skep", "Hudi 0.15.0")} <= set(seconds)


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_sql(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    names = ("skep", "Hudi 0.15.0", "delta-rs")
    seconds = measured("sql", ",".join(names))
    kinds = ("copy-on-write", "merge-on-read")
    tasks = [f"{statement}, {kind}" for statement in ("MERGE", "UPDATE", "DELETE") for kind in kinds]
    assert set(seconds) == {(task, name) for task in tasks for name in names}


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_services(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    seconds = measured("services", "skep,Hudi 0.15.0")
    tasks = {task for task, _ in seconds}
    assert {"compaction", "clustering by two columns", "planning a clean", "clean as a process"} <= tasks


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_sync(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    seconds = measured("sync", "skep,Hudi 0.15.0,bare calls")
    both = {"first sync of all partitions", "nothing to do", "partitions dropped", "one new partition among many"}
    assert {(task, who) for task in both for who in ("skep", "Hudi 0.15.0")} <= set(seconds)
    assert ("first sync of all partitions", "bare calls") in seconds


@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
def test_object_store(measured: Callable[..., dict[tuple[str, str], float]], tmp_path: Path) -> None:
    seconds = measured("object-store", "skep,Hudi 0.15.0")
    tasks = {"upsert of one row", "upsert of many rows", "snapshot count and sums", "clean"}
    assert set(seconds) == {(task, who) for task in tasks for who in ("skep", "Hudi 0.15.0")}
    (file,) = tmp_path.glob("object-store-*.json")
    assert all(set(row["requests"]) >= {"GET", "LIST"} for row in json.loads(file.read_text())["measured"])


@pytest.mark.slow
def test_growth(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    seconds = measured("growth", "skep,partitions,rows in a file,version 9,table opened,point read,sync of one commit")
    tasks = ("table opened", "point read", "sync of one commit")
    sizes = {"partitions": ("2", "20", "200"), "rows in a file": ("40", "400", "4,000")}
    kind = "version 9, merge-on-read, metadata table"
    assert set(seconds) == {
        (f"{axis}; {kind}; {task}", size) for axis, found in sizes.items() for size in found for task in tasks
    }


@pytest.mark.parametrize(
    ("method", "target", "headers", "kind"),
    [
        ("GET", "/lake/t/.hoodie/hoodie.properties", {}, "GET"),
        ("GET", "/lake?list-type=2&prefix=t/", {}, "LIST"),
        ("GET", "/lake/?prefix=t/&delimiter=/", {}, "LIST"),
        ("PUT", "/lake/t/a.parquet", {}, "PUT"),
        ("PUT", "/lake/t/a.parquet", {"x-amz-copy-source": "/lake/t/b.parquet"}, "COPY"),
        ("POST", "/lake?delete", {}, "POST"),
        ("HEAD", "/lake/t/a.parquet", {}, "HEAD"),
    ],
)
def test_requests_of_an_object_store_are_counted_by_kind(
    method: str, target: str, headers: dict[str, str], kind: str
) -> None:
    assert kind_of(method, target, headers) == kind


@pytest.mark.slow
def test_write_from_arrow(measured: Callable[..., dict[tuple[str, str], float]]) -> None:
    names = ("skep without Spark", "delta-rs")
    seconds = measured("write", ",".join(names))
    tasks = ("bulk insert from Arrow", "upsert from Arrow")
    assert set(seconds) == {(task, name) for task in tasks for name in names}
