"""Hudi's keys of metrics, of which streams honour those of Prometheus, and how often their lag is measured."""

from __future__ import annotations

from typing import Final

from skep_format.options import Status, at_least, boolean, option

LAG_SECONDS = option(
    "skep.stream.lag.seconds",
    at_least(0),
    15,
    "Of a stream with metrics: what waits in its source is listed so often, beside the rounds; 0: never",
)
_METRICS: Final = "hoodie.metrics."
_ONLY_STREAMS: Final = (
    "only the command skep stream serves metrics, where hoodie.metrics.on is true and the reporter is PROMETHEUS;"
    " skep.stream_metrics has listeners for Python"
)
METRICS_ON = option(f"{_METRICS}on", boolean, False, _ONLY_STREAMS, status=Status.NO_EFFECT)
METRICS_REPORTER = option(f"{_METRICS}reporter.type", str, "GRAPHITE", _ONLY_STREAMS, status=Status.NO_EFFECT)
METRICS_PORT = option(f"{_METRICS}prometheus.port", at_least(0), 9090, _ONLY_STREAMS, status=Status.NO_EFFECT)
for _name in (
    *("reporter.class", "reporter.metricsname.prefix", "configs.properties"),
    *("executor.enable", "lock.enable"),
    *(f"graphite.{each}" for each in ("host", "port", "metric.prefix", "report.period.seconds")),
    *(f"jmx.{each}" for each in ("host", "port")),
    *(f"datadog.{each}" for each in ("api.site", "api.key", "api.key.skip.validation", "api.key.supplier")),
    *(f"datadog.{each}" for each in ("api.timeout.seconds", "report.period.seconds")),
    *(f"datadog.metric.{each}" for each in ("prefix", "host", "tags")),
    *(f"pushgateway.{each}" for each in ("host", "port", "job.name", "random.job.name.suffix")),
    *(f"pushgateway.{each}" for each in ("delete.on.shutdown", "report.labels", "report.period.seconds")),
    *(f"cloudwatch.{each}" for each in ("namespace", "metric.prefix", "maxDatumsPerRequest", "report.period.seconds")),
    *(f"m3.{each}" for each in ("host", "port", "tags", "env", "service")),
):
    option(f"{_METRICS}{_name}", str, "", _ONLY_STREAMS, status=Status.NO_EFFECT)
option("hoodie.metricscompaction.log.blocks.on", boolean, False, _ONLY_STREAMS, status=Status.NO_EFFECT)  # no dot
