"""Hints of a query, which name its tables by their aliases."""

from __future__ import annotations

import pytest

from skep.lake import Lake
from skep_sql.parsing.parse import parse
from skep_sql.parsing.statements import Query

pytestmark = pytest.mark.metastore


def test_hints_name_tables_as_the_query_does(lake: Lake) -> None:
    lake.sql("create table t (id int) tblproperties (primaryKey = 'id')")
    statement = parse("select /*+ BROADCAST(t), MERGE(b) */ count(*) n from t join t b on t.id = b.id")
    assert isinstance(statement, Query)
    bound = lake._statements().session.bound(statement.tree)
    assert len(bound.relations) == 2
    assert "/*+ BROADCAST(t), MERGE(b) */" in bound.query.sql("spark")
