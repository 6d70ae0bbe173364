"""Session settings for the length of a block, where several threads may share the session.

Blocks overlap in any order: while there are any, a number is the smallest that one of them wants (fewer rows in a batch
are always safe), and the session's own value comes back when the last has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class _Borrowed:
    """A setting while blocks are open: the session's own value, and what each block wants."""

    own: str | None
    wanted: list[str] = field(default_factory=list)

    @property
    def value(self) -> str:
        return min(self.wanted, key=int) if all(text.isdigit() for text in self.wanted) else self.wanted[-1]


_LOCK: Final = threading.Lock()
_borrowed: Final[dict[tuple[int, str], _Borrowed]] = {}


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings for a block."""
    session = _identity(spark)
    with _LOCK:
        for key, value in settings.items():
            borrowed = _borrowed.setdefault((session, key), _Borrowed(spark.conf.get(key, None)))
            borrowed.wanted.append(value)
            spark.conf.set(key, borrowed.value)
    try:
        yield
    finally:
        with _LOCK:
            for key, value in settings.items():
                borrowed = _borrowed[session, key]
                borrowed.wanted.remove(value)
                if borrowed.wanted:
                    spark.conf.set(key, borrowed.value)
                    continue
                del _borrowed[session, key]
                if borrowed.own is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, borrowed.own)


def own_setting(spark: SparkSession, key: str, default: str) -> str:
    """A setting as the session's owner has it, whatever blocks are open."""
    with _LOCK:
        borrowed = _borrowed.get((_identity(spark), key))
        value = borrowed.own if borrowed else spark.conf.get(key, None)
    return default if value is None else value


def _identity(spark: SparkSession) -> int:
    """The same for all Python objects that stand for one session of the JVM."""
    return int(spark._jsparkSession.hashCode())
