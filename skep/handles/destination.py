"""Where rows go: a table of a lake or at a path, which is found, or made once the columns of its rows are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from skep.base.specs import check_same
from skep.handles.by_path import create_at, open_table, removed_when_refused
from skep.handles.table import Table
from skep_format.errors import NoSuchTableError, NotATableError


class Tables(Protocol):
    """Tables by their names: what a lake provides."""

    def table(self, name: str) -> Table:
        """One that is there. NoSuchTableError for others."""
        ...

    @property
    def create_table(self) -> Callable[..., Table]:
        """Makes one, of a name, a schema and what describes it."""
        ...

    def drop_table(self, name: str) -> None:
        """Takes its entry out of the metastore."""
        ...


@dataclass(slots=True)
class Destination:
    """`described` is what a new table is made with, and in which one that is there must not differ."""

    name: str
    opened: Callable[[], Table]
    make: Callable[[pa.Schema], Table]
    described: Mapping[str, Any]
    unregister: Callable[[], object] | None = None
    missing: NoSuchTableError | NotATableError | None = None
    """Why there is no table, once it was looked for."""
    known: Table | None = None
    """The table, once it was found or made."""

    @classmethod
    def in_lake(cls, lake: Tables, name: str, described: Mapping[str, Any]) -> Destination:
        """The table of a lake with this name."""
        make = partial(lake.create_table, name, **described)
        return cls(name, partial(lake.table, name), make, described, partial(lake.drop_table, name))

    @classmethod
    def at_path(
        cls,
        path: str,
        options: Mapping[str, str],
        described: Mapping[str, Any],
        opened: Callable[[], Table] | None = None,
    ) -> Destination:
        """The table at a path, without a metastore unless `opened` opens it with one."""
        make = partial(create_at, path, options=options, **described)
        return cls(path, opened or partial(open_table, path, **options), make, described)

    def table(self) -> Table | None:
        """The table that is there. TableMismatchError where it differs from what is described."""
        if self.known is None:
            try:
                self.known = self.opened()
            except (NoSuchTableError, NotATableError) as error:
                self.missing = error
                return None
            check_same(self.known.hudi, **self.described)
        return self.known

    @contextmanager
    def for_rows(self, schema: pa.Schema) -> Iterator[Table]:
        """The table that the last call of `table` found; else one that is made for these rows, and removed again when
        they are refused."""
        if self.known is not None:
            yield self.known
            return
        made = self.make(schema)
        with removed_when_refused(made.hudi, self.unregister):
            yield made
        self.known = made
