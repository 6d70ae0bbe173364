"""Sources that read the files of a folder as they arrive."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from functools import partial

import pyarrow as pa

from skep_format.errors import InputError, OptionError
from skep_format.options import Options
from skep_format.rowfiles.csv_rows import csv_rows
from skep_format.rowfiles.json_rows import json_rows
from skep_format.rowfiles.rejected import Rejected
from skep_format.rowfiles.typed_rows import typed_rows
from skep_format.schema.types import Schema
from skep_format.storage import FileStatus, Storage, open_storage
from skep_stream import options as keys
from skep_stream.files.choice import STATE_KEY, ChosenFiles, FileRule, Remembered, checkpoint_of, choose
from skep_stream.files.compressed import plain
from skep_stream.files.csv_options import csv_form
from skep_stream.options import rejected_of, unknown_class
from skep_stream.protocols import SINCE, Batch, Position, StreamContext
from skep_stream.united import united
from skep_table.events import Events

log = logging.getLogger("skep.stream")
Reader = Callable[[str, bytes], pa.Table]
Listing = Callable[[Storage], Sequence[FileStatus]]
_UNLIMITED = 1 << 63


class SourceFileWarning(UserWarning):
    """A file of a source is as large as the limit of a round."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """The files below a folder that a reader takes, which is made once a round; `listing` finds them."""

    storage: Storage
    reader: Callable[[], Reader]
    rule: FileRule
    listing: Listing
    rejected: Rejected = field(default_factory=Rejected)
    events: Events = field(default_factory=Events)

    def fetch(self, last: Position, limit: int) -> Batch:
        """The rows of the files that have not been read, up to `limit` bytes; columns by name.

        InputError where the folder is not there, and for a file that can't be read.
        """
        self.rejected.taken()  # of a round that failed
        chosen = self._chosen(last, limit)
        self._warn(chosen, limit)
        frame = self._rows(chosen.files) if chosen.files else None
        state = {STATE_KEY: chosen.remembered.text()} if self.rule.remembered else {}
        return Batch(frame, str(chosen.checkpoint), state, chosen.late, self.rejected.taken())

    def _rows(self, files: Sequence[FileStatus]) -> pa.Table:
        read, tables = self.reader(), []
        done, total = 0, sum(file.size_bytes for file in files)
        for file in files:
            tables.append(read(self.storage.uri(file.path), self.storage.read(file.path)))
            done += file.size_bytes
            self.events.progress("stream.fetch", done, total)
        return united(tables, "files")

    def waiting(self, last: Position) -> dict[str, int | None]:
        """How many files have not been read, their bytes, and the time of the oldest. Lists the folder."""
        files = self._chosen(last, _UNLIMITED).files
        return {
            "waiting_files": len(files),
            "waiting_bytes": sum(file.size_bytes for file in files),
            SINCE: min((file.modified_ms for file in files), default=None),
        }

    def _chosen(self, last: Position, limit: int) -> ChosenFiles:
        before = checkpoint_of(last.checkpoint)
        rule = replace(self.rule, limit=limit)
        return choose(self.listing(self.storage), before, Remembered.parse(before, last.extra.get(STATE_KEY)), rule)

    def _warn(self, chosen: ChosenFiles, limit: int) -> None:
        for file, what in ((chosen.oversized, "it is read alone"), (chosen.blocked, "no file is read before it")):
            if file is not None:
                warnings.warn(
                    f"{self.storage.uri(file.path)} has {file.size_bytes} bytes, the source limit is {limit}: {what}",
                    SourceFileWarning,
                    stacklevel=3,
                )


def _list_all(storage: Storage) -> Sequence[FileStatus]:
    found = storage.list_prefix("", recursive=True)
    if not found and not storage.exists(""):
        raise InputError(f"the source folder {storage.root} is not there", path=storage.root)
    return found


def _list_dates(pattern: str, depth: int, first: date, storage: Storage) -> Sequence[FileStatus]:
    """The files below folders of dates from `first` on, `depth` folders below the root."""
    return [file for file in _list_all(storage) if _is_from(file.path.split("/"), pattern, depth, first)]


def _is_from(parts: Sequence[str], pattern: str, depth: int, first: date) -> bool:
    if len(parts) <= depth + 1:
        return False
    text = parts[depth].rpartition("=")[2]
    try:
        return datetime.strptime(text, pattern).date() >= first
    except ValueError:
        return False


_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d"}


def _pattern(text: str) -> str:
    """A pattern of Java's dates as Python's. OptionError for parts that no date has."""
    found = text
    for java, python in _PARTS.items():
        found = found.replace(java, python)
    if set(found.replace("%Y", "").replace("%m", "").replace("%d", "")) & set("yMdHhmsSEDuwWGaz"):
        key = keys.DATE_FORMAT.key
        raise OptionError(f"{key}={text} has parts beside {', '.join(_PARTS)}", option=key, found=text)
    return found


def _listing(options: Options) -> Listing:
    name = options.value(keys.SELECTOR).rpartition(".")[2]
    if name in ("", "DFSPathSelector"):
        return _list_all
    if name != "DatePartitionPathSelector":
        raise unknown_class(keys.SELECTOR, options, "DFSPathSelector", "DatePartitionPathSelector")
    current = options.value(keys.CURRENT_DATE)
    today = date.fromisoformat(current) if current else datetime.now(timezone.utc).date()
    first = today - timedelta(days=options.value(keys.LOOKBACK_DAYS))
    return partial(_list_dates, _pattern(options.value(keys.DATE_FORMAT)), options.value(keys.DATE_DEPTH), first)


def _source(context: StreamContext, reader: Callable[[], Reader]) -> FileSource:
    options = context.options
    root = options.needed(keys.ROOT, "a file source needs")
    rule = FileRule(0, options.value(keys.REMEMBERED), options.value(keys.OVERSIZED))
    return FileSource(open_storage(root, options), reader, rule, _listing(options), events=context.events)


def _schema(context: StreamContext) -> Schema | None:
    return context.schemas.source_schema() if context.schemas is not None else None


def json_source(context: StreamContext) -> FileSource:
    """JsonDFSSource: JSON lines, read by the schema of a provider. OptionError without one."""

    def schema() -> Schema:
        found = _schema(context)
        if found is not None:
            return found
        raise OptionError(
            "JSON is read by a schema: please provide a schema provider",
            hint=f"--schemaprovider-class FilebasedSchemaProvider, with {keys.SOURCE_SCHEMA_FILE.key}",
            option="--schemaprovider-class",
        )

    schema()
    rejected = rejected_of(context.options, keys.SKIP_INVALID_JSON)

    def reader() -> Reader:
        found = schema()
        return lambda name, data: json_rows(name, plain(name, data), found, rejected)

    return replace(_source(context, reader), rejected=rejected or Rejected())


def csv_source(context: StreamContext) -> FileSource:
    """CsvDFSSource."""
    form, rejected = csv_form(context.options), rejected_of(context.options)

    def reader() -> Reader:
        found = _schema(context)
        return lambda name, data: csv_rows(name, plain(name, data), found, form, rejected)

    return replace(_source(context, reader), rejected=rejected or Rejected())


def _typed_source(format: str, context: StreamContext) -> FileSource:
    return _source(context, lambda: partial(typed_rows, format))


parquet_source = partial(_typed_source, "parquet")
orc_source = partial(_typed_source, "orc")
avro_source = partial(_typed_source, "avro")
"""ParquetDFSSource, ORCDFSSource and AvroDFSSource."""
