"""Errors of skep on their way from Spark's tasks to the driver: Spark hands over the text of a failed task only."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skep_format import errors
from skep_format.errors import SkepError, storage_failure

_MARK: Final = "skep error as JSON: "
_LINE: Final = re.compile(re.escape(_MARK) + r"(\{.*\})")

log = logging.getLogger("skep.spark")


class TaskError(Exception):
    """What a task fails with: its text holds an error of skep."""


@contextmanager
def carrying_errors() -> Iterator[None]:
    """In a task: errors of skep and of the system get a text from which the driver can make them again."""
    try:
        yield
    except (SkepError, OSError) as error:
        raise TaskError(_text(error if isinstance(error, SkepError) else storage_failure("a task", error))) from error


@contextmanager
def errors_of_tasks() -> Iterator[None]:
    """On the driver, around jobs: what a task failed with is raised as it was there, if it is an error of skep."""
    try:
        yield
    except SkepError:
        raise
    except Exception as error:
        found = behind(error)
        if found is None:
            raise
        if isinstance(found, SkepError):
            log.debug("a task failed", exc_info=error)
        raise found from None


def behind(error: BaseException) -> BaseException | None:
    """What an error of Spark came from: an interrupt, or the error of skep that a task failed with; else None."""
    return _interrupt_behind(error) or _error_in(str(error))


def _interrupt_behind(error: BaseException) -> BaseException | None:
    """An interrupt leaves the answer to a call unread, and the calls made on the way out fail for it in some way."""
    behind = error.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt | SystemExit):
        behind = behind.__context__
    return behind


def _text(error: SkepError) -> str:
    kind = next(each.__name__ for each in type(error).__mro__ if getattr(errors, each.__name__, None) is each)
    facts = {
        "kind": kind,
        "message": error.message,
        "hint": error.hint,
        "fields": error.fields,
        "errno": getattr(error, "errno", None),
    }
    return _MARK + json.dumps(facts, default=str)


def _error_in(text: str) -> SkepError | None:
    """The last one: a task's error is caused by those before it."""
    found = _LINE.findall(text)
    if not found:
        return None
    try:
        facts = json.loads(found[-1])
        error: SkepError = getattr(errors, facts["kind"])(facts["message"], hint=facts["hint"], **facts["fields"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if isinstance(error, OSError):
        error.errno = facts["errno"]
    return error
