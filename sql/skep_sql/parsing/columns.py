"""The columns that a query can mean, as far as its text shows it."""

from __future__ import annotations

from sqlglot import exp

from skep_sql.parsing.written import names_written


def names_used(tree: exp.Query) -> frozenset[str] | None:
    """All names that the query mentions, in lower case; None when it may mean columns that it does not name."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    if tree.find(exp.Pivot) or any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    return frozenset(identifier.name.lower() for identifier in tree.find_all(exp.Identifier)) | names_written(tree)
