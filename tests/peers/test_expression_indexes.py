"""Indexes over expressions: those of Hudi and skep hold the same, both keep them in turns, and skip files by them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_rows import EVERY_TYPE, FEW, Columns, Row, date
from peer_shared import MERGE_ON_READ, META, SHAPES, Shape, Shared, index_agrees, peer_marks

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.expressions import expression_of
from skep_format.json_text import json_lines
from skep_format.schema.arrow import arrow_type
from skep_table.metadata_table.entries import latest
from skep_table.metadata_table.partitions import BLOOM_MEMBER, STATS_MEMBER
from skep_table.metadata_table.records.expression_index import FILTER_OPTIONS
from skep_table.query import ReadRequest, read
from skep_table.query.read import explain
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.metadata.indexing import build_index, drop_index, index_named
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = SHAPES[0], MERGE_ON_READ[0]
KEPT = {"hoodie.metadata.enable": "true"}
SKIPPING = {**KEPT, "hoodie.enable.data.skipping": "true"}
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "ts,id"}
ONE_COMMIT = {"hoodie.cleaner.commits.retained": "1"}


@dataclass(frozen=True, eq=False)
class Made:
    """An index by its name in this module, and filters that it serves, with the literal to be put in."""

    kind: str
    column: str
    options: dict[str, str]
    filter: str

    @property
    def sql(self) -> str:
        """What follows `ON table` in CREATE INDEX."""
        options = ", ".join(f"{name} = '{value}'" for name, value in self.options.items())
        return f"USING {self.kind} ({self.column}) OPTIONS ({options})"


DAYS = Made("column_stats", "n", {"expr": "from_unixtime", "format": "yyyy-MM-dd"}, "from_unixtime(n, 'yyyy-MM-dd')")
KEYS = Made("column_stats", "id", {"expr": "upper"}, "upper(id)")
STARTS = Made("column_stats", "note", {"expr": "substring", "pos": "1", "len": "2"}, "substring(note, 1, 2)")
ENDS = Made("column_stats", "note", {"expr": "substring", "pos": "-3", "len": "2"}, "substring(note, -3, 2)")
LETTERS = Made(
    "column_stats",
    "note",
    {"expr": "regexp_extract", "pattern": "^([a-z]+)", "idx": "1"},
    "regexp_extract(note, '^([a-z]+)', 1)",
)
OTHERS = Made(
    "column_stats",
    "note",
    {"expr": "regexp_replace", "pattern": "[aeiou]", "replacement": "-"},
    "regexp_replace(note, '[aeiou]', '-')",
)
SECONDS = Made("column_stats", "moment", {"expr": "unix_timestamp"}, "unix_timestamp(moment)")
BORN = Made("column_stats", "born", {"expr": "to_date"}, "to_date(born)")
YEARS = Made("column_stats", "born", {"expr": "year"}, "year(born)")
OF_MORE_TYPES = (ENDS, LETTERS, OTHERS, SECONDS, BORN, YEARS)
FOUND = Made("bloom_filters", "id", {"expr": "lower", "numentries": "200", "fpp": "0.001"}, "lower(id)")

# Hudi fails for its own writes to log files beside Bloom filters of an expression, made by either ("Positive number of
# partitions required").
CASES = [
    pytest.param(
        release,
        version,
        shape,
        made,
        id=f"{release}-{shape}-{made.options['expr']}{'-of-more' * (made in OF_MORE_TYPES)}",
        marks=peer_marks(release, sampled=False),
    )
    for release, version in (("1.0.2", 8), ("1.1.1", 9), ("1.2.0", 9))
    for shape in (COW, MOR)
    for made in (DAYS, KEYS, STARTS, FOUND, *OF_MORE_TYPES)
    if (made is not FOUND or shape is COW) and (made not in OF_MORE_TYPES or shape is MOR)
]
cases = pytest.mark.parametrize(("release", "table_version", "shape", "made"), CASES, indirect=["table_version"])


class Both:
    """A table that both write, with an index over an expression."""

    def __init__(self, path: Path, shape: Shape, hudi: Jvm, made: Made, is_thorough: bool) -> None:
        columns = Columns({column: FEW.of[column] for column in ("n", "note")})
        if made in OF_MORE_TYPES:
            columns = columns.with_(moment=EVERY_TYPE.of["moment"], born=("string", date))
        name = f"{shape.name}_{hudi.release.replace('.', '_')}_{made.options['expr']}_{path.parent.name[-1]}"
        self.shared = Shared.make(path, replace(shape, name=name, columns=columns))
        self.hudi, self.made, self.source = hudi, made, self.shared.source
        self.partition, self.is_thorough = "expr_index_made", is_thorough

    def table(self, **options: str) -> HudiTable:
        return HudiTable.open(str(self.shared.path), {**KEPT, **options})

    def ours(self, operation: str, rows: list[Row]) -> None:
        self.shared.ours(operation, rows, writer=LocalWriter(self.table()))

    def theirs(self, operation: str, rows: list[Row]) -> None:
        if self.hudi.release == "1.2.0":
            # It fails for all of its own writes beside such an index: its driver has not listed the partition.
            self.ours(operation, rows)
            return
        more = {"metadata__enable": "true", "archive__automatic": "false"}
        self.shared.theirs(self.hudi, operation, rows, **more)

    def make_by_hudi(self) -> None:
        """Hudi makes the index by SQL."""
        name = self.shared.shape.name
        self.hudi.sql(f"DROP TABLE IF EXISTS {name}")
        self.hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{self.shared.path}'")
        settings = {
            **KEPT,
            "hoodie.write.table.version": str(self.table().config.version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
            "hoodie.cleaner.policy.failed.writes": "LAZY",
        }
        self.hudi.sql(f"CREATE INDEX made ON {name} {self.made.sql}", settings)

    def make_by_skep(self) -> None:
        definition = index_named(self.made.kind, "made", [self.made.column], self.made.options)
        build_index(self.table(), definition)

    def records(self) -> dict[str, Any]:
        """The index, without the times at which filters were made."""
        metadata = self.table().metadata_table()
        assert metadata is not None
        member = STATS_MEMBER if self.made.kind == "column_stats" else BLOOM_MEMBER
        found = {}
        for group in metadata.group_readers(self.partition):
            keys, records = latest(group.entries(column=member), member)
            stated = (
                {name: value for name, value in each.items() if name != "timestamp"} for each in records.to_pylist()
            )
            found |= dict(zip(keys.to_pylist(), stated, strict=True))
        return found

    def check(self, step: str) -> None:
        index_agrees(self.shared, self.table(), self.partition, step)
        filters = self.filters()
        for where in filters if self.is_thorough else filters[-1:]:
            every = self.hudi.read(self.shared.path, {"hoodie.metadata.enable": "false"}, where=where).rows
            skipped = self.hudi.read(self.shared.path, SKIPPING, where=where).rows
            assert not (wrong := difference(skipped, every, without=META)), f"Hudi after {step}, where {where}: {wrong}"
            ours = self.read(where)
            assert not (wrong := difference(ours, every, without=META)), f"skep after {step}, where {where}: {wrong}"

    def read(self, where: str | None = None) -> list[Row]:
        result = read(self.table(), ReadRequest(where=where))
        text = b"".join(bytes(json_lines(batch)) for batch in result.to_batches()).decode()
        return [json.loads(line) for line in text.split("\n") if line]

    def filters(self) -> list[str]:
        """For values of some rows, and one that no row has."""
        text, schema = self.made.filter, self.table().stored_schema()
        filters = ("expr", *FILTER_OPTIONS)
        options = {name: value for name, value in self.made.options.items() if name not in filters}
        expression = expression_of(self.made.options["expr"], options, schema[self.made.column].type)
        held = [row[self.made.column] for row in self.shared.expected()]
        kind = arrow_type(expression.source)
        if pa.types.is_timestamp(kind):
            held = [None if each is None else dt.datetime.fromisoformat(each) for each in held]
        found = expression.of(pa.array(held, kind)).drop_null().to_pylist()
        values = [value for value in sorted(set(found)) if str(value).replace("-", "").isalnum()]
        some = [literal(value) for value in values[:: max(1, len(values) // 2)]]
        return [*(f"{text} = {value}" for value in some), f"{text} IN ({literal(values[-1])}, {some[0]})"]


def literal(value: Any) -> str:
    """As in SQL."""
    if isinstance(value, dt.date):
        return f"DATE'{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


@pytest.fixture
def both(
    release: str,
    table_version: int,
    shape: Shape,
    made: Made,
    is_thorough: bool,
    jvm: Callable[[str], Jvm],
    tmp_path: Path,
) -> Both:
    found = Both(tmp_path / "t", shape, jvm(release), made, is_thorough)
    found.ours("bulk_insert", found.source.new(24))
    return found


@cases
def test_both_keep_what_hudi_made(both: Both) -> None:
    source = both.source
    both.make_by_hudi()
    both.check("their creation")
    theirs = both.records()
    drop_index(both.table(), "made")
    both.make_by_skep()
    ours = both.records()
    assert ours == theirs
    both.check("creation")
    both.ours("upsert", source.mixed(8, 4))
    both.check("upsert")
    both.theirs("upsert", source.mixed(8, 4))
    both.check("their upsert")
    both.ours("delete", source.forget(source.again(3)))
    both.check("delete")
    both.theirs("upsert", source.mixed(6, 2))
    if both.table().config.is_mor:
        compact(both.table())
        both.check("compaction")
    cluster(both.table(**SORTED))
    both.check("clustering")
    both.theirs("upsert", source.mixed(6, 2))
    clean(both.table(**ONE_COMMIT))
    both.check("clean")


@cases
def test_explanations_name_an_index_of_hudi(both: Both) -> None:
    both.make_by_hudi()
    beyond_all = {SECONDS: "99999999999", YEARS: "9999", BORN: "DATE'9999-12-31'"}.get(both.made, "'\N{HONEYBEE}'")
    steps = explain(both.table(), ReadRequest(where=f"{both.made.filter} = {beyond_all}")).steps
    assert [(step.by, step.slices) for step in steps][-1] == ("by the expression index made", 0)
