"""More tables for JVM Hudi to write, of the kinds that turn up when teams, tools and years come together: bootstraps,
pending services, columns changed deep inside, key generators with all their settings, payloads of change streams.
"""

from __future__ import annotations

from typing import Any

import pyarrow.dataset as ds
from peer_arrow import arrow_table
from peer_cases import (
    CAPTURED,
    COW,
    FIRST8,
    GENERATORS,
    HIVE,
    KEYGEN,
    KEYS,
    MODELS,
    MOR,
    NEW9,
    NEWER,
    OLD,
    ORDERING,
    OWN,
    PARTS,
    PAYLOAD,
    SCHEMA_ON_READ,
    Making,
    captured,
    case,
)
from peer_rows import FEW, Always, Columns, date, decimal, integer, single, struct, timestamp, word

INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}


# -- key generators and partitions -------------------------------------------------------------------------------------


def timebased(kind: str, output: str, **more: str) -> dict[str, str]:
    prefix = "hoodie.keygen.timebased."
    return {
        KEYGEN: GENERATORS + "TimestampBasedKeyGenerator",
        prefix + "timestamp.type": kind,
        prefix + "output.dateformat": output,
        **{prefix + name.replace("_", "."): value for name, value in more.items()},
    }


@case(
    partitions=(1_700_000_000, 1_500_000_000, 86_399),
    part_type="bigint",
    options={**timebased("UNIX_TIMESTAMP", "yyyy-MM-dd", timezone="Asia/Tokyo"), **HIVE},
)
def partitioned_by_unix_time(t: Making) -> None:
    t.usual()


@case(
    partitions=("2024-02-29T23:30:00+0100", "20231231", "2031-07-01T00:00:00Z"),
    options=timebased(
        "DATE_STRING",
        "yyyy/MM/dd",
        input_dateformat="yyyy-MM-dd'T'HH:mm:ssZ,yyyyMMdd,yyyy-MM-dd'T'HH:mm:ss'Z'",
        input_dateformat_list_delimiter_regex=",",
        input_timezone="UTC",
        output_timezone="UTC",
    ),
)
def partitioned_by_date_texts(t: Making) -> None:
    t.usual()


@case(
    partitions=("2024-02-29T23:30:00.000000Z", "1999-12-31T00:00:00.000001Z"),
    part_type="timestamp",
    exceptions={
        (target, name): "Hudi 1.2.0 does not decode the folder's name here, and answers null for what is no time"
        for target in NEWER
        for name in ("incremental from the beginning", "incremental after the first", "incremental range")
    },
    options={
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    },
)
def partitioned_by_timestamp(t: Making) -> None:
    t.usual()


@case(partitions=("1.50", "-2.25", "1000000.00"), part_type="decimal(10,2)", options=HIVE)
def partitioned_by_decimal(t: Making) -> None:
    t.usual()


@case(
    partitions=("a b", "x=y", "50%", "ü/ö", None, "", "1/2/3"),
    options={"hoodie.datasource.write.partitionpath.urlencode": "true", **HIVE},
)
def hive_style_and_encoded(t: Making) -> None:
    t.usual()


@case(
    options={
        KEYGEN: GENERATORS + "CustomKeyGenerator",
        PARTS: "part:SIMPLE,seq:SIMPLE",
        KEYS: "id,k",
    },
    partitions=("north", "south"),
)
def custom_generator_two_fields(t: Making) -> None:
    t.insert(30)
    t.write("upsert", [dict(row, note="again", ts=row["ts"] + 9_000_000) for row in list(t.source.born.values())[:12]])


MORE = "Hudi 0.15.0 adds a column named like the member to the answer"


@case(
    COW,
    targets=OWN,
    exceptions={(OLD, name): MORE for name in ("snapshot", "time travel to the first", "time travel to the middle")},
    columns=FEW.with_(at=("struct<zone:string,hour:int>", Always(lambda r: {"zone": r.choice("ab"), "hour": 3}))),
    options={PARTS: "at.zone", KEYS: "id"},
)
def partitioned_by_a_member(t: Making) -> None:
    t.insert(30)
    t.write("upsert", [dict(row, note="again", ts=row["ts"] + 9_000_000) for row in list(t.source.born.values())[:12]])


@case(options={KEYS: "id,k", KEYGEN: GENERATORS + "NonpartitionedKeyGenerator", PARTS: ""})
def composite_key_not_partitioned(t: Making) -> None:
    t.usual()


