"""Watches the public calls that tests make: an error that leaves one and is no SkepError fails the test, caught or not.

Not counted are errors that the test itself raises within the call (from a storage, a callback or a clock of its own), a
call that Python refuses by its signature, warnings made errors, and what is no Exception.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from skep_format.errors import SkepError

TESTS = str(Path(__file__).parent)
CLASSES = {
    "skep.handles.table": ("Table",),
    "skep.lake": ("Lake",),
    "skep.handles.lake_tables": ("LakeTables",),
    "skep.query.rows": ("Rows",),
    "skep.handles.frame_writer": ("FrameWriter",),
    "skep.handles.changes": ("MergeBuilder",),
    "skep.query.result": ("SqlResult", "SparkResult"),
    "skep.query.sail": ("SailResult",),
    "skep.handles.statements": ("StatementResult",),
    "skep.services.methods": ("ServiceMethods",),
    "skep.services.metadata": ("MetadataMethods",),
    "skep.services.repairs": ("RepairMethods",),
    "skep_table.query.result": ("ReadResult",),
    "skep_table.write.flow": ("TableWriter",),
}
WITH_OPERATORS = ("__getitem__", "__len__", "__contains__", "__iter__", "_repr_html_", "__repr__")

_within = threading.local()
_seen: list[str] = []
_watched: set[str] = set()


def watch(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, whose errors are looked at where no other watched call is around it."""

    @functools.wraps(call)
    def watched(*given: Any, **named: Any) -> Any:
        if getattr(_within, "call", False):
            return call(*given, **named)
        _within.call = True
        try:
            return call(*given, **named)
        except Exception as error:
            if not allowed(error):
                found = "".join(traceback.format_exception(error)[-4:])
                _seen.append(f"{call.__qualname__} raised {type(error).__name__}, which is no SkepError:\n{found}")
            raise
        finally:
            _within.call = False

    watched.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    if not hasattr(call, "__wrapped__"):
        del watched.__wrapped__  # tests look for it
    return watched


def allowed(error: Exception) -> bool:
    """Whether a public call may raise it."""
    if isinstance(error, (SkepError, Warning)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__]
    return not own or any(frame.filename.startswith(TESTS) for frame in own) or of_tests(error)


def of_tests(error: BaseException) -> bool:
    """Whether a module of the tests has the class of an error, or of one that caused it."""
    module = sys.modules.get(type(error).__module__)
    if str(getattr(module, "__file__", "")).startswith(TESTS):
        return True
    return error.__cause__ is not None and of_tests(error.__cause__)


def pytest_runtest_setup() -> None:
    for name in CLASSES.keys() - _watched:
        module = sys.modules.get(name)
        if module is None:
            continue
        _watched.add(name)
        for kind in (getattr(module, each) for each in CLASSES[name]):
            for attribute, value in list(vars(kind).items()):
                if inspect.isfunction(value) and (not attribute.startswith("_") or attribute in WITH_OPERATORS):
                    setattr(kind, attribute, watch(value))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    _seen.clear()
    outcome = yield
    if _seen:
        pytest.fail("\n".join(_seen), pytrace=False)
    return outcome
