"""What a stream is made of: sources that fetch batches, what changes their rows, and the table that takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from skep_format.options import Options
from skep_format.schema.types import Schema
from skep_format.timeline.metadata import WriteOperation
from skep_format.versions import StreamerKeys
from skep_table.events import Events
from skep_table.table import HudiTable
from skep_table.write.result import WriteResult

if TYPE_CHECKING:
    import pyarrow as pa

SINCE: Final = "waiting_since"
"""Among what a source states that waits: the time of the oldest, in ms since 1970; None where nothing waits."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source has fetched: rows, and the checkpoint from which the next fetch goes on.

    `frame` is None where there is nothing new; `checkpoint` is None for a source that keeps none. `extra` is further
    state of the source, which is committed beside the checkpoint. `advances`: there are rows to commit although the
    checkpoint is the last one. `rejected` are records that can't be read,
    as `Rejected` has them.
    """

    frame: pa.Table | None
    checkpoint: str | None
    extra: Mapping[str, str] = field(default_factory=dict)
    advances: bool = False
    rejected: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """From where a source goes on: the last checkpoint (None: from the start), and what was committed beside it."""

    checkpoint: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Source(Protocol):
    """Rows that arrive over time."""

    def fetch(self, last: Position, limit: int) -> Batch:
        """The rows after `last`, about `limit` of them: bytes of files, events of a log."""


@runtime_checkable
class Follower(Protocol):
    """A source that is called after each commit."""

    def committed(self, checkpoint: str) -> None:
        """The rows up to this checkpoint are committed. Never raises."""


@runtime_checkable
class Successor(Protocol):
    """A source that goes on from where another program ended that wrote the table."""

    def first_checkpoint(self, table: HudiTable) -> str | None:
        """The checkpoint that is in the place of that program's; None where it has left none."""


@runtime_checkable
class Shaping(Protocol):
    """A source whose rows differ from the schemas of the provider."""

    def schemas_of_rows(self, given: SchemaProvider | None) -> SchemaProvider | None:
        """The schemas of its rows and of the target, in place of those `given`."""


class SchemaProvider(Protocol):
    """The schemas of a stream, which a source reads by and the target is written with."""

    def source_schema(self) -> Schema | None:
        """The columns of the source; None where its rows state them."""

    def target_schema(self) -> Schema | None:
        """The columns of the target, where they are stated; None: those of the source, or of transformed rows."""


@dataclass(frozen=True, slots=True)
class ReadSchemas:
    """Schemas that functions read, at each use: a stream that goes on follows them. See SchemaProvider."""

    source_schema: Callable[[], Schema | None]
    target_schema: Callable[[], Schema | None] = lambda: None

    @classmethod
    def known(cls, source: Schema | None, target: Schema | None = None) -> ReadSchemas:
        """Schemas that are there."""
        return cls(lambda: source, lambda: target)


class Transformer(Protocol):
    """Rows in, rows out."""

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows that take the place of `rows`."""


class BatchEngine(Protocol):
    """Answers queries in Spark's dialect."""

    def query(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """All rows of a query, whose tables are names of `relations`. InputError for one that does not fit them."""


class StreamTarget(Protocol):
    """The table that a stream writes. `skep` makes these."""

    def table(self) -> HudiTable | None:
        """A new snapshot of it; None while there is none."""

    def checkpoint_keys(self) -> StreamerKeys:
        """The keys of checkpoints in the commits that a write would make now."""

    def check(self, operation: WriteOperation, schema: Schema) -> None:
        """SchemaError where a write of rows with these columns would be refused; nothing where there is no table."""

    def write(
        self,
        operation: WriteOperation,
        frame: pa.Table,
        schema: Schema | None,
        extra: Mapping[str, str],
        batch_id: str | None = None,
    ) -> WriteResult:
        """One commit with `extra` in its metadata; makes the table, with `schema`, where there is none.

        A `batch_id` that a commit already has makes the call a no-op.
        """


class MetastoreCatalog(Protocol):
    """A metastore."""

    def schema(self, database: str, table: str) -> Schema:
        """The columns of a table as it is now. NoSuchTableError where there is none."""


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What sources, providers and transformers are made with."""

    options: Options
    engine: BatchEngine
    target: StreamTarget
    schemas: SchemaProvider | None = None
    events: Events = field(default_factory=Events)
    catalog: MetastoreCatalog | None = None


class ErrorTable(Protocol):
    """Where rejected records are kept. `skep` makes these."""

    def write(self, rejected: pa.Table, batch_id: str) -> None:
        """One commit of the records; a batch that was written before is not written again."""
