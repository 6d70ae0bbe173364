"""What one client has: the tables of a catalog, an engine for queries, settings and temporary views."""

from __future__ import annotations

from sqlglot import exp

from skep_sql.bind import Bound, Scope, View, bind
from skep_sql.functions import FUNCTIONS
from skep_sql.parse import parse
from skep_sql.protocols import Catalog, Engine
from skep_sql.settings import Settings
from skep_sql.statements import Statement


class Session:
    """Settings and temporary views of one client. Not for use by several threads at once."""

    def __init__(self, catalog: Catalog, engine: Engine, settings: Settings | None = None) -> None:
        self.catalog = catalog
        self.engine = engine
        self.settings = settings or Settings()
        self.views: dict[str, View] = {}

    @property
    def scope(self) -> Scope:
        """What names mean in this session."""
        return Scope(self.catalog, self.views, FUNCTIONS)

    def parse(self, text: str) -> Statement:
        """See `skep_sql.parse.parse`."""
        return parse(text)

    def bound(self, query: exp.Query) -> Bound:
        """The query with its tables looked up."""
        return bind(query, self.scope)
