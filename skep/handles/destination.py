"""Where rows go: a table of a lake or at a path, which is found, or made once the columns of its rows are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from skep.base.schemas import SchemaLike
from skep.base.specs import check_same, table_spec
from skep.handles.by_path import handle_of, open_table
from skep.handles.new_tables import is_left_over, new_table
from skep.handles.table import Table
from skep_format.errors import NoSuchTableError, NotATableError
from skep_format.options import Options
from skep_format.storage import Storage, open_storage
from skep_table.commit.create import TableSpec
from skep_table.write.planning.settings import TABLE_NAME, settings_among


@dataclass(slots=True)
class Destination:
    """`described` is what a new table is made with, and in which one that is there must not differ.

    `make` makes a table of a schema, or a frame as an example, for a block that writes its first rows; with settings
    that follow from these, it makes one with them besides its own.
    """

    name: str
    opened: Callable[[], Table]
    make: Callable[..., AbstractContextManager[Table]]
    described: Mapping[str, Any] = field(default_factory=dict)
    missing: NoSuchTableError | NotATableError | None = None
    """Why there is no table, once it was looked for."""
    known: Table | None = None
    """The table, once it was found or made."""

    @classmethod
    def at_path(
        cls,
        path: str,
        options: Mapping[str, str],
        described: Mapping[str, Any],
        opened: Callable[[], Table] | None = None,
    ) -> Destination:
        """The table at a path, without a metastore unless `opened` opens it with one."""
        make = partial(described_at, path, options=options, **described)
        return cls(path, opened or partial(open_table, path, **options), make, described)

    def table(self) -> Table | None:
        """The table that is there. TableMismatchError where it differs from what is described."""
        if self.known is None:
            try:
                found = self.opened()
            except (NoSuchTableError, NotATableError) as error:
                self.missing = error
                return None
            table = found.snapshot
            if is_left_over(table):
                self.missing = NotATableError(f"table {self.name} was never made to its end", table=self.name)
                return None
            check_same(table, **self.described)
            self.known = found
        return self.known

    @contextmanager
    def for_rows(self, schema: SchemaLike, settings: Mapping[str, str] | None = None) -> Iterator[Table]:
        """The table that the last call of `table` found; else one that is made for these rows, with these settings
        besides its own, and removed again when they are refused."""
        if self.known is not None:
            yield self.known
            return
        with self.make(schema) if not settings else self.make(schema, settings) as made:
            yield made
        self.known = made


@contextmanager
def made_at(storage: Storage, spec: TableSpec, options: Options, **how: Any) -> Iterator[Table]:
    """A new table without a metastore, see `new_table` and `handle_of`."""
    with new_table(storage, spec, options) as table:
        yield handle_of(table, **how)


def described_at(
    path: str, schema: SchemaLike, *, options: Mapping[str, object], **spec: Any
) -> AbstractContextManager[Table]:
    """A new table at `path`, without a metastore; `spec` is what `Lake.create_table` takes."""
    given = Options(options)
    given.check()
    Options(settings_among(spec.get("properties") or {})[1]).check()  # there is no entry that would have them
    storage = open_storage(path, given)
    name = given.value(TABLE_NAME) or storage.root.rstrip("/").rpartition("/")[2]
    return made_at(storage, table_spec(name, schema, options=given, **spec), given)
