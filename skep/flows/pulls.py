"""Incremental pulls, as of HiveIncrementalPuller: a query over the next commits of a table, into Avro files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep.base.names import TableName
from skep.handles.lake_tables import LakeTables
from skep.metastore.hive_client import HiveClient
from skep.query.engines import LakeEngine
from skep.query.over_rows import query_of
from skep.query.rows import Rows
from skep_format.avro.container import container
from skep_format.errors import InputError, NoSuchTableError, OptionError, UnsupportedError
from skep_format.instant_time import BEGINNING, InstantTime
from skep_format.schema.arrow import from_arrow
from skep_format.storage import Storage, open_storage
from skep_sql.bind import named_tables
from skep_sql.parsing.written import replaced
from skep_stream.checkpoints import CheckpointSettings, newest, resumed
from skep_table.query.incremental import times_of
from skep_table.query.options import QueryType
from skep_table.table import HudiTable

ALL_COMMITS: Final = -1
_MOST: Final = (1 << 31) - 1
FILE: Final = "000000_0"
"""As Hive names the first file of a table."""
_CLAUSE: Final = re.compile(r"`?_hoodie_commit_time`?\s*>\s*'(%s|%targetBasePath)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What is pulled: the options of HiveIncrementalPuller, by its names in Python's spelling.

    `sql` names `<source_db>.<source_table>`, and has the clause `_hoodie_commit_time` > '%s' for it.
    """

    source_db: str
    source_table: str
    target_table: str
    sql: str
    target_db: str | None = None
    tmp: str = "/app/hoodie/intermediate"
    tmpdb: str = "hoodie_temp"
    from_commit_time: str | None = None
    max_commits: int = 3

    def __post_init__(self) -> None:
        if self.max_commits < 1 and self.max_commits != ALL_COMMITS:
            raise OptionError(
                f"maxCommits is 1 at least, or {ALL_COMMITS} for all, not {self.max_commits}",
                option="maxCommits",
                found=self.max_commits,
            )
        if not re.search(rf"\b{re.escape(self.source)}\b", self.sql.replace("`", "")):
            raise InputError(f"the query does not read {self.source}", option="extractSQLFile", expected=self.source)
        if _CLAUSE.search(self.sql) is None:
            raise InputError(
                "the query lacks the clause `_hoodie_commit_time` > '%s', so it does not read incrementally",
                option="extractSQLFile",
            )

    @property
    def source(self) -> str:
        """The full name of the table that is read."""
        return f"{self.source_db}.{self.source_table}"

    @property
    def folder(self) -> str:
        """Where the pulls of one target from one source are, a folder for each: what HiveIncrPullSource reads."""
        return f"{self.tmp.rstrip('/')}/{self.target_table}__{self.source_table}"

    @property
    def temporary_table(self) -> str:
        """The table that Hive makes of a pull."""
        return f"{self.tmpdb}.{self.target_table}__{self.source_table}"

    def query_from(self, time: str) -> str:
        """The query with a time in its clause."""
        return _CLAUSE.sub(lambda found: found[0].replace(found[1], time), self.sql)


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pull that is done. `rows` is None where Hive has written them."""

    path: str
    since: str
    until: str
    commits: int
    rows: int | None


def pull(tables: LakeTables, asked: Pull, hive: HiveClient | None = None, queue: str | None = None) -> Pulled | None:
    """Reads the next commits of the source by the query, and writes what it finds; None where there are none.

    Without `hive` the query runs here. A pull that was killed is repeated, in the same folder unless there are more
    commits now.
    """
    source = HudiTable.open(hive.location_of(asked.source), tables.options) if hive else tables.table(asked.source).hudi
    since = InstantTime(asked.from_commit_time or _position(tables, asked, hive))
    if not since.isdigit():
        raise InputError(f"fromCommitTime {since!r} is no time of a commit", option="fromCommitTime", found=since)
    times = times_of(source)
    later = [time for time in times if time.is_after(since)]
    chosen = later if asked.max_commits == ALL_COMMITS else later[: asked.max_commits]
    if not chosen:
        return None
    by_completion = source.format.reads.ranges_by_completion_time
    if hive is not None and by_completion:
        raise UnsupportedError(
            f"table {asked.source} has version {source.config.version}: Hive pulls those of version 6",
            hint="without hiveUrl the query runs here",
            found=source.config.version,
        )
    storage = open_storage(asked.folder, tables.options)
    done = Pulled(storage.uri(chosen[-1]), since, chosen[-1], len(chosen), None)
    if hive is not None:
        _forget_table(hive, asked)
        storage.delete_folder(chosen[-1])
        hive.run(hive_statements(asked, since, done.path, queue))
        return done
    text = asked.query_from(str(BEGINNING) if by_completion else since)  # the clause compares requested times
    rows = _rows(tables, asked, text, _changes(tables, asked, source, since, chosen[-1]))
    _write(storage, chosen[-1], asked, rows)
    return Pulled(done.path, since, done.until, done.commits, rows.num_rows)


def hive_statements(asked: Pull, since: str, path: str, queue: str | None) -> list[str]:
    """What HiveIncrementalPuller has Hive do: settings of an incremental read, and a table of what it finds."""
    table, most = asked.source_table, asked.max_commits if asked.max_commits > 0 else _MOST
    settings = {
        **({"mapred.job.queue.name": queue} if queue else {}),
        "hive.input.format": "org.apache.hudi.hadoop.hive.HoodieCombineHiveInputFormat",
        "hive.strict.checks.large.query": "false",
        "hive.stats.autogather": "false",
        "hive.fetch.task.conversion": "none",  # a fetch does not apply the settings below
        f"hoodie.{table}.consume.mode": "INCREMENTAL",
        f"hoodie.{table}.consume.start.timestamp": since,
        f"hoodie.{table}.consume.max.commits": str(most),
    }
    return [
        *(f"SET {name}={value}" for name, value in settings.items()),
        f"CREATE TABLE {asked.temporary_table} STORED AS AVRO LOCATION '{path}' AS {asked.query_from(since)}",
    ]


def _forget_table(hive: HiveClient, asked: Pull) -> None:
    """Drops the table of the last pull, whose database may be missing. Its files stay: a stream may still read them."""
    table = asked.temporary_table
    hive.run([f"CREATE DATABASE IF NOT EXISTS {asked.tmpdb}"])
    try:
        hive.location_of(table)
    except NoSuchTableError:
        return
    kept = "'EXTERNAL'='TRUE', 'external.table.purge'='false'"
    hive.run([f"ALTER TABLE {table} SET TBLPROPERTIES ({kept})", f"DROP TABLE {table}"])


def _position(tables: LakeTables, asked: Pull, hive: HiveClient | None) -> str:
    """The checkpoint of the target: the last commit of the source whose pull a stream has read."""
    if asked.target_db is None:
        raise OptionError("without targetDb a pull needs fromCommitTime", option="fromCommitTime")
    name = f"{asked.target_db}.{asked.target_table}"
    try:
        target = HudiTable.open(hive.location_of(name), tables.options) if hive else tables.table(name).hudi
    except NoSuchTableError:
        return "0"
    found = resumed(newest(target), CheckpointSettings()).checkpoint
    if found is None and target.timeline.data().completed().last() is not None:
        raise InputError(
            f"table {name} has commits and no checkpoint, so what was pulled for it is not known",
            hint="fromCommitTime names the last commit of the source that it has",
            option="fromCommitTime",
            table=name,
        )
    return found or "0"


def _changes(tables: LakeTables, asked: Pull, source: HudiTable, since: InstantTime, until: InstantTime) -> Rows:
    last = times_of(source)[-1]
    end = None if until == last else str(until)  # up to now, archived commits are read too
    return tables.table(asked.source).rows(source, query=QueryType.INCREMENTAL, since=str(since), until=end)


def _rows(tables: LakeTables, asked: Pull, text: str, changes: Rows) -> pa.Table:
    """The rows of the query, in which the source is `changes`; other tables are those of the lake."""
    query = query_of(text)
    relations: dict[str, Any] = {}
    for node in named_tables(query):
        name = str(TableName.parse(f"{node.db}.{node.name}" if node.db else node.name, asked.source_db))
        key = f"skep_{name.replace('.', '_')}"
        relations.setdefault(key, changes if name == asked.source.lower() else tables.table(name).rows())
        renamed = exp.alias_(exp.to_table(key), node.alias or node.name, table=True)
        replaced(node, renamed, alias=None if node.alias else node.name)
    return LakeEngine(tables.spark_holder).rows(query, relations)


def _write(storage: Storage, folder: str, asked: Pull, rows: pa.Table) -> None:
    """One file, visible as a whole; those of an earlier pull of that name are deleted before."""
    name = asked.temporary_table.partition(".")[2]
    data = container(from_arrow(rows.schema, name, asked.tmpdb), rows)
    file = f"{folder}/{FILE}"
    others = [each.path for each in storage.list_folder(folder).files if each.path != file]
    storage.delete_many(others)
    storage.replace_atomic(file, data)
