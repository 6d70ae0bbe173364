"""The tables that JVM Hudi writes, for skep to read: kinds that the golden tables do not have.

A case is a function that writes a table step by step through a `Making`; `@case` lists its table types and targets (a
release and the table version that it writes). A case run by `./dev test` is in `SAMPLE`, all of them
are with `--all`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_rows import (
    EVERY_TYPE,
    FEW,
    Always,
    Columns,
    Row,
    Source,
    date,
    decimal,
    integer,
    ntz,
    struct,
    timestamp,
    word,
)

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import Row as Answered
from skep_format.instant_time import CompletionTime

Options = Mapping[str, str]
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"


@dataclass(frozen=True, order=True)
class Target:
    """Who writes, and which table version."""

    release: str
    version: int

    @property
    def answered_by(self) -> str:
        """The release whose answers count: a table is read as the releases that write its version by default do."""
        return "0.15.0" if self.version == 6 else self.release

    def __str__(self) -> str:
        return f"{self.release}-v{self.version}"


OLD = Target("0.15.0", 6)
NEW6, NEW8, NEW9 = (Target("1.2.0", version) for version in (6, 8, 9))
EVERY = (OLD, NEW6, NEW8, NEW9)
NEWER = (NEW8, NEW9)
FIRST8 = Target("1.0.2", 8)  # where 1.2.0 reads tables of version 8 otherwise than the releases that wrote them did
OWN = (OLD, *NEWER)  # each release the versions it writes by default: where 1.x fails to do a thing in version 6

DATA_ACTIONS = ("commit", "deltacommit", "replacecommit")


@dataclass
class Making:
    """A table being written by JVM Hudi."""

    jvm: Jvm
    path: Path
    target: Target
    table_type: str
    options: dict[str, str]
    source: Source
    sql_settings: dict[str, str] = field(default_factory=dict)
    known_to_sql: bool = False

    # -- writes ---------------------------------------------------------------------------------------------------

    def write(
        self, operation: str, rows: list[Row], more: Options | None = None, *, columns: Columns | None = None
    ) -> list[Row]:
        if columns is not None:
            self.source.columns = columns
        given = {**self.options, **(more or {})}
        self.jvm.write(self.path, rows, self.source.ddl(), given, operation=operation)
        return rows

    def insert(self, count: int = 40, more: Options | None = None) -> None:
        self.write("insert", self.source.new(count), more)

    def upsert(self, old: int = 15, new: int = 5, more: Options | None = None, **how: Any) -> None:
        rows = [*self.source.again(old, **how), *self.source.new(new)] if how else self.source.mixed(old, new)
        self.write("upsert", rows, more)

    def delete(self, count: int = 5, more: Options | None = None) -> None:
        self.write("delete", self.source.forget(self.source.again(count)), more)

    def usual(self) -> None:
        """A life of a table: inserts, updates, late rows, deletes, and a row that comes back."""
        self.insert(40)
        self.upsert(15, 8)
        self.upsert(8, 0, late=True)
        self.delete(6)
        self.upsert(10, 4)

    # -- statements -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.options["hoodie.table.name"]

    def sql(self, text: str, settings: Options | None = None) -> list[Answered]:
        """A statement; `<t>` stands for the table, which Spark's catalog gets to know first."""
        if not self.known_to_sql:
            self.jvm.sql(f"DROP TABLE IF EXISTS {self.name}")
            self.jvm.sql(f"CREATE TABLE {self.name} USING hudi LOCATION '{self.path}'")
            self.known_to_sql = True
        versions = {key: value for key, value in self.options.items() if key in VERSION_KEYS}
        common = {"hoodie.metadata.enable": "false", **versions, **self.sql_settings}
        return self.jvm.sql(text.replace("<t>", self.name), {**common, **(settings or {})}).rows

    def source_view(self, rows: list[Row]) -> str:
        """A temporary view of rows, for MERGE INTO."""
        name = f"{self.name}_rows"
        self.jvm.request("view", name=name, rows=rows, schema=self.source.ddl())
        return name

    def crash(self) -> None:
        """What a writer leaves that dies before it can commit: the last instant's completed file is not there."""
        last = self.instants()[-1]
        last.file.unlink()
        last.file.with_name(f".{last.file.name}.crc").unlink(missing_ok=True)

    # -- what is there --------------------------------------------------------------------------------------------

    def instants(self) -> list[Completed]:
        return sorted(completed(self.path))


VERSION_KEYS = ("hoodie.write.table.version", "hoodie.write.auto.upgrade")


