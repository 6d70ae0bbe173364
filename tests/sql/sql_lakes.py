"""A lake that can't start Spark, for statements that must not need it."""

from __future__ import annotations

from typing import Any

from skep.query.spark import SparkHolder


class NeedsSession(Exception):
    """A session would have been started."""


class NoSession(SparkHolder):
    """Where Spark must not be needed."""

    @property
    def session(self) -> Any:
        """NeedsSession."""
        raise NeedsSession