@case(columns=FEW.with_(k2=("string", lambda r: None)), options={KEYS: "id,k2", **HIVE})
def composite_key_with_null(t: Making) -> None:
    t.usual()


# -- bootstraps --------------------------------------------------------------------------------------------------------


def bootstrap(t: Making, selector: str, **more: str) -> None:
    folder = t.path.with_name(f"{t.path.name}_source")
    rows = arrow_table(t.source.new(40), t.source.ddl())
    ds.write_dataset(rows, folder, format="parquet", partitioning=["part"], partitioning_flavor="hive")
    t.write(
        "bootstrap",
        [],
        {
            "hoodie.bootstrap.base.path": str(folder),
            "hoodie.bootstrap.mode.selector": f"org.apache.hudi.client.bootstrap.selector.{selector}",
            "hoodie.bootstrap.parallelism": "2",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            **more,
        },
    )


@case(
    targets=OWN,
    options=HIVE,
    exceptions={(OLD, "incremental from the beginning"): "Hudi 0.15.0 answers skeletons without their data columns"},
)
def bootstrapped_by_skeletons(t: Making) -> None:
    bootstrap(t, "MetadataOnlyBootstrapModeSelector")
    t.upsert(10, 5)
    t.delete(4)
    t.upsert(6, 2)


@case(targets=OWN, options=HIVE)
def bootstrapped_whole(t: Making) -> None:
    bootstrap(t, "FullRecordBootstrapModeSelector")
    t.upsert(10, 5)
    t.delete(4)


@case(targets=OWN, options=HIVE)
def bootstrapped_in_part(t: Making) -> None:
    more = {
        "hoodie.bootstrap.mode.selector.regex": ".*north",
        "hoodie.bootstrap.mode.selector.regex.mode": "METADATA_ONLY",
    }
    bootstrap(t, "BootstrapRegexModeSelector", **more)
    t.upsert(10, 5)
    t.upsert(6, 2)


# -- columns changed inside, again and again ---------------------------------------------------------------------------

DEEP = struct(a=integer(32), b=word, c=struct(x=integer(32), y=single))
NESTED = Columns(
    {
        "n": ("int", integer(32)),
        "deep": ("struct<a:int,b:string,c:struct<x:int,y:float>>", DEEP),
        "items": ("array<struct<p:int,q:string>>", lambda r: [{"p": r.randint(0, 9), "q": word(r)}]),
    }
)


@case(targets=OWN, columns=NESTED, options=SCHEMA_ON_READ, read_options=SCHEMA_ON_READ)
def nested_columns_changed(t: Making) -> None:
    t.sql_settings.update(SCHEMA_ON_READ)
    t.insert(30)
    t.upsert(8, 3)
    t.sql("ALTER TABLE <t> RENAME COLUMN deep.b TO bee")
    t.sql("ALTER TABLE <t> ADD COLUMNS (deep.d string)")
    t.sql("ALTER TABLE <t> ALTER COLUMN deep.c.x TYPE bigint")
    changed = Columns(
        {
            "n": NESTED.of["n"],
            "deep": (
                "struct<a:int,bee:string,c:struct<x:bigint,y:float>,d:string>",
                struct(a=integer(32), bee=word, c=struct(x=integer(64), y=single), d=word),
            ),
            "items": NESTED.of["items"],
        }
    )
    t.write("upsert", t.source.mixed(8, 3, changed), columns=changed)
    t.upsert(6, 2)


@case(targets=(OLD,), options=SCHEMA_ON_READ, read_options=SCHEMA_ON_READ)
def column_renamed_twice_and_made_again(t: Making) -> None:
    """The name that was given up is taken again by another column."""
    t.sql_settings.update(SCHEMA_ON_READ)
    t.insert(30)
    t.sql("ALTER TABLE <t> RENAME COLUMN note TO remark")
    t.sql("ALTER TABLE <t> RENAME COLUMN remark TO comment")
    first = Columns({"n": FEW.of["n"], "amount": FEW.of["amount"], "comment": ("string", word), "tags": FEW.of["tags"]})
    t.write("upsert", t.source.mixed(8, 3, first), columns=first)
    t.sql("ALTER TABLE <t> ADD COLUMNS (note bigint)")
    second = first.with_(note=("bigint", integer(64)))
    t.write("upsert", t.source.mixed(8, 3, second), columns=second)


