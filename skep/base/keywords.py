"""Keywords of the calls that take options: one without a dot is a parameter of the call, or misspelt."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

from skep_format.errors import KeywordError
from skep_format.nearest import did_you_mean
from skep_format.options import Options

F = TypeVar("F", bound=Callable[..., Any])


def takes_options(call: F) -> F:
    """A call whose `**options` are Hudi's and skep's, all of which have a dot: others are refused before it begins.

    KeywordError, a TypeError, which names the nearest keyword. Options are checked against those that are registered.
    """
    named = [
        name
        for name, parameter in signature(call).parameters.items()
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY) and name != "self"
    ]

    @wraps(call)
    def checked(*given: Any, **keywords: Any) -> Any:
        options = {name: value for name, value in keywords.items() if name not in named}
        for name in options:
            if "." not in name:
                raise _unknown(call, name, named)
        Options(options).check()
        return call(*given, **keywords)

    checked.checks_options = True  # type: ignore[attr-defined]
    return cast("F", checked)


def _unknown(call: Callable[..., Any], name: str, named: list[str]) -> KeywordError:
    meant = did_you_mean(name, named)
    return KeywordError(
        f"{call.__name__}() takes no keyword {name}{f'; {meant}' if meant else ''}",
        hint='it takes options by their whole names, **{"hoodie.…": …}',
        option=name,
        expected=", ".join(named) or None,
    )
