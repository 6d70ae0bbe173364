"""What one client has: the tables of a catalog, an engine for queries, settings and temporary views."""

from __future__ import annotations

from sqlglot import exp

from skep_sql.bind import Bound, NamedQuery, Scope, bind
from skep_sql.functions import FUNCTIONS
from skep_sql.parsing.parse import parse
from skep_sql.parsing.statements import Statement
from skep_sql.protocols import QueryEngine, TableCatalog
from skep_sql.settings import SessionSettings


class Session:
    """Settings and temporary views of one client. Not for use by several threads at once."""

    def __init__(self, catalog: TableCatalog, engine: QueryEngine, settings: SessionSettings | None = None) -> None:
        self.catalog = catalog
        self.engine = engine
        self.settings = settings or SessionSettings()
        self.views: dict[str, NamedQuery] = {}
        self.user: str | None = None

    @property
    def scope(self) -> Scope:
        """What names mean in this session."""
        of_views = {name: found for view in self.views.values() for name, found in view.functions.items()}
        return Scope(self.catalog, self.views, {**FUNCTIONS, **of_views}, user=self.user)

    def parse(self, text: str) -> Statement:
        """See `skep_sql.parsing.parse.parse`."""
        return parse(text)

    def bound(self, query: exp.Query) -> Bound:
        """The query with its tables looked up."""
        return bind(query, self.scope)