NO_NULLS = "a struct that is null in an older file comes out of Hudi 1.2.0 as one of nulls"


@case(
    MOR,
    targets=(OLD, NEW9),
    columns=NESTED,
    exceptions={
        (NEW9, name): NO_NULLS
        for name in ("snapshot", "incremental from the beginning", "time travel to the middle", "read_optimized")
    },
)
def nested_columns_widened(t: Making) -> None:
    t.insert(30)
    t.upsert(8, 3)
    wider = Columns(
        {
            "n": ("bigint", integer(64)),
            "deep": (
                "struct<a:bigint,b:string,c:struct<x:int,y:double,z:string>>",
                struct(a=integer(64), b=word, c=struct(x=integer(32), y=single, z=word)),
            ),
            "items": (
                "array<struct<p:bigint,q:string,r:date>>",
                lambda r: [{"p": r.randint(0, 9), "q": word(r), "r": date(r)}],
            ),
        }
    )
    t.write("upsert", t.source.mixed(8, 3, wider), columns=wider)
    t.upsert(6, 2)


@case()
def numbers_become_text(t: Making) -> None:
    columns = Columns({"n": ("int", integer(32)), "big": ("bigint", integer(64)), "half": ("float", single)})
    t.source.columns = columns
    t.insert(30)
    wider = Columns({"n": ("bigint", integer(64)), "big": ("double", single), "half": ("double", single)})
    t.write("upsert", t.source.mixed(8, 3, wider), columns=wider)
    text = Columns({"n": ("string", word), "big": ("double", single), "half": ("double", single)})
    t.write("upsert", t.source.mixed(8, 3, text), columns=text)


# -- ordering values ---------------------------------------------------------------------------------------------------


def ordered_by(kind: str, make: Any) -> dict[str, Any]:
    return {
        "columns": FEW.with_(at=(kind, Always(make))),
        # Whether base rows from before the range are merged in is a matter of what the session read before.
        "unsettled": {(OLD, name) for name in ("incremental after the first", "incremental range")},
        "options": {"hoodie.datasource.write.precombine.field": "at"}
        | {PAYLOAD: MODELS + "DefaultHoodieRecordPayload"},
    }


@case(**ordered_by("timestamp", timestamp))
def ordered_by_timestamp(t: Making) -> None:
    t.usual()


# Hudi 0.15 compares decimals by their bytes, negative ones as greater than all others: there are none here.
@case(targets=(OLD,), **ordered_by("decimal(12,3)", lambda r: decimal(12, 3)(r).lstrip("-")))
def ordered_by_decimal(t: Making) -> None:
    t.usual()


@case(**ordered_by("string", word))
def ordered_by_text(t: Making) -> None:
    t.usual()


@case(targets=(OLD,), **ordered_by("date", date))
def ordered_by_date(t: Making) -> None:
    t.usual()


@case(**ordered_by("double", single))
def ordered_by_double(t: Making) -> None:
    t.usual()


@case(
    columns=FEW.with_(_hoodie_is_deleted=("boolean", lambda r: r.random() < 0.3)),
    options={PAYLOAD: MODELS + "DefaultHoodieRecordPayload"},
)
def late_rows_flagged_as_deleted(t: Making) -> None:
    t.insert(30)
    t.upsert(15, 3)
    t.upsert(15, 3, late=True)
    t.upsert(15, 3)


@case(
    targets=(NEW9,),
    columns=FEW.with_(_hoodie_is_deleted=("boolean", lambda r: r.random() < 0.3), label=("string", Always(word))),
    options=dict.fromkeys(ORDERING, "label,ts"),
)
def several_ordering_fields_with_deletes(t: Making) -> None:
    t.insert(30)
    for _ in range(4):
        t.upsert(15, 2)
    t.delete(4)


# -- change streams ----------------------------------------------------------------------------------------------------

POSTGRES = FEW.with_(
    _event_lsn=("bigint", Always(lambda r: r.randint(1, 10**6))),
    _change_operation_type=("string", Always(lambda r: r.choice("cuuud"))),
    big_text=("string", lambda r: r.choice((*("__debezium_unavailable_value",) * 2, "one", "two"))),
)


