"""Expressions of Spark over one column, computed exactly as Spark does: what indexes over expressions are of."""

from skep_format.expressions.functions import IDENTITY as IDENTITY
from skep_format.expressions.functions import Expression as Expression
from skep_format.expressions.functions import expression_of as expression_of
