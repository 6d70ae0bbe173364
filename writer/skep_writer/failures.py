"""What Spark failed with: the message, error class and place of the exception that matters among those around it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

_MOST_CAUSES: Final = 20
_WRAPPERS: Final = ("Exception thrown in awaitResult", "Job aborted", "[STAGE_FAILED]", "Writing job aborted")
_PLACE: Final = re.compile(r"(?:; |\()line (\d+),? pos (\d+)\)?|== SQL[^\n(]*\(line (\d+), position (\d+)\) ==")
_SHOWN: Final = re.compile(r"== SQL[^\n]*==\n([^\n]*)")  # the line of the query that the place is in
_REST: Final = re.compile(r";? line \d+ pos \d+|\(line \d+, pos \d+\)|;\n|\n\s*== SQL|\n\s*at |\s*SQLSTATE: \w+")
_SQL_STATE: Final = re.compile(r"SQLSTATE: (\w+)")
_ERROR_CLASS: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_OF_QUERIES: Final = ("0A", "21", "22", "42", "P0")  # classes of SQLSTATE by which the query or its values are at fault
_OF_VALUES: Final = re.compile(
    r"(?:Analysis|Parse|Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds|IllegalArgument|SparkRuntime"
    r"|DateTimeParse|UnsupportedOperation|SparkNoSuchElement)Exception$"
)
_OF_ANALYSIS: Final = ("AnalysisException", "ParseException")
_OUT_OF_MEMORY: Final = "OutOfMemoryError"
_EXIT_OUT_OF_MEMORY: Final = 3  # of a JVM with ExitOnOutOfMemoryError
_STOPPED: Final = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """`line` and `column` count from 1, in the text that Spark was given; `shown` is of that line. `is_of_query`: the
    query or its values are at fault, `is_of_analysis`: before rows were read. `is_ended`: the session can't be used any
    more."""

    message: str
    error_class: str | None = None
    sql_state: str | None = None
    line: int | None = None
    column: int | None = None
    shown: str | None = None
    is_of_query: bool = False
    is_of_analysis: bool = False
    is_out_of_memory: bool = False
    is_ended: bool = False


def spark_failure(error: Exception) -> SparkFailure | None:
    """None for an error that is none of Spark's."""
    code = exit_code()
    is_of_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
    if code is not None and (is_of_spark or isinstance(error, OSError | EOFError)):
        is_memory = code == _EXIT_OUT_OF_MEMORY
        why = "it ran out of memory" if is_memory else f"exit code {code}"
        return SparkFailure(f"Spark's process has ended: {why}", is_out_of_memory=is_memory, is_ended=True)
    if not is_of_spark:
        return None
    try:
        return _described(error)
    except Exception:  # Java, which would have to describe it, does not answer
        return SparkFailure(_first_line(str(error)) or type(error).__name__)


def exit_code() -> int | None:
    """Of the process of Spark's Java that this process has started; None while it runs, and where there is none."""
    module: Any = sys.modules.get("pyspark")
    gateway = None if module is None else module.SparkContext._gateway
    process = None if gateway is None else getattr(gateway, "proc", None)
    code: int | None = None if process is None else process.poll()
    return code


def has_ended() -> bool:
    """Whether Spark's process, which this one has started, runs no more."""
    return exit_code() is not None


def _described(error: Any) -> SparkFailure:
    thrown = list(_thrown(error))
    if not thrown:
        text = str(getattr(error, "desc", None) or error)
        return _of_text(text, type(error).__name__)
    texts = [str(each.getMessage() or each.toString()) for each in thrown]
    kinds = [str(each.getClass().getName()) for each in thrown]
    if any(kind.endswith(_OUT_OF_MEMORY) for kind in kinds) or any(f"{_OUT_OF_MEMORY}:" in text for text in texts):
        at = next((at for at, kind in enumerate(kinds) if kind.endswith(_OUT_OF_MEMORY)), None)
        detail = texts[at] if at is not None else texts[-1].partition(f"{_OUT_OF_MEMORY}:")[2]
        return SparkFailure(f"Spark ran out of memory: {_first_line(detail)}", is_out_of_memory=True)
    ended = next((text for text in texts if any(sign in text for sign in _STOPPED)), None)
    if ended is not None:
        return SparkFailure(f"the Spark session was stopped: {_first_line(ended)}", is_ended=True)
    named = [at for at, text in enumerate(texts) if _ERROR_CLASS.match(text.lstrip()) and not _is_wrapper(text)]
    at = named[0] if named else len(thrown) - 1
    found = _of_text(texts[at], kinds[at])
    state = found.sql_state or _state_of(thrown[at])
    is_of_query = found.is_of_query or (state or "").startswith(_OF_QUERIES)
    return replace(found, sql_state=state, is_of_query=is_of_query)


def _thrown(error: Any) -> Iterator[Any]:
    """Java's exceptions, from the outermost to the first that was thrown."""
    found = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_MOST_CAUSES):
        if found is None:
            return
        yield found
        found = found.getCause()


def _is_wrapper(text: str) -> bool:
    return text.lstrip().startswith(_WRAPPERS)


def _of_text(text: str, kind: str) -> SparkFailure:
    """What the message of an exception states beside its sentence."""
    whole = text.strip()
    if "Traceback (most recent call last)" in whole:  # of a function in Python: its own error is the last line
        whole = [line for line in whole.splitlines() if not _SQL_STATE.match(line.strip())][-1]  # from Spark 4 on one
    if kind == "java.lang.RuntimeException":  # raise_error and assert_true of Spark 3: the user's own text
        return SparkFailure(whole, is_of_query=True)
    named, state, place = _ERROR_CLASS.match(whole), _SQL_STATE.search(whole), _PLACE.search(whole)
    shown, end = _SHOWN.search(whole), _REST.search(whole)
    line = column = None
    if place is not None:
        line, column = int(place[1] or place[3]), int(place[2]) + 1 if place[2] else int(place[4])
    return SparkFailure(
        (whole if end is None else whole[: end.start()]).rstrip(" ;"),
        None if named is None else named[1],
        None if state is None else state[1],
        line,
        column,
        None if shown is None else shown[1],
        _OF_VALUES.search(kind) is not None,
        kind.endswith(_OF_ANALYSIS),
    )


def _state_of(thrown: Any) -> str | None:
    try:
        state = thrown.getSqlState()
    except Exception:  # none of Spark's own exceptions
        return None
    return None if state is None else str(state)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def function_names() -> list[str]:
    """The functions that the session knows; none where it does not answer."""
    module: Any = sys.modules.get("pyspark.sql")
    session = None if module is None else module.SparkSession.getActiveSession()
    return [] if session is None else [str(row[0]) for row in session.sql("SHOW FUNCTIONS").collect()]
