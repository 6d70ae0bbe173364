"""Functions and operators that the embedded engine answers as Spark does, by the kinds of their arguments.

`functions.tsv` is generated: each line was compared with Spark over values at which engines may part. Its columns: the
name or sign in Spark; for each argument the kinds, or constants, that may be there; the kind of the answer (`same`: the
first argument's); the name of the column in Spark's answer, `{}` for that of each argument, empty where it is another;
`both`, or `lenient` where it holds without ANSI's rules only; `scalar`, `aggregate` or `window`; `cast` where the
engine's answer has another type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Final

import pyarrow as pa

from skep_sql.spark_release import is_spark_3
from skep_sql.translation.constants import GivenArgument, usual_constant
from skep_sql.translation.spark_types import named_kind
from skep_sql.translation.values import pattern_of


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """A line of the table. `name` has a `{}` for each argument."""

    arguments: tuple[frozenset[str], ...]
    kind: str
    name: str | None
    is_cast: bool

    @property
    def type(self) -> pa.DataType | None:
        """The answer's type; None where it is that of the first argument."""
        return None if self.kind == SAME else named_kind(self.kind)


SAME: Final = "same"
SCALAR: Final = "scalar"
AGGREGATE: Final = "aggregate"
WINDOW: Final = "window"
_LENIENT: Final = "lenient"
_OF_ANY_COUNT: Final = ("concat", "concat_ws", "greatest", "least", "hash", "xxhash64")


def found_function(name: str, arguments: Sequence[GivenArgument], role: str = SCALAR) -> KnownFunction | None:
    """What answers a call alike; None where nothing is known to.

    Constants that were not compared are taken as usual ones of their kind that were: separators, numbers, formats.
    """
    found = _found(name, arguments, role)
    if found is not None:
        return found
    return _found(name, [usual_constant(name, at, each) for at, each in enumerate(arguments)], role)


def _found(name: str, arguments: Sequence[GivenArgument], role: str) -> KnownFunction | None:
    known = _known().get((role, name), ())
    most = max((len(each.arguments) for each in known), default=0)
    if name in _OF_ANY_COUNT and len(arguments) > most > 1:  # each of those behind is as the last of what was compared
        head = arguments[: most - 1]
        found = [_found(name, [*head, each], role) for each in arguments[most - 1 :]]
        kinds = {each and (each.kind, each.is_cast) for each in found}
        if len(kinds) != 1 or found[0] is None or found[0].name is None:
            return None
        return replace(found[0], name=pattern_of(name, len(arguments)))
    for each in known:
        if len(each.arguments) == len(arguments) and all(
            argument.fits(options) for argument, options in zip(arguments, each.arguments, strict=True)
        ):
            return each
    return None


def is_known(name: str, role: str) -> bool:
    """Whether the table has a function of this role."""
    return (role, name) in _known()


@cache
def _known() -> Mapping[tuple[str, str], Sequence[KnownFunction]]:
    found: dict[tuple[str, str], list[KnownFunction]] = {}
    for line in files(__package__).joinpath("functions.tsv").read_text(encoding="utf-8").splitlines():
        name, arguments, kind, shown, mode, role, *cast = line.split("\t")
        if mode == _LENIENT and not is_spark_3():
            continue
        options = tuple(frozenset(each.split("|")) for each in arguments.split(";") if arguments)
        found.setdefault((role, name), []).append(KnownFunction(options, kind, shown or None, cast == ["1"]))
    return found
