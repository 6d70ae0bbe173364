"""Arguments of public calls, looked at before anything happens: an InputError names call, argument and type.

Parameters with the annotations below are checked by these; others are checked by the calls themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, isfunction, signature
from operator import index
from typing import Any, Final, TypeVar, cast

from skep_format.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)
_ABSENT: Final = object()
_HALF: Final = re.compile("[\ud800-\udfff]")  # of a character, which no file can hold


def checks_arguments(kind: K) -> K:
    """A class whose public methods check their arguments."""
    for name, call in list(vars(kind).items()):
        if isfunction(call) and not name.startswith("_"):
            setattr(kind, name, checked(call))
    return kind


def checked(call: F) -> F:
    """A function that checks its arguments."""
    asked = [
        (at, parameter, parameter.annotation.removesuffix(" | None"))
        for at, parameter in enumerate(signature(call).parameters.values())
        if parameter.kind is not Parameter.VAR_KEYWORD and isinstance(parameter.annotation, str)
    ]
    known = [(at, parameter, *_KINDS[kind]) for at, parameter, kind in asked if kind in _KINDS]
    if not known:
        return call

    @wraps(call)
    def with_checks(*given: Any, **named: Any) -> Any:
        for at, parameter, fits, expected in known:
            if parameter.kind is Parameter.VAR_POSITIONAL:
                values: Iterable[object] = given[at:]
            elif at < len(given) and parameter.kind is not Parameter.KEYWORD_ONLY:
                values = (given[at],)
            else:
                values = (named.get(parameter.name, _ABSENT),)
            for value in values:
                optional = value is None and parameter.annotation.endswith(" | None")
                if value is not _ABSENT and not optional and not fits(value):
                    raise InputError(
                        f"{call.__name__}: {parameter.name} is {expected}, not {value!r}",
                        option=parameter.name,
                        found=type(value).__name__,
                        expected=expected,
                    )
        return call(*given, **named)

    return cast("F", with_checks)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or not _HALF.search(value))


def _is_whole(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return -(2**63) <= index(cast("int", value)) < 2**63
    except TypeError:
        return False


def _are_texts(value: object) -> bool:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return _is_text(value)
    return not isinstance(value, (list, tuple, set, frozenset)) or all(map(_is_text, value))


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) and _is_text(os.fspath(value))


_KINDS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "str": (_is_text, "a text"),
    "int": (_is_whole, "a whole number"),
    "Text": (_are_texts, "a text, or several"),
    "Version": (lambda value: _is_whole(value) or isinstance(value, str), "a table version, or newest"),
    "str | os.PathLike[str]": (_is_path, "a path"),
    "Mapping[str, object]": (_is_mapping, "a mapping of texts"),
    "Mapping[str, str]": (_is_mapping, "a mapping of texts"),
}