@dataclass(frozen=True, order=True)
class Completed:
    """A completed write on the active timeline. `since` is what an incremental query of this table counts in."""

    since: str
    requested: str
    action: str
    file: Path


def completed(table: Path) -> Iterator[Completed]:
    folder = table / ".hoodie"
    layout_2 = folder / "timeline"
    for file in (layout_2 if layout_2.is_dir() else folder).iterdir():
        found = re.fullmatch(r"(\d{17})(?:_(\d{17}))?\.(\w+)", file.name)
        if found and found[3] in DATA_ACTIONS and bool(found[2]) == layout_2.is_dir():
            yield Completed(found[2] or found[1], found[1], found[3], file)


BEGIN = "hoodie.datasource.read.begin.instanttime"


def as_counted(release: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options by which a release answers an incremental query as the others do.

    Only Hudi 1.0 includes the begin of a range: it gets the millisecond after it. 1.1 went back to leave it out.
    """
    begin = options.get(BEGIN, "000")
    if release != "1.0.2" or int(begin) == 0:
        return dict(options)
    return {**options, BEGIN: CompletionTime(begin).plus_milliseconds(1)}


# -- the register ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One kind of table.

    `exceptions`: (target or None, query kind) → why Hudi's answer is not the right one. `unsettled`: what Hudi answers
    now so and now otherwise.
    """

    name: str
    make: Callable[[Making], None]
    table_types: tuple[str, ...]
    targets: tuple[Target, ...]
    options: dict[str, str]
    columns: Columns
    partitions: tuple[Any, ...]
    part_type: str
    key_type: str
    exceptions: Mapping[tuple[Target | None, str], str]
    read_options: Mapping[str, str]
    unsettled: frozenset[tuple[Target, str]]

    def making(self, jvm: Jvm, folder: Path, target: Target, table_type: str) -> Making:
        name = f"{self.name}_{table_type[0].lower()}{target.version}"
        source = Source(name, self.columns, self.partitions, self.part_type, self.key_type)
        options = {**base_options(name, target, table_type), **self.options}
        return Making(jvm, folder / name, target, table_type, options, source)


CASES: dict[str, Case] = {}


def case(
    *table_types: str,
    targets: tuple[Target, ...] = EVERY,
    options: dict[str, str] | None = None,
    columns: Columns = FEW,
    partitions: tuple[Any, ...] = ("north", "south", "east"),
    part_type: str = "string",
    key_type: str = "string",
    exceptions: Mapping[tuple[Target | None, str], str] | None = None,
    read_options: Mapping[str, str] | None = None,
    unsettled: Iterable[tuple[Target, str]] = (),
) -> Callable[[Callable[[Making], None]], Callable[[Making], None]]:
    def add(make: Callable[[Making], None]) -> Callable[[Making], None]:
        CASES[make.__name__] = Case(
            make.__name__,
            make,
            table_types or (COW, MOR),
            targets,
            options or {},
            columns,
            partitions,
            part_type,
            key_type,
            exceptions or {},
            read_options or {},
            frozenset(unsettled),
        )
        return make

    return add


def base_options(name: str, target: Target, table_type: str) -> dict[str, str]:
    newer = {"hoodie.write.table.version": str(target.version), "hoodie.write.auto.upgrade": "false"}
    return {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.compact.inline": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.insert.shuffle.parallelism": "2",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.bulkinsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.index.bloom.num_entries": "100",
        "hoodie.bloom.index.filter.dynamic.max.entries": "1000",
        **(newer if target.release != "0.15.0" else {}),
    }


KEYGEN = "hoodie.datasource.write.keygenerator.class"
KEYS = "hoodie.datasource.write.recordkey.field"
PARTS = "hoodie.datasource.write.partitionpath.field"
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ORDERING = ("hoodie.datasource.write.precombine.field", "hoodie.table.ordering.fields")
PAYLOAD = "hoodie.datasource.write.payload.class"
GENERATORS = "org.apache.hudi.keygen."
MODELS = "org.apache.hudi.common.model."


# -- column types ------------------------------------------------------------------------------------------------------


@case(columns=EVERY_TYPE)
def every_type(t: Making) -> None:
    t.usual()


@case(MOR, columns=EVERY_TYPE, options={"hoodie.logfile.data.block.format": "parquet"})
def every_type_in_parquet_blocks(t: Making) -> None:
    t.usual()


@case(targets=(NEW6, NEW8, NEW9), columns=FEW.with_(local=("timestamp_ntz", ntz)))
def times_without_zone(t: Making) -> None:
    t.usual()


@case(columns=Columns({f"c{i}": (("int", integer(32)), ("string", word), ("date", date))[i % 3] for i in range(60)}))
def many_columns(t: Making) -> None:
    t.usual()


@case(
    columns=Columns(
        {
            "Value": ("int", integer(32)),
            "select": ("string", word),
            "_underscore": ("string", word),
            "CamelCase": ("struct<Inner:int,inner_2:string>", struct(Inner=integer(32), inner_2=word)),
            "a1": ("decimal(20,5)", decimal(20, 5)),
        }
    )
)
def names_of_columns(t: Making) -> None:
    t.usual()


# -- keys and partitions -----------------------------------------------------------------------------------------------


@case(options={KEYS: "id,k", PARTS: "part,seq", KEYGEN: GENERATORS + "ComplexKeyGenerator", **HIVE})
def composite_key_hive_style(t: Making) -> None:
    t.insert(30)
    # A key must stay where it is: seq is a partition column here.
    t.write("upsert", [dict(row, note="again", ts=row["ts"] + 9_000_000) for row in list(t.source.born.values())[:12]])
    t.write("delete", t.source.forget(list(t.source.born.values())[:4]))


@case(options={PARTS: "", KEYGEN: GENERATORS + "NonpartitionedKeyGenerator"})
def not_partitioned(t: Making) -> None:
    t.usual()


@case(partitions=("2024-02-29", "1969-12-31", "2031-07-01"), part_type="date", options=HIVE)
def partitioned_by_date(t: Making) -> None:
    t.usual()


@case(partitions=(7, -3, 2**40), part_type="bigint")
def partitioned_by_number(t: Making) -> None:
    t.usual()


@case(partitions=(True, False), part_type="boolean", options=HIVE)
def partitioned_by_boolean(t: Making) -> None:
    t.usual()


@case(partitions=(None, "", "x"))
def partition_values_missing(t: Making) -> None:
    t.usual()


@case(partitions=("eu/nl", "eu/de/berlin", "us"))
def partition_paths_nested_by_value(t: Making) -> None:
    t.usual()


@case(
    partitions=("a b", "x=y", "50%", "ü/ö", 'q"q', "c:d", "#h?"),
    options={"hoodie.datasource.write.partitionpath.urlencode": "true"},
)
def partition_paths_encoded(t: Making) -> None:
    t.usual()


@case(
    partitions=(1_700_000_000_000, 1_700_090_000_000, 1_500_000_000_000),
    part_type="bigint",
    options={
        KEYGEN: GENERATORS + "TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd/HH",
        "hoodie.keygen.timebased.timezone": "UTC",
    },
)
def partitioned_by_time(t: Making) -> None:
    t.usual()


@case(
    partitions=("2024-01-02T03:04:05.000000Z", "2019-12-31T23:59:59.000000Z"),
    part_type="timestamp",
    options={
        KEYGEN: GENERATORS + "CustomKeyGenerator",
        PARTS: "seq:SIMPLE,part:TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "SCALAR",
        "hoodie.keygen.timebased.timestamp.scalar.time.unit": "microseconds",
        "hoodie.keygen.timebased.output.dateformat": "yyyyMM",
        **HIVE,
    },
)
def partitioned_by_custom(t: Making) -> None:
    t.insert(30)
    t.write("upsert", [dict(row, note="again", ts=row["ts"] + 9_000_000) for row in list(t.source.born.values())[:12]])


@case(key_type="date")
def key_is_a_date(t: Making) -> None:
    t.usual()


@case(key_type="timestamp")
def key_is_a_timestamp(t: Making) -> None:
    t.usual()


@case(key_type="decimal(12,2)")
def key_is_a_decimal(t: Making) -> None:
    t.usual()


@case(key_type="bigint", options={"hoodie.populate.meta.fields": "false"})
def virtual_keys(t: Making) -> None:
    t.insert(30)
    t.write("bulk_insert", t.source.new(20))


@case(
    columns=FEW.with_(
        meta=("struct<uid:string,city:string>", Always(lambda r: {"uid": f"u{r.random()}", "city": word(r)}))
    ),
    options={KEYS: "meta.uid"},
)
def key_inside_a_struct(t: Making) -> None:
    t.insert(30)
    t.write("upsert", [dict(row, note="again", ts=row["ts"] + 9_000_000) for row in list(t.source.born.values())[:10]])


@case(options={"hoodie.datasource.write.drop.partition.columns": "true"})
def partition_column_dropped(t: Making) -> None:
    t.usual()


# -- indexes that move or bucket records -------------------------------------------------------------------------------


@case(options={"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": "true"})
def records_that_move(t: Making) -> None:
    t.insert(30)
    t.upsert(12, 3, move=True)
    t.upsert(12, 0, move=True)
    t.delete(5)


@case(MOR, options={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3", KEYS: "id,k"})
def buckets(t: Making) -> None:
    t.usual()


@case(
    MOR,
    options={
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "2",
    },
)
def consistent_hashing(t: Making) -> None:
    t.usual()


@case(
    targets=(OLD, NEW8, NEW9),
    options={
        "hoodie.metadata.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
    },
)
def every_metadata_index(t: Making) -> None:
    t.usual()


# -- merge rules -------------------------------------------------------------------------------------------------------


@case(options={PAYLOAD: MODELS + "OverwriteWithLatestAvroPayload"})
def latest_wins(t: Making) -> None:
    t.usual()


@case(options={PAYLOAD: MODELS + "DefaultHoodieRecordPayload"})
def greatest_ordering_wins(t: Making) -> None:
    t.usual()


@case(options={PAYLOAD: MODELS + "EventTimeAvroPayload"})
def event_time_payload(t: Making) -> None:
    t.usual()


@case(options={PAYLOAD: MODELS + "OverwriteNonDefaultsWithLatestAvroPayload"})
def nulls_do_not_overwrite(t: Making) -> None:
    t.usual()


@case(options={PAYLOAD: MODELS + "PartialUpdateAvroPayload"})
def partial_update_payload(t: Making) -> None:
    t.usual()


@case(
    options={
        PAYLOAD: MODELS + "DefaultHoodieRecordPayload",
        "hoodie.payload.delete.field": "note",
        "hoodie.payload.delete.marker": "plain",
    }
)
def rows_that_mark_a_delete(t: Making) -> None:
    t.usual()


@case(columns=FEW.with_(_hoodie_is_deleted=("boolean", lambda r: r.random() < 0.3)))
def rows_flagged_as_deleted(t: Making) -> None:
    t.usual()


@case(
    targets=(OLD, NEW6, FIRST8, NEW9),  # of version 8, 1.2.0 deletes what late deletes name, where 1.0 keeps it
    columns=FEW.with_(Op=("string", lambda r: r.choice("IUUUD"))),
    options={PAYLOAD: MODELS + "AWSDmsAvroPayload"},
)
def dms_payload(t: Making) -> None:
    t.usual()


@case(targets=NEWER, options={"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
def commit_time_mode(t: Making) -> None:
    t.usual()


@case(targets=NEWER, options={"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"})
def event_time_mode(t: Making) -> None:
    t.usual()


@case(targets=(NEW9,), options=dict.fromkeys(ORDERING, "seq,ts"))
def several_ordering_fields(t: Making) -> None:
    t.insert(30)
    for _ in range(3):
        t.upsert(15, 2)
    t.delete(4)


@case(
    MOR,
    targets=(OLD,),
    options={
        "hoodie.datasource.write.record.merger.impls": "org.apache.hudi.HoodieSparkRecordMerger",
        "hoodie.logfile.data.block.format": "parquet",
    },
)
def spark_record_merger(t: Making) -> None:
    t.usual()


OPERATION_FIELD = {"hoodie.allow.operation.metadata.field": "true"}


# In merge-on-read tables Hudi shows the column or not by which file of the latest commit it happens to look into, and
# incremental queries of 0.15 leave it out.
@case(
    COW,
    targets=(OLD,),
    options=OPERATION_FIELD,
    read_options=OPERATION_FIELD,
    unsettled=[(OLD, f"incremental {name}") for name in ("from the beginning", "after the first", "range")],
)
def operation_column(t: Making) -> None:
    t.usual()


@case(targets=NEWER, options={"hoodie.datasource.write.precombine.field": ""})
def without_ordering(t: Making) -> None:
    t.insert(30)
    t.upsert(10, 3)
    t.delete(5)
    t.upsert(6, 2)


# -- log files ---------------------------------------------------------------------------------------------------------


@case(MOR, columns=EVERY_TYPE, options={"hoodie.logfile.data.block.max.size": "600"})
def small_log_blocks(t: Making) -> None:
    t.usual()


@case(MOR, partitions=("one",), options={"hoodie.logfile.max.size": "900", "hoodie.logfile.data.block.max.size": "400"})
def many_log_files(t: Making) -> None:
    t.insert(30)
    for _ in range(12):
        t.upsert(8, 0)


@case(MOR, options={"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"})
def compacted_inline(t: Making) -> None:
    t.usual()
    t.upsert(10, 2)


@case(MOR)
def compaction_pending(t: Making) -> None:
    t.insert(40)
    t.upsert(15, 5)
    t.sql("CALL run_compaction(op => 'schedule', table => '<t>')")
    t.upsert(15, 5)
    t.delete(5)


@case(
    MOR,
    options={"hoodie.log.compaction.inline": "true", "hoodie.log.compaction.blocks.threshold": "2"},
)
def log_compaction(t: Making) -> None:
    t.usual()
    t.upsert(10, 0)


@case(
    MOR,
    targets=OWN,
    exceptions={
        (OLD, "time travel to the middle"): "a rollback block later than the query makes 0.15.0 stop reading the log:"
        " completed commits before it are hidden"
    },
)
def log_rolled_back(t: Making) -> None:
    t.insert(40)
    t.upsert(15, 5)
    t.upsert(10, 5)
    t.sql(f"CALL rollback_to_instant(table => '<t>', instant_time => '{t.instants()[-1].requested}')")
    t.upsert(10, 3)
    t.crash()
    t.upsert(9, 2, {"hoodie.rollback.using.markers": "false"})  # the markers went when the write was complete
    t.upsert(5, 0)


@case(MOR, targets=NEWER, options={"hoodie.write.record.positions": "true"})
def positions_in_log_blocks(t: Making) -> None:
    t.usual()


@case(MOR, options={"hoodie.parquet.compression.codec": "zstd", "hoodie.logfile.data.block.format": "parquet"})
def zstd_in_logs(t: Making) -> None:
    t.usual()


# -- schema changes ----------------------------------------------------------------------------------------------------


@case()
def columns_added_and_widened(t: Making) -> None:
    t.insert(30)
    t.upsert(8, 3)
    wider = Columns(
        {
            "n": ("bigint", integer(64)),
            "amount": ("decimal(10,2)", decimal(10, 2)),
            "note": ("string", word),
            "tags": FEW.of["tags"],
            "added": ("struct<a:int,b:array<string>>", struct(a=integer(32), b=lambda r: [word(r)])),
            "when": ("timestamp", timestamp),
        }
    )
    t.write("upsert", t.source.mixed(8, 3, wider), columns=wider)
    t.upsert(6, 2)


SCHEMA_ON_READ = {"hoodie.schema.on.read.enable": "true", "hoodie.datasource.write.reconcile.schema": "true"}


@case(targets=OWN, options=SCHEMA_ON_READ, read_options=SCHEMA_ON_READ)
def columns_renamed(t: Making) -> None:
    t.sql_settings.update(SCHEMA_ON_READ)
    t.insert(30)
    t.upsert(8, 3)
    t.sql("ALTER TABLE <t> RENAME COLUMN note TO remark")
    t.sql("ALTER TABLE <t> ALTER COLUMN n TYPE bigint")
    t.sql("ALTER TABLE <t> ADD COLUMNS (extra string)")
    renamed = Columns(
        {
            "n": ("bigint", integer(64)),
            "amount": ("decimal(10,2)", decimal(10, 2)),
            "remark": ("string", word),
            "tags": FEW.of["tags"],
            "extra": ("string", word),
        }
    )
    t.write("upsert", t.source.mixed(8, 3, renamed), columns=renamed)


@case(targets=OWN, options=SCHEMA_ON_READ, read_options=SCHEMA_ON_READ)
def column_dropped(t: Making) -> None:
    t.sql_settings.update(SCHEMA_ON_READ)
    t.insert(30)
    t.sql("ALTER TABLE <t> DROP COLUMN note")
    fewer = Columns({name: FEW.of[name] for name in ("n", "amount", "tags")})
    t.write("upsert", t.source.mixed(8, 3, fewer), columns=fewer)


@case(MOR, targets=OWN, columns=FEW.with_(more=("string", word)))
def partial_update_by_merge_into(t: Making) -> None:
    t.insert(30)
    rows = t.source_view(t.source.again(12))
    t.sql(f"MERGE INTO <t> AS t USING {rows} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n, ts = s.ts")
    rows = t.source_view(t.source.again(12))
    t.sql(f"MERGE INTO <t> AS t USING {rows} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note, ts = s.ts")


# -- change data capture -----------------------------------------------------------------------------------------------


# No decimals: Hudi prints those that it takes from data files as {"zero":false}.
CAPTURED = Columns(
    {
        "n": ("int", integer(32)),
        "note": ("string", word),
        "big": ("bigint", integer(64)),
        "flag": ("boolean", lambda r: r.random() < 0.5),
    }
)


def captured(mode: str) -> dict[str, str]:
    return {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": mode}


@case(options=captured("op_key_only"), columns=CAPTURED)
def changes_by_key(t: Making) -> None:
    t.usual()


@case(options=captured("data_before"), columns=CAPTURED)
def changes_with_before(t: Making) -> None:
    t.usual()


@case(MOR, options={**captured("data_before_after"), "hoodie.compact.inline": "true"}, columns=CAPTURED)
def changes_of_logs(t: Making) -> None:
    t.usual()


# -- whole partitions and table services -------------------------------------------------------------------------------


@case()
def partitions_replaced(t: Making) -> None:
    t.insert(30)
    t.write("insert_overwrite", [dict(row, part="north") for row in t.source.new(6)])
    t.write("delete_partition", [], {"hoodie.datasource.write.partitions.to.delete": "south"})
    t.upsert(8, 4)


@case()
def table_replaced(t: Making) -> None:
    t.insert(30)
    t.upsert(8, 4)
    t.write("insert_overwrite_table", t.source.new(9))
    t.insert(5)


CLUSTERED = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "2",
    "hoodie.clustering.plan.strategy.sort.columns": "n",
}


@case(options={**CLUSTERED, "hoodie.parquet.small.file.limit": "0"})
def clustered_inline(t: Making) -> None:
    t.usual()


CLEANED = {
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
}


# Of a range that begins in the archive 0.15 answers the commits of the active timeline only.
IN_ARCHIVE = [(target, "incremental from the beginning") for target in (OLD, NEW6)]


@case(options=CLEANED, unsettled=IN_ARCHIVE)
def cleaned_and_archived(t: Making) -> None:
    t.insert(30)
    for _ in range(9):
        t.upsert(6, 1)


@case(
    MOR,
    options={**CLEANED, "hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"},
    unsettled=IN_ARCHIVE,
)
def compacted_cleaned_and_archived(t: Making) -> None:
    t.insert(30)
    for _ in range(9):
        t.upsert(6, 1)


@case()
def restored(t: Making) -> None:
    t.insert(30)
    t.upsert(10, 3)
    t.sql(f"CALL create_savepoint('<t>', '{t.instants()[-1].requested}')")
    t.upsert(10, 3)
    t.upsert(10, 3)
    t.sql(f"CALL rollback_to_savepoint('<t>', '{t.instants()[1].requested}')")
    t.upsert(6, 2)


@case(options={"hoodie.parquet.small.file.limit": "0"})
def many_file_groups(t: Making) -> None:
    for _ in range(4):
        t.insert(12)
    t.upsert(20, 5)


@case(
    COW,
    targets=OWN,
    columns=FEW.with_(day=("date", date), moment=("timestamp", timestamp)),
    options={"hoodie.table.base.file.format": "ORC"},
)
def orc_base_files(t: Making) -> None:
    t.usual()


@case(options={"hoodie.datasource.write.row.writer.enable": "false", "hoodie.parquet.compression.codec": "gzip"})
def bulk_inserted_without_row_writer(t: Making) -> None:
    t.write("bulk_insert", t.source.new(30))
    t.upsert(10, 3)


@case(targets=(NEW8, NEW9))
def upgraded_from_version_6(t: Making) -> None:
    upgrade = {"hoodie.write.auto.upgrade": "true"}
    old = {"hoodie.write.table.version": "6"}
    t.write("insert", t.source.new(30), old)
    t.write("upsert", t.source.mixed(10, 3), old)
    t.upsert(10, 3, upgrade)
    t.delete(4)


# What `./dev test` runs; the rest goes to --all.
SAMPLE = frozenset(
    {
        f"{OLD}-{MOR}-every_type",
        f"{OLD}-{MOR}-many_log_files",
        f"{OLD}-{COW}-columns_renamed",
        f"{NEW9}-{MOR}-every_type",
        f"{NEW9}-{MOR}-several_ordering_fields",
        f"{NEW9}-{MOR}-partial_update_by_merge_into",
        f"{NEW9}-{COW}-partitioned_by_custom",
        f"{NEW8}-{MOR}-log_compaction",
        f"{NEW8}-{COW}-changes_with_before",
        f"{NEW6}-{MOR}-compaction_pending",
    }
)
