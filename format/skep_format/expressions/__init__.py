"""Expressions of Spark over one column, computed exactly as Spark does: what indexes over expressions are of."""

from skep_format.expressions.functions import IDENTITY, Expression, expression_of, known_functions

__all__ = ["IDENTITY", "Expression", "expression_of", "known_functions"]
