"""A lake: the tables of one metastore below one warehouse, with SQL, pipelines and pulls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from skep.base.arguments import checked as with_checks
from skep.base.arguments import checks_arguments
from skep.handles.lake_tables import BATCHED, LakeTables
from skep.query.spark import SparkHolder
from skep_catalog.addresses import catalog_at
from skep_catalog.client import Metastore
from skep_format.options import Options
from skep_table.events import Events, Listener
from skep_table.metrics import traced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from skep.base.config import Settings
    from skep.flows.pipelines import Pipeline
    from skep.flows.pulls import Pulled
    from skep.handles.statements import LakeSession, StatementResult
    from skep.query.result import SqlResult
    from skep_catalog.embedded import EmbeddedWhenNeeded


@with_checks
def connect(
    uri: str | None = None,
    warehouse: str | None = None,
    spark: SparkSession | None = None,
    *,
    database: str | None = None,
    options: Mapping[str, object] | None = None,
    spark_conf: Mapping[str, str] | None = None,
    profile: str | None = None,
    listener: Listener | None = None,
) -> Lake:
    """The lake behind a metastore.

    Without `uri` the embedded metastore of `warehouse` (else ./skep-warehouse) is started or joined, and stopped by
    `close` when nobody else uses it. `spark` is used as it is and never stopped; without it one is started when first
    needed, with `spark_conf`. What is not given comes from the settings (see the page on configuration). `listener`
    receives the events of writes and syncs.
    """
    from skep.base.config import load

    found = load({"metastore": uri, "warehouse": warehouse, "database": database}, profile=profile).settings
    settings = replace(found, spark={**found.spark, **(spark_conf or {})})
    lake = unconnected(settings, options, spark, Events(*([listener] if listener else [])))
    _ = lake.metastore.uri  # starts or joins the embedded one: where that fails, it does so here
    return lake


def unconnected(
    settings: Settings,
    options: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
    events: Events | None = None,
) -> Lake:
    """The lake of these settings and options. Its embedded metastore, where it has one, starts when it is needed."""
    from skep.base.config import metastore_of_syncs

    merged = Options(settings.options).with_values(options or {})
    address = settings.metastore or metastore_of_syncs(merged)
    events = events or Events()
    embedded = None
    if address is None:
        from skep_catalog.embedded import EmbeddedWhenNeeded

        embedded = EmbeddedWhenNeeded(settings.warehouse, partial(events.step, "metastore.start"))
    return lake_of(replace(settings, metastore=address, options=merged), embedded, spark, events)


def lake_of(
    settings: Settings,
    embedded: EmbeddedWhenNeeded | None,
    spark: SparkSession | None = None,
    events: Events | None = None,
) -> Lake:
    """The lake of these settings, in the embedded metastore where there is one."""
    options = Options(settings.options)
    options.check()
    events = traced(events or Events(), options)
    holder = SparkHolder(spark, settings.spark, events)
    if embedded is None:
        catalog = catalog_at(settings.metastore or "", options)
        return Lake(catalog, settings.warehouse, holder, settings.database, options, events)
    # How other metastores are spoken to (TLS, Kerberos) does not concern the embedded one.
    client = Metastore.connect(None, revived=embedded.address, kept=embedded.kept)
    lake = Lake(client, str(embedded.warehouse), holder, settings.database, options, events)
    lake._embedded = embedded
    return lake


@checks_arguments
class Lake(LakeTables):
    """Tables by name, and what is done with them. A context manager; `close` stops what `connect` started, and only
    that."""

    _sql: LakeSession | None = None

    def pipeline(self, source: str, target: str, transform: object = None, **described: Any) -> Pipeline:
        """What changes in one table, through a query or functions, into another; see `PipelineSpec` for the rest.

        The tables are names, or paths: `lake.pipeline("raw", "clean", "SELECT id, trim(city) AS city FROM <SRC>")`.
        """
        from skep.flows.pipelines import Pipeline, PipelineSpec

        self._ensure_open()
        spec = PipelineSpec(source=source, target=target, transform=transform, **described)  # type: ignore[arg-type]
        return Pipeline(spec, self)

    def pull(self, **described: Any) -> Pulled | None:
        """Writes the next commits of a table, by a query, as Avro files; `described` are the fields of `Pull`."""
        from skep.flows.pulls import Pull, pull

        self._ensure_open()
        return pull(self, Pull(**described))

    def sql(
        self,
        text: str,
        args: Mapping[str, object] | Sequence[object] | None = None,
        *,
        engine: str = "auto",
        **parameters: object,
    ) -> SqlResult | StatementResult:
        """Carries out one SQL statement in Spark's dialect; see the page on SQL for those there are.

        `parameters` are values for `:name` in it, `args` the same as a mapping, or a sequence of those of `?`.

        Queries are run when they are asked for rows: by `engine` auto, in this process (Sail) where they are known to
        mean the same as to Spark, else by Spark. `sail` refuses other queries, `spark` runs all by Spark. All other
        statements take effect now, and their result holds rows and counts. Settings (SET), temporary views and the
        database of USE last as long as the lake.
        """
        self._ensure_open()
        return self._statements().run(text, engine, args, parameters)

    def _statements(self) -> LakeSession:
        if self._sql is None:
            from skep.handles.statements import LakeSession

            self._sql = LakeSession(self)
        return self._sql

    def for_client(self) -> Self:
        """The same lake with an own current database and own SQL settings. It ends with this one: close only this.

        Its writes are batched, unless an option of the lake excludes it.
        """
        other = copy(self)
        other._sql = other._embedded = None
        other._batches_writes = self._batches_writes or not self.options.is_set(BATCHED)
        return other
