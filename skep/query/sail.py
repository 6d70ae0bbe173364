"""Sail in this process, for queries that mean the same to it as to Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from sqlglot import exp

from skep.base.shared_calls import Recent
from skep.query.reads import bytes_read, is_whole, reads, reads_needed, rows_needed, why_big
from skep.query.result import SqlResult, engine_line
from skep.query.rows import Rows
from skep.query.sail_server import SERVER, SailMissingError, run, started
from skep.query.shared import SHARED, SharedView, removed_at_exit
from skep.query.spark import held_by
from skep_format.errors import InputError, SkepError, UnsupportedError
from skep_format.schema.types import quoted
from skep_format.schema.untyped import untyped
from skep_sql.parsing.written import replaced, spark_text
from skep_sql.protocols import Relation
from skep_sql.translation.queries import DiffersError, EngineQuery, engine_query
from skep_sql.translation.spark_types import spark_type
from skep_table.write.input.given import row_input

if TYPE_CHECKING:
    from pyarrow import flight
    from pyspark.sql import DataFrame

T = TypeVar("T")


class QueryStoppedError(SkepError):
    """A query that another thread has ended, see `stoppable`."""


_LOOK_SECONDS: Final = 0.1
_ROWS_IN_A_BATCH: Final = 8192  # rows are divided among threads by these, and it looks between them whether to stop
_NUMBERS: Final = count(1)
_NOT_TO_MICROSECONDS: Final = re.compile(r"timestamp\[(?!us)")
_STOP: Final[ContextVar[Event | None]] = ContextVar("stop", default=None)


def stoppable(stop: Event) -> AbstractContextManager[None]:
    """Queries of Sail that begin in here end with QueryStoppedError once the event is set."""
    return held_by(_STOP, stop)


def _go_on(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise QueryStoppedError("the query was stopped")


class LeftToSpark(Exception):
    """A query that Sail may answer in another way than Spark, or can't answer; the message is the reason."""


@dataclass(frozen=True, slots=True)
class SailPlan:
    """A query for Sail, with the relations that it reads by their names in it.

    `needed` returns what it needs of them, which is less than shared views hold.
    """

    query: EngineQuery
    relations: Mapping[str, Relation]
    needed: Callable[[], Mapping[str, Relation]]
    most_rows: int | None = None  # of a relation

    def bytes_read(self, most: int | None = None) -> int:
        """About how many bytes of files are read; where it is certain that they are at most `most`, that many or less.

        Lists the tables, unless all views are shared.
        """
        shared = [each.bytes_read for each in self.relations.values() if isinstance(each, SharedView)]
        if most is not None and len(shared) == len(self.relations) and sum(shared) <= most:
            return sum(shared)
        return bytes_read(self.needed())

    def scans(self) -> list[str]:
        """How many files are read of each table."""
        return [str(rows.files_chosen()) for rows in reads(self.needed())]

    def explained(self) -> str:
        """Sail's plan. Reads nothing."""
        with _views(self.relations, most_rows=0), _sail_errors():
            return str(run(f"EXPLAIN {self.query.text}").column(0)[0]).strip()

    def checked(self) -> SailPlan:
        """This plan. LeftToSpark where Sail does not take it."""
        with _views(self.relations, most_rows=0), _sail_errors():
            _check(run(self.query.text).schema, self.query.schema)
        return self

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they come, in the types of Spark's answer. LeftToSpark, where Sail fails for one."""
        schema, stop = self.query.schema, _STOP.get()
        with _views(self.relations, self.most_rows, stop), ThreadPoolExecutor(1) as thread:

            def call(work: Callable[[], T], cancel: Callable[[], object]) -> T:
                # Arrow Flight does not look for signals in there: Ctrl-C is taken here, and ends what runs there.
                future = thread.submit(work)
                try:
                    while stop is not None and not future.done():
                        _go_on(stop)
                        wait([future], timeout=_LOOK_SECONDS)
                    with _sail_errors():
                        return future.result()
                except BaseException:
                    while not future.done():
                        cancel()
                        wait([future], timeout=_LOOK_SECONDS)
                    raise

            reader = call(lambda: started(self.query.text), lambda: None)
            with SERVER.reading(reader):
                _check(call(lambda: reader.schema, reader.cancel), schema)
                while (batch := call(partial(_next, reader), reader.cancel)) is not None:
                    if batch.num_rows:
                        with _sail_errors():
                            batch = _in_types_of(schema, batch)
                        yield batch

    def rows(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.batches(), self.query.schema)


