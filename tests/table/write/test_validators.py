"""Pre-commit validators: what they see of a write that is under way, and what is left of one that they object to."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep.query.over_rows import Queries
from skep.query.spark import SparkHolder
from skep_format.errors import EnvironmentMissingError, OptionError, UnsupportedError, ValidationError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import CommitMetadata
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write import validate
from skep_table.write.local import LocalWriter

HUDIS = "org.apache.hudi.client.validator."
SAME, OTHER, SINGLE = (
    HUDIS + f"SqlQuery{kind}PreCommitValidator" for kind in ("Equality", "Inequality", "SingleResult")
)
PREFIX = "hoodie.precommit.validators"


@pytest.fixture(params=["false", "true"], ids=["listed", "metadata"])
def metadata(request: pytest.FixtureRequest) -> str:
    """hoodie.metadata.enable: a metadata table knows nothing yet of the files that are about to be committed."""
    return str(request.param)


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, metadata: str, tmp_path: Path) -> HudiTable:
    spec = TableSpec(
        name="t", schema=rows(("a", 1)).schema, record_key=("id",), partition_by=("part",), type=request.param
    )
    options = Options({"hoodie.metadata.enable": metadata})
    made = create_table(LocalStorage(str(tmp_path / "t")), spec, options)
    LocalWriter(made).insert(rows(("a", 1), ("b", 2)))
    return made


def rows(*values: tuple[str, int | None]) -> pa.Table:
    return pa.table(
        {
            "id": [key for key, _ in values],
            "part": ["p"] * len(values),
            "v": pa.array([value for _, value in values], pa.int64()),
        }
    )


def content(table: HudiTable) -> dict[str, int | None]:
    return {row["id"]: row["v"] for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist()}


def writer(table: HudiTable, **options: Any) -> LocalWriter:
    answer = Queries(SparkHolder()).query
    return LocalWriter(table.with_context(options=table.options.with_values(options), queries=answer))


def same(query: str) -> dict[str, str]:
    return {PREFIX: SAME, f"{PREFIX}.equality.sql.queries": query}


def single(query: str) -> dict[str, str]:
    return {PREFIX: SINGLE, f"{PREFIX}.single.value.sql.queries": query}


@pytest.mark.parametrize(
    "options",
    [
        same("select count(*) from <TABLE_NAME> where v is null"),
        same("select id from <TABLE_NAME> where id = 'b'; select min(part) from <TABLE_NAME>"),
        {PREFIX: OTHER, f"{PREFIX}.inequality.sql.queries": "select max(v) from <TABLE_NAME>"},
        {PREFIX: SINGLE, f"{PREFIX}.single.value.sql.queries": "select count(*) from <TABLE_NAME>#3"},
        {PREFIX: SINGLE, f"{PREFIX}.single.value.sql.queries": "select sum(v) from <TABLE_NAME>#14;"},
        single("select count(*) from <TABLE_NAME> a join <TABLE_NAME> b using (id)#3"),
        {
            PREFIX: f"{SAME},{OTHER}",
            f"{PREFIX}.equality.sql.queries": "select distinct `part` from <TABLE_NAME>",
            f"{PREFIX}.inequality.sql.queries": "select * from <TABLE_NAME>",
        },
    ],
)
def test_a_write_that_keeps_the_rules_commits(table: HudiTable, options: dict[str, str]) -> None:
    writer(table, **options).upsert(rows(("a", 9), ("c", 3)))
    assert content(table) == {"a": 9, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (same("select count(*) from <TABLE_NAME> where v is null"), "is to answer the same after the write"),
        ({PREFIX: OTHER, f"{PREFIX}.inequality.sql.queries": "select count(*) from <TABLE_NAME>"}, "something else"),
        (
            {
                PREFIX: SINGLE,
                f"{PREFIX}.single.value.sql.queries": "select count(*) from <TABLE_NAME> where v is null#0",
            },
            "answers 1 after the write, not 0",
        ),
    ],
)
def test_a_write_that_breaks_a_rule_leaves_the_table_as_it_was(
    table: HudiTable, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        writer(table, **options).upsert(rows(("a", None)))
    assert refused.value.fields["query"]
    assert content(table) == {"a": 1, "b": 2}
    assert not table.reload().timeline.pending().instants
    assert len(table.reload().timeline.data()) == 1


def test_operations_that_write_no_file_are_checked(table: HudiTable) -> None:
    with pytest.raises(ValidationError):
        writer(table, **same("select count(*) from <TABLE_NAME>")).delete_partitions(["*"])
    assert len(content(table)) == 2
    writer(table, **same("select count(*) from <TABLE_NAME>")).insert_overwrite(rows(("x", 1), ("y", 1)))
    assert set(content(table)) == {"x", "y"}


def test_files_of_losing_attempts_are_not_seen(table: HudiTable) -> None:
    """A task that ran twice left a file: the validator sees the one that the commit will name."""
    seen: list[int] = []
    original = validate.validate

    def with_stray(at: HudiTable, instant: Any, metadata: CommitMetadata, options: Options) -> None:
        root = Path(table.storage.root)
        for stat in metadata.stats:
            if not stat.is_log:
                copy = root / stat.path.replace("_0-0-", "_9-9-")
                copy.write_bytes((root / stat.path).read_bytes())
        original(at, instant, metadata, options)
        seen.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "validate", with_stray)
        query = "select count(*) from <TABLE_NAME>#3"
        writer(table, **{PREFIX: SINGLE, f"{PREFIX}.single.value.sql.queries": query}).insert(rows(("c", 3)))
    assert seen


def test_a_validator_of_ones_own(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def check(before: HudiTable, after: HudiTable, metadata: CommitMetadata) -> None:
        counts = [read(each, ReadRequest()).count() for each in (before, after)]
        seen.append((*counts, metadata.operation_type))
        if counts[1] > 3:
            raise ValidationError("too many rows")

    entry = EntryPoint("mine", "x:y", validate.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: check)
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry] if name == "mine" else [])
    writer(table, **{PREFIX: "mine"}).insert(rows(("c", 3)))
    with pytest.raises(ValidationError, match="too many"):
        writer(table, **{PREFIX: "mine"}).insert(rows(("d", 3)))
    assert [found[:2] for found in seen] == [(2, 3), (3, 4)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({PREFIX: SAME}, OptionError, r"needs .*equality\.sql\.queries"),
        (same("select from where"), OptionError, "no SQL|validator query"),
        (same("select nope from <TABLE_NAME>"), OptionError, "nope"),
        ({PREFIX: SINGLE, f"{PREFIX}.single.value.sql.queries": "select 1"}, OptionError, "query#value"),
        ({PREFIX: "Other"}, UnsupportedError, "no validator Other"),
    ],
)
def test_validators_that_can_not_run_stop_the_write(
    table: HudiTable, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        writer(table, **options).insert(rows(("c", 3)))
    assert len(content(table)) == 2


def test_queries_need_an_engine(table: HudiTable) -> None:
    options = table.options.with_values(same("select count(*) from <TABLE_NAME>"))
    with pytest.raises(EnvironmentMissingError, match="need an engine"):
        LocalWriter(table.with_context(options=options)).insert(rows(("c", 3)))
    assert len(content(table)) == 2
