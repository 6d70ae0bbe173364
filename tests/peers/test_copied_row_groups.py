"""Base files with row groups that skep copied as bytes, out of its own files and Hudi's: JVM Hudi reads them by rows,
ranges and conditions, writes them on, and compacts what was copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from copied_groups import copied_groups
from peer_cases import BEGIN, as_counted, completed
from peer_rows import Columns, Row, date, decimal, integer, struct, timestamp, word
from peer_shared import META, Shape, Shared, agree, peers

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.options import Options
from skep_format.table_config import TableType
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

# Without lists: Hudi's files have them in another form than ours, and are decoded where a table has some.
COLUMNS = Columns(
    {
        "n": ("int", integer(32)),
        "amount": ("decimal(10,2)", decimal(10, 2)),
        "note": ("string", word),
        "day": ("date", date),
        "moment": ("timestamp", timestamp),
        "place": ("struct<city:string,zip:int>", struct(city=word, zip=integer(32))),
    }
)
COW = Shape("copied", columns=COLUMNS, partition_by=())
MOR = Shape("copied_mor", columns=COLUMNS, partition_by=(), type=TableType.MERGE_ON_READ)
# Without times: what compares statistics for Hudi 0.15 does not read those.
COMPARED = Columns({name: kind for name, kind in COLUMNS.of.items() if name not in ("day", "moment")})
PARTITIONED = Shape("copied_in_parts", columns=COMPARED)
OURS = {"hoodie.parquet.block.size": "8192"}
# Hudi looks at the size of a page and of a row group after each 100 rows.
THEIRS = {"parquet__block__size": "20000", "parquet__page__size": "256", "parquet__compression__codec": "snappy"}
FILTERS = {"parquet.bloom.filter.enabled#id": "true"}
ID = 5  # behind the meta columns
INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
}
ARROW, JAVA = "parquet-cpp-arrow", "parquet-mr"
READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
INCREMENTAL = {"hoodie.datasource.query.type": "incremental"}
Start = Callable[[str], Jvm]


class Copied:
    """A table of small row groups, and how many of them skep copied in its last step."""

    def __init__(self, path: Path, shape: Shape, hudi: Jvm, **options: str) -> None:
        self.shared, self.hudi = Shared.make(path, shape), hudi
        self.source = self.shared.source
        self.options = Options({**OURS, **options})
        self.copied = 0

    def table(self) -> HudiTable:
        return self.shared.open().with_context(options=self.options)

    def ours(self, operation: str, rows: list[Row]) -> None:
        self.noted(lambda: self.shared.ours(operation, rows, writer=LocalWriter(self.table())))

    def theirs(self, operation: str, rows: list[Row], **more: str) -> None:
        self.shared.theirs(self.hudi, operation, rows, **{**THEIRS, **more})

    def noted(self, step: Callable[[], object]) -> None:
        with copied_groups() as copied:
            assert step() != []
        self.copied = len(copied)

    def files(self) -> list[Path]:
        """The base files that are read now."""
        view = self.shared.open().view()
        return [self.shared.path / s.base_file.path for p in view.partitions() for s in view.slices(p) if s.base_file]

    def check(self, *, least: int, writer: str = ARROW) -> None:
        """So many row groups were copied at least. Both read the same rows, Hudi by conditions, too."""
        assert self.copied >= least
        files = [pq.read_metadata(file) for file in self.files()]
        assert {each.created_by.partition(" ")[0] for each in files} == {writer}
        assert all(each.num_row_groups > 2 for each in files), "each file has several row groups"
        agree(self.shared, self.hudi)
        self.copied = 0

    def check_conditions(self, options: Mapping[str, str] | None = None) -> None:
        """Statistics of row groups, indexes of pages and filters over values leave out no row that fulfils them."""
        rows = self.shared.expected()
        for where, holds in conditions(rows):
            wanted = [row for row in rows if holds(row)]
            assert wanted, where
            found = self.hudi.read(self.shared.path, options, where=where).rows
            assert not (wrong := difference(found, wanted, without=META)), f"Hudi, where {where}: {wrong}"
            if self.shared.shape is COW:
                # Pages are left out where all columns of a query have an index of them; the name of the file has none.
                asked = {"options": {}, "format": "parquet", "expressions": ["id", "n", "place"], "where": where}
                answers = (self.hudi.request("aggregate", path=str(file), **asked)["rows"] for file in self.files())
                wanted = [{name: row[name] for name in ("id", "n", "place")} for row in wanted]
                wrong = difference(list(itertools.chain.from_iterable(answers)), wanted)
                assert not wrong, f"Spark, where {where}: {wrong}"

    def check_splits(self) -> None:
        """Tasks that each read a part of a file, by where row groups begin, read each row once."""
        splits = {"spark.sql.files.maxPartitionBytes": "5000", "spark.sql.files.openCostInBytes": "0"}
        for file in self.files():
            (found,) = self.hudi.sql(f"select count(ts) as n from parquet.`{file}`", splits).rows
            assert found == {"n": pq.read_metadata(file).num_rows}


def conditions(rows: list[Row]) -> list[tuple[str, Callable[[Row], bool]]]:
    some = rows[len(rows) // 2]
    times = sorted(row["ts"] for row in rows)
    low, high = times[len(times) // 3], times[len(times) // 3 + 9]
    return [
        (f"id = '{some['id']}'", lambda row: bool(row["id"] == some["id"])),
        (f"ts between {low} and {high}", lambda row: low <= row["ts"] <= high),
        ("note = 'plain' and n < 0", lambda row: row["note"] == "plain" and row["n"] is not None and row["n"] < 0),
        ("place.zip = 0", lambda row: bool(row["place"] and row["place"]["zip"] == 0)),
    ]


@pytest.fixture
def with_filters(release: str, jvm: Start) -> Iterator[Jvm]:
    """Hudi that writes a filter over the values of `id`, as `FILTERS` has skep do."""
    hudi, (key, value) = jvm(release), next(iter(FILTERS.items()))
    before = hudi.request("hadoop", key=key, value=value)["before"]
    yield hudi
    hudi.request("hadoop", key=key, value=before)


@peers()
def test_hudi_and_we_write_in_turn(release: str, with_filters: Jvm, tmp_path: Path) -> None:
    table = Copied(tmp_path / "t", COW, with_filters, **FILTERS)
    source = table.source
    table.ours("bulk_insert", source.new(900))
    table.ours("upsert", source.neighbours(100, 10))
    table.check(least=10)
    table.ours("insert", source.new(30))
    table.ours("delete", source.forget(source.neighbours(500, 9)))
    table.check(least=10)
    table.check_conditions()
    since = {**INCREMENTAL, BEGIN: sorted(completed(table.shared.path))[0].since}
    theirs = table.hudi.read(table.shared.path, as_counted(release, since)).rows
    assert not (found := difference(table.shared.read(since), theirs)), f"since the first write: {found}"
    table.theirs("upsert", [*source.neighbours(300, 10), *source.new(5)])
    table.check(least=0, writer=JAVA)
    table.ours("upsert", source.neighbours(40, 10))
    table.check(least=2)
    (file,) = map(pq.read_metadata, table.files())
    filters = [file.row_group(number).column(ID).bloom_filter_offset for number in range(file.num_row_groups)]
    assert all(filters)
    table.check_conditions()
    table.check_splits()
    table.theirs("upsert", source.mixed(10, 3))
    table.check(least=0, writer=JAVA)


@peers(sampled=(("1.2.0", 9),))
def test_either_compacts_what_the_other_compacted(release: str, jvm: Start, tmp_path: Path) -> None:
    table = Copied(tmp_path / "t", MOR, jvm(release))
    source, shared = table.source, table.shared
    table.ours("bulk_insert", source.new(900))
    table.ours("upsert", source.neighbours(100, 10))
    table.ours("delete", source.forget(source.neighbours(500, 9)))
    table.theirs("upsert", source.neighbours(600, 4))
    table.noted(lambda: compact(table.table()))
    table.check(least=10)
    table.check_conditions()
    inline = {"compact__inline": "true", "compact__inline__max__delta__commits": "1"}
    table.theirs("upsert", [*source.neighbours(300, 10), *source.new(5)], **inline)
    table.check(least=0, writer=JAVA)
    table.ours("upsert", source.neighbours(40, 10))
    table.noted(lambda: compact(table.table()))
    table.check(least=2)
    table.ours("upsert", source.neighbours(60, 10))
    by_position = table.hudi.read(shared.path, {"hoodie.merge.use.record.positions": "true"}).rows
    assert not (wrong := difference(by_position, shared.expected(), without=META)), f"by positions: {wrong}"
    theirs, found = table.hudi.read(shared.path, READ_OPTIMIZED).rows, shared.read(READ_OPTIMIZED)
    assert not (wrong := difference(found, theirs)), f"base files: {wrong}"


@peers(sampled=(("0.15.0", 6),))
def test_hudi_writes_on_what_a_clustering_joined(release: str, jvm: Start, tmp_path: Path) -> None:
    """Row groups of both writers in one file."""
    table = Copied(tmp_path / "t", COW, jvm(release))
    source = table.source
    table.ours("bulk_insert", source.new(400))
    table.theirs("insert", source.new(900), parquet__small__file__limit="0")
    held = [pq.read_metadata(file).num_row_groups for file in table.files()]
    assert min(held) > 2
    table.noted(lambda: cluster(table.table()))
    assert len(table.files()) == 1
    table.check(least=sum(held) - len(held))  # the last ones may be small
    table.check_conditions()
    table.theirs("upsert", source.mixed(10, 3))
    table.check(least=0, writer=JAVA)


@peers(sampled=())
def test_indexes_of_the_metadata_table_hold_for_what_was_copied(release: str, jvm: Start, tmp_path: Path) -> None:
    table = Copied(tmp_path / "t", PARTITIONED, jvm(release), **INDEXES)
    source, shared = table.source, table.shared
    table.ours("bulk_insert", source.new(1500))
    table.ours("upsert", source.neighbours(100, 10))
    table.ours("delete", source.forget(source.neighbours(500, 9)))
    table.check(least=20)
    table.check_conditions({**INDEXES, "hoodie.enable.data.skipping": "true"})
    assert not table.hudi.validate(shared.path).differences
    more = {key.removeprefix("hoodie.").replace(".", "__"): value for key, value in INDEXES.items()}
    table.theirs("upsert", [*source.neighbours(300, 10), *source.new(5)], **more)
    table.ours("upsert", source.neighbours(40, 10))
    table.check(least=2)
    found = table.hudi.validate(shared.path)
    assert not found.differences
    assert found.compared["ranges"] > 0 < found.compared["filters"]
    table.check_conditions({**INDEXES, "hoodie.enable.data.skipping": "true"})