class SailEngine:
    """Sail in this process, for queries that mean the same to it. It gets rows in files, and spills to disk."""

    @staticmethod
    def why_missing() -> str | None:
        """Why Sail can't be used in this process; None where it can."""
        return SERVER.why_missing()

    def planned(self, query: exp.Query, relations: Mapping[str, Relation]) -> SailPlan:
        """The query as Sail takes it. LeftToSpark, with the reason, where it may not mean the same."""
        shared = _shared(relations)
        others = {name: each for name, each in relations.items() if name not in shared}
        needed = {**(reads_needed(query, others, in_utc=True) if others else {}), **shared}
        held = (Rows, SharedView)
        inputs = {id(each): each if isinstance(each, held) else row_input(each) for each in needed.values()}
        names = {
            name.lower(): each.name if isinstance(each, SharedView) else f"rows_{next(_NUMBERS)}"
            for name, each in needed.items()
        }
        given = {names[name.lower()]: inputs[id(each)] for name, each in needed.items()}
        try:
            made = _translated(query, names, {name: each.schema for name, each in given.items()})
        except DiffersError as error:
            raise LeftToSpark(str(error)) from error
        except RecursionError as error:
            raise LeftToSpark("it is nested deeply") from error
        named = {name: each for name, each in given.items() if quoted(name) in made.text}
        return SailPlan(made, named, partial(reads_needed, query, relations, in_utc=True), rows_needed(query))

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        return self.planned(query, relations).checked().query.schema

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`. All rows of one relation are read without a query."""
        plan = self.planned(query, relations)
        relation = next(iter(plan.relations.values()), None) if is_whole(query) else None
        if not isinstance(relation, Rows) or relation.schema.names != plan.query.schema.names:
            return plan.rows()
        batches = (_in_types_of(plan.query.schema, batch) for batch in _stoppable(relation.to_batches()))
        return pa.Table.from_batches(batches, plan.query.schema)

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        """See `Engine`."""
        return self.rows(query, relations)

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        import numpy as np

        rows = self.rows(query, relations)
        return rows.append_column(column, pa.array(np.arange(rows.num_rows)))

    def held(self, relation: Relation) -> pa.Table | None:
        """See `Engine`."""
        if not isinstance(relation, Rows):
            return None
        return pa.Table.from_batches(_stoppable(relation.to_batches()), relation.schema)


class SailResult(SqlResult):
    """The answer of Sail; of Spark where more is read than `most_bytes`, or Sail fails for a value."""

    def __init__(
        self, plan: SailPlan, on_spark: Callable[[str], SqlResult], most_bytes: int | None, is_strict: bool
    ) -> None:
        self._plan = plan
        self._on_spark = on_spark
        self._most_bytes = most_bytes
        self._is_strict = is_strict
        self._moved: SqlResult | None = None
        self._size: int | None = None

    @property
    def columns(self) -> list[str]:
        return list(self._plan.query.schema.names)

    @property
    def engine(self) -> str:
        return "sail" if self.why is None else "spark"

    @property
    def why(self) -> str | None:
        """Why Spark answers; None where Sail does, as far as is known before it has run. Lists the tables."""
        return self._why_big() if self._moved is None else self._moved.why

    def _why_big(self) -> str | None:
        if self._most_bytes is None:
            return None
        if self._size is None:
            self._size = self._plan.bytes_read(self._most_bytes)
        return why_big(self._size, self._most_bytes)

    def _moved_to_spark(self, why: str) -> SqlResult:
        if self._moved is None:
            if self._is_strict:
                raise UnsupportedError(f"the query is left to Spark: {why}", hint="leave out the engine", found=why)
            self._moved = self._on_spark(why)
        return self._moved

    def _spark_if_big(self) -> SqlResult | None:
        if self._moved is None and (why := self._why_big()) is not None:
            return self._moved_to_spark(why)
        return self._moved

    def to_spark(self) -> DataFrame:
        frame: DataFrame = (self._moved or self._on_spark("a Spark frame is asked for")).to_spark()
        return frame

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a streaming Arrow reader. InputError where Sail fails after the first rows were read."""
        moved = self._spark_if_big()
        if moved is not None:
            return moved.to_reader()
        batches = self._plan.batches()
        try:
            first = next(batches, None)  # a failure here can still be mended
        except LeftToSpark as error:
            return self._moved_to_spark(str(error)).to_reader()
        return pa.RecordBatchReader.from_batches(self._plan.query.schema, _all(first, batches))

    def to_arrow(self) -> pa.Table:
        moved = self._spark_if_big()
        try:
            return self._plan.rows() if moved is None else moved.to_arrow()
        except LeftToSpark as error:
            return self._moved_to_spark(str(error)).to_arrow()

    def explain(self) -> str:
        moved = self._spark_if_big()
        if moved is not None:
            return moved.explain()
        engine = engine_line("sail", None)
        return "\n".join([engine, *self._plan.scans(), "", "== Sail ==", self._plan.explained()])


def _all(first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
    try:
        yield from others
    except LeftToSpark as error:
        raise InputError(f"a part of the rows is left to Spark: {error}", hint="name the engine spark") from error


def _translated(query: exp.Query, names: Mapping[str, str], schemas: Mapping[str, pa.Schema]) -> EngineQuery:
    """The query over views of these names. Its translation is kept, for those with the same text and columns."""
    text = spark_text(query)
    if _MARK in text:
        return engine_query(_renamed(query, names), schemas)
    marks = {name: f"{_MARK}{at}_" for at, name in enumerate(sorted(names))}
    for name, mark in marks.items():
        if _OF_ONE_QUERY.fullmatch(name):
            text = text.replace(name, mark)
    key = text, *(schemas[names[name]] for name in marks)
    found = _TRANSLATIONS.get(key)
    if found is None:
        marked = {marks[name]: schemas[names[name]] for name in names}
        found = _TRANSLATIONS.put(key, engine_query(_renamed(query, marks), marked))
    made = found.text
    for name, mark in marks.items():
        made = made.replace(quoted(mark), quoted(names[name]))
    return replace(found, text=made)


_OF_ONE_QUERY: Final = re.compile(r"skep_\d+_[0-9a-f]{8}")  # names of relations that no other query has
_MARK: Final = "skep_rows_"  # of names that are replaced in a translation
_TRANSLATIONS: Final[Recent[tuple[object, ...], EngineQuery]] = Recent(512)


def _renamed(query: exp.Query, names: Mapping[str, str]) -> exp.Query:
    """Over views of these names, which no query at the same time has. Columns name their tables as before."""
    if any(each.alias.lower() in names for each in query.find_all(exp.CTE)):
        raise LeftToSpark("a WITH that has the name of a table")
    made = query.copy()
    for node in [each for each in made.find_all(exp.Table) if not each.db and each.name.lower() in names]:
        alias = None if node.alias else node.name
        if alias is not None:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        node.set("this", exp.to_identifier(names[node.name.lower()]))
        replaced(node, alias=alias)
    return made


def _next(reader: flight.FlightStreamReader) -> pa.RecordBatch | None:
    try:
        return reader.read_chunk().data
    except StopIteration:
        return None


# -- rows for the server


def _shared(relations: Mapping[str, Relation]) -> dict[str, SharedView]:
    """The views that are kept of relations."""
    found = {}
    for name, relation in relations.items():
        if isinstance(relation, Rows):
            with _sail_errors():
                view = SHARED.view_of(relation, partial(_write, most_rows=None, stop=_STOP.get()))
            if view is not None:
                found[name] = view
    return found


@contextmanager
def _views(relations: Mapping[str, Relation], most_rows: int | None, stop: Event | None = None) -> Iterator[None]:
    """Each relation as a view of a file that has its rows, once for all names of it. Shared views are there."""
    relations = {name: each for name, each in relations.items() if not isinstance(each, SharedView)}
    if not relations:
        yield
        return
    with _folder() as folder:
        files: dict[int, Path] = {}
        try:
            for relation in relations.values():
                if id(relation) not in files:
                    file = files[id(relation)] = folder / f"{len(files)}.arrow"
                    _write(file, relation, most_rows, stop)
            for name, relation in relations.items():
                place = files[id(relation)].as_uri()  # a mere path may be a pattern
                with _sail_errors():
                    run(f"CREATE TEMPORARY VIEW {quoted(name)} USING arrow OPTIONS (path '{place}')")
            yield
        finally:
            for name in relations:
                with suppress(pa.ArrowException, SailMissingError):
                    run(f"DROP VIEW IF EXISTS {quoted(name)}")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the time of a query."""
    with _sail_errors():
        folder = Path(mkdtemp(prefix="skep-sql-"))
    remove = removed_at_exit(folder)
    try:
        yield folder
    finally:
        remove()


def _write(file: Path, relation: Relation, most_rows: int | None, stop: Event | None) -> None:
    """Writes the rows in types that Sail takes."""
    schema = pa.schema([field.with_type(spark_type(field.type) or field.type) for field in relation.schema])
    batches = () if most_rows == 0 else relation.to_batches() if isinstance(relation, Rows) else relation.batches()
    written = 0
    with _sail_errors():
        writer = pa.ipc.new_file(file, schema)
    try:
        for batch in _stoppable(batches, stop):
            converted = batch if batch.schema.equals(schema) else _in_types_of(schema, batch)
            with _sail_errors():
                writer.write_table(pa.Table.from_batches([converted]), _ROWS_IN_A_BATCH)
            written += batch.num_rows
            if most_rows is not None and written >= most_rows:
                break
    finally:
        with _sail_errors():
            writer.close()


def _stoppable(batches: Iterable[pa.RecordBatch], stop: Event | None = None) -> Iterator[pa.RecordBatch]:
    """Batches as they come, until the query is stopped."""
    stop = stop or _STOP.get()
    for batch in batches:
        _go_on(stop)
        yield batch


def _in_types_of(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_spark(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in Spark's type: times lose what is below a microsecond, as there."""
    if column.type == kind:
        return column
    return untyped(column, kind)


def _check(found: pa.Schema, wanted: pa.Schema) -> None:
    """LeftToSpark where the answer has other types than Spark's."""
    if len(found) != len(wanted):
        raise LeftToSpark(f"Sail answers {len(found)} columns, not {len(wanted)}")
    for own, field in zip(found, wanted, strict=True):
        if spark_type(own.type) != spark_type(field.type) or _NOT_TO_MICROSECONDS.search(str(own.type)):
            raise LeftToSpark(f"Sail answers {field.name} as {own.type}, not {field.type}")


@contextmanager
def _sail_errors() -> Iterator[None]:
    """What fails in Sail, or on the way to it, as the reason why a query is left to Spark."""
    try:
        yield
    except SailMissingError as error:
        raise LeftToSpark(str(error)) from error
    except (OSError, pa.ArrowException) as error:
        from pyarrow import flight

        if isinstance(error, flight.FlightUnavailableError):
            SERVER.lost()
        text = str(error).strip().partition("\n")[0].partition(". gRPC client debug context:")[0]
        raise LeftToSpark(f"Sail: {text.partition(', with message: ')[2] or text}") from error
