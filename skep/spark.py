"""The Spark session behind a lake: the caller's, or one that is started when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkHolder:
    """Hands out one session. Only a session that was started here is stopped here."""

    def __init__(self, given: SparkSession | None = None, conf: Mapping[str, str] | None = None) -> None:
        if given is not None:
            from skep_writer.session import check_session

            check_session(given)
        self.given = given
        self._conf = dict(conf or {})
        self._made: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """EnvironmentMissingError when pyspark or a Java is missing or Spark does not start."""
        if self.given is not None:
            return self.given
        if self._made is None:
            from skep_catalog.java import find_java
            from skep_writer.session import active_spark, make_spark

            active = active_spark()
            if active is not None:
                return active
            conf = dict(self._conf)
            master = conf.pop("spark.master", None)
            self._made = make_spark({"JAVA_HOME": str(find_java().home)}, master=master, conf=conf)
        return self._made

    def stop(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.stop()