# In tables of version 8 Hudi 1.2.0 deletes what late deletes name, where 1.0 keeps it: 1.0.2 is asked for these.
@case(
    MOR,
    columns=POSTGRES,
    targets=(OLD, FIRST8, NEW9),
    options={
        PAYLOAD: MODELS + "debezium.PostgresDebeziumAvroPayload",
        "hoodie.datasource.write.precombine.field": "_event_lsn",
    },
)
def postgres_stream(t: Making) -> None:
    t.insert(30)
    for _ in range(4):
        t.upsert(15, 3)


def binlog(r: Any) -> str:
    return f"{r.randint(1, 3):06d}.{r.randint(1, 999)}"


@case(
    columns=FEW.with_(
        _event_seq=("string", Always(binlog)), _change_operation_type=("string", Always(lambda r: r.choice("cuuud")))
    ),
    targets=(OLD,),
    options={
        PAYLOAD: MODELS + "debezium.MySqlDebeziumAvroPayload",
        "hoodie.datasource.write.precombine.field": "_event_seq",
    },
)
def mysql_stream(t: Making) -> None:
    t.insert(30)
    for _ in range(4):
        t.upsert(15, 3)


@case(
    MOR,
    # no deletes: Hudi 1.0 compares their places in the log as texts with rows of base files, and not at all with others
    columns=FEW.with_(
        _event_seq=("string", Always(binlog)), _change_operation_type=("string", Always(lambda r: r.choice("cu")))
    ),
    targets=(FIRST8,),
    options={
        PAYLOAD: MODELS + "debezium.MySqlDebeziumAvroPayload",
        "hoodie.datasource.write.precombine.field": "_event_seq",
    },
)
def mysql_stream_without_deletes(t: Making) -> None:
    t.insert(30)
    for _ in range(4):
        t.upsert(15, 3)


@case(
    columns=FEW.with_(
        _event_bin_file=("string", Always(lambda r: f"mysql-bin.{r.randint(1, 3):06d}")),
        _event_pos=("bigint", Always(lambda r: r.randint(1, 999))),
        _event_seq=("string", Always(binlog)),
        _change_operation_type=("string", Always(lambda r: r.choice("cuuud"))),
    ),
    targets=(NEW9,),
    options={
        PAYLOAD: MODELS + "debezium.MySqlDebeziumAvroPayload",
        **dict.fromkeys(ORDERING, "_event_bin_file,_event_pos"),
    },
)
def mysql_stream_by_two_fields(t: Making) -> None:
    t.insert(30)
    for _ in range(4):
        t.upsert(15, 3)


@case(
    MOR,
    targets=(OLD, FIRST8),
    columns=FEW.with_(_hoodie_is_deleted=("boolean", lambda r: r.random() < 0.3)),
    options={PAYLOAD: MODELS + "PartialUpdateAvroPayload"},
)
def late_deletes_under_partial_updates(t: Making) -> None:
    t.insert(30)
    t.upsert(15, 3)
    t.upsert(15, 3, late=True)
    t.upsert(15, 3)


@case(
    MOR,
    columns=FEW.with_(at=("bigint", Always(lambda r: r.randint(1, 3)))),
    targets=(FIRST8,),
    options={PAYLOAD: MODELS + "FirstValueAvroPayload", "hoodie.datasource.write.precombine.field": "at"},
)
def first_value_among_equals(t: Making) -> None:
    t.insert(30)
    t.upsert(15, 3)
    t.upsert(15, 3)
    t.delete(5)
    t.upsert(15, 3)


# -- log files ---------------------------------------------------------------------------------------------------------


@case(MOR, columns=FEW, options={"hoodie.logfile.data.block.format": "hfile"})
def hfile_log_blocks(t: Making) -> None:
    t.usual()


@case(
    MOR,
    targets=OWN,
    options={"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"},
)
def logs_of_records_that_move(t: Making) -> None:
    t.insert(30)
    for _ in range(3):
        t.upsert(12, 3, move=True)
    t.upsert(8, 0)


@case(
    MOR,
    targets=NEWER,
    options={**INDEXED, "hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"},
)
def compacted_with_statistics(t: Making) -> None:
    t.usual()
    t.upsert(10, 2)
    t.upsert(10, 2)


@case(MOR)
def rows_changed_by_sql(t: Making) -> None:
    t.insert(30)
    t.sql("UPDATE <t> SET note = 'by sql', ts = ts + 1000000000 WHERE n > 0")
    t.sql("DELETE FROM <t> WHERE n < -5")
    t.upsert(8, 2)


# -- table services ----------------------------------------------------------------------------------------------------


@case(targets=OWN, options={"hoodie.parquet.small.file.limit": "0"})
def clustering_pending(t: Making) -> None:
    t.insert(20)
    t.insert(20)
    t.sql("CALL run_clustering(op => 'schedule', table => '<t>')")
    t.insert(10)


# Hudi 0.15.0 fails to write on decimals that its clustering rewrote.
@case(MOR, targets=OWN, columns=Columns({name: FEW.of[name] for name in ("n", "note", "tags")}))
def clustered_with_logs(t: Making) -> None:
    t.insert(30)
    t.upsert(10, 3)
    t.sql("CALL run_clustering(table => '<t>', order => 'n')")
    t.upsert(10, 3)
    t.delete(3)


@case(MOR, targets=OWN)
def compaction_run_while_logs_arrive(t: Making) -> None:
    t.insert(30)
    t.upsert(10, 3)
    t.sql("CALL run_compaction(op => 'schedule', table => '<t>')")
    t.upsert(10, 3)
    t.sql("CALL run_compaction(op => 'run', table => '<t>')")
    t.upsert(10, 3)
    t.sql("CALL run_compaction(op => 'schedule', table => '<t>')")
    t.upsert(6, 1)


@case(MOR)
def partitions_with_logs_replaced(t: Making) -> None:
    t.insert(30)
    t.upsert(15, 4)
    t.write("insert_overwrite", [dict(row, part="north") for row in t.source.new(6)])
    t.upsert(8, 4)
    t.write("delete_partition", [], {"hoodie.datasource.write.partitions.to.delete": "south"})
    t.write("insert", [dict(row, part="south") for row in t.source.new(5)])


@case(
    targets=NEWER,
    options={
        **INDEXED,
        "hoodie.clean.automatic": "true",
        "hoodie.cleaner.commits.retained": "2",
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
        "hoodie.timeline.compaction.batch.size": "3",
    },
)
def archived_in_several_layers(t: Making) -> None:
    t.insert(30)
    for _ in range(14):
        t.upsert(4, 1)


@case(options={"hoodie.datasource.write.insert.drop.duplicates": "true"})
def duplicates_dropped(t: Making) -> None:
    t.insert(20)
    t.write("insert", t.source.mixed(10, 10))


# -- files -------------------------------------------------------------------------------------------------------------


@case(
    columns=FEW.with_(moment=("timestamp", timestamp), day=("date", date)),
    options={"hoodie.parquet.outputtimestamptype": "INT96", "hoodie.parquet.block.size": "2048"},
)
def int96_times_in_small_row_groups(t: Making) -> None:
    t.write("bulk_insert", t.source.new(30))
    t.write("bulk_insert", t.source.new(10))


@case(
    columns=FEW.with_(moment=("timestamp", timestamp)),
    options={"hoodie.parquet.outputtimestamptype": "TIMESTAMP_MILLIS", "hoodie.parquet.compression.codec": "lz4"},
    targets=OWN,
)
def millisecond_times(t: Making) -> None:
    t.write("bulk_insert", t.source.new(30))
    t.upsert(10, 3)


# -- change data capture -----------------------------------------------------------------------------------------------

# Without structs, which Hudi prints as the fields of its Java objects.
ONE_ROW = "Hudi 0.15.0 prints one of the rows of a replaced file group again and again"


@case(
    options=captured("data_before_after"),
    columns=CAPTURED,
    exceptions={(OLD, "cdc from the beginning"): ONE_ROW, (OLD, "cdc after the first"): ONE_ROW},
)
def changes_of_whole_partitions(t: Making) -> None:
    t.insert(30)
    t.upsert(8, 4)
    t.write("insert_overwrite", [dict(row, part="north") for row in t.source.new(6)])
    t.write("delete_partition", [], {"hoodie.datasource.write.partitions.to.delete": "south"})
    t.upsert(6, 3)


@case(
    MOR,
    options={
        **captured("op_key_only"),
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
    },
    columns=CAPTURED,
)
def changes_of_logs_by_key(t: Making) -> None:
    t.usual()


@case(
    COW,
    exceptions={(None, "cdc from the beginning"): "Hudi prints decimals out of data files as Java objects"},
    options=captured("data_before_after"),
    columns=FEW.with_(day=("date", date), moment=("timestamp", timestamp)),
)
def changes_with_decimals(t: Making) -> None:
    t.usual()
