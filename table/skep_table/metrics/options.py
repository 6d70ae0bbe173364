"""Options of metrics, by Hudi's names and with Hudi's defaults, and of spans."""

from __future__ import annotations

from enum import Enum
from typing import Final

from skep_format.options import Status, at_least, boolean, comma_list, one_of, option

_METRICS: Final = "hoodie.metrics."
_NO_TEXTS: Final[tuple[str, ...]] = ()


class ReporterKind(Enum):
    """Hudi's types of reporters."""

    GRAPHITE = "GRAPHITE"
    INMEMORY = "INMEMORY"
    JMX = "JMX"
    DATADOG = "DATADOG"
    CONSOLE = "CONSOLE"
    PROMETHEUS_PUSHGATEWAY = "PROMETHEUS_PUSHGATEWAY"
    PROMETHEUS = "PROMETHEUS"
    CLOUDWATCH = "CLOUDWATCH"
    M3 = "M3"
    SLF4J = "SLF4J"


class DatadogSite(Enum):
    """Where Datadog keeps what it gets; the value is the end of its host's name."""

    US = "US"
    EU = "EU"


TRACING = option(
    "skep.tracing",
    boolean,
    False,
    "Steps of writes, syncs and services are spans of OpenTelemetry, by the tracer provider of the process",
)
METRICS_ON = option(f"{_METRICS}on", boolean, False, "Commits and services are measured, and the values reported")
REPORTER = option(f"{_METRICS}reporter.type", one_of(ReporterKind), ReporterKind.GRAPHITE, "Where they are reported")
REPORTER_CLASS = option(f"{_METRICS}reporter.class", str, "", "A class of Java: refused where metrics are on")
NAME_PREFIX = option(
    f"{_METRICS}reporter.metricsname.prefix", str, "", "All names begin with it; else with the table's name"
)
LOCK_METRICS = option(
    f"{_METRICS}lock.enable", boolean, False, "Locks and checks of conflicts, too; as hoodie.metrics.on where not set"
)
LOG_BLOCKS = option(
    "hoodie.metricscompaction.log.blocks.on",  # no dot
    boolean,
    False,
    "Damaged and rolled back blocks that compactions met, too",
)
METADATA_METRICS = option(
    "hoodie.metadata.metrics.enable", boolean, False, "Sizes of the metadata table's partitions, too, after each commit"
)
PROMETHEUS_PORT = option(f"{_METRICS}prometheus.port", at_least(0), 9090, "Where they are scraped; 0: any port")

_GRAPHITE: Final = f"{_METRICS}graphite."
GRAPHITE_HOST = option(f"{_GRAPHITE}host", str, "localhost")
GRAPHITE_PORT = option(f"{_GRAPHITE}port", at_least(1), 4756)
GRAPHITE_PREFIX = option(f"{_GRAPHITE}metric.prefix", str, "", "Precedes all names")
GRAPHITE_PERIOD = option(f"{_GRAPHITE}report.period.seconds", at_least(1), 30, "How often values are sent")

_GATEWAY: Final = f"{_METRICS}pushgateway."
GATEWAY_HOST = option(f"{_GATEWAY}host", str, "localhost")
GATEWAY_PORT = option(f"{_GATEWAY}port", at_least(1), 9091, "With 443 the gateway is called by HTTPS")
GATEWAY_JOB = option(f"{_GATEWAY}job.name", str, "", "The job whose metrics they are")
GATEWAY_SUFFIX = option(f"{_GATEWAY}random.job.name.suffix", boolean, True, "A random number follows the job's name")
GATEWAY_DELETE = option(f"{_GATEWAY}delete.on.shutdown", boolean, True, "The gateway forgets them with the process")
LABELS = option(
    f"{_GATEWAY}report.labels", comma_list, _NO_TEXTS, "Labels of all values, name:value; of PROMETHEUS, too"
)
GATEWAY_PERIOD = option(f"{_GATEWAY}report.period.seconds", at_least(1), 30, "How often values are sent")

_DATADOG: Final = f"{_METRICS}datadog."
DATADOG_SITE = option(f"{_DATADOG}api.site", one_of(DatadogSite), None, "US or EU")
DATADOG_KEY = option(f"{_DATADOG}api.key", str, "", secret=True)
DATADOG_TIMEOUT = option(f"{_DATADOG}api.timeout.seconds", at_least(1), 3, "How long Datadog may take to reply")
DATADOG_PERIOD = option(f"{_DATADOG}report.period.seconds", at_least(1), 30, "How often values are sent")
DATADOG_PREFIX = option(f"{_DATADOG}metric.prefix", str, "", "Precedes all names")
DATADOG_HOST = option(f"{_DATADOG}metric.host", str, "", "The host that the values are of")
DATADOG_TAGS = option(f"{_DATADOG}metric.tags", comma_list, _NO_TEXTS, "Tags of all values")

for _name, _why in {
    "executor.enable": "tasks have no metrics of their own: the commit has the sums of all",
    "configs.properties": "there is one reporter, that of hoodie.metrics.reporter.type",
    f"{_DATADOG.removeprefix(_METRICS)}api.key.supplier": f"a class of Java; {DATADOG_KEY.key} has the key",
}.items():
    option(f"{_METRICS}{_name}", str, "", _why, status=Status.NO_EFFECT)
option(
    f"{_DATADOG}api.key.skip.validation",
    boolean,
    True,
    "a key that Datadog does not know is logged when values are sent",
    status=Status.NO_EFFECT,
)
for _kind, _names in {
    "jmx": ("host", "port"),
    "cloudwatch": ("namespace", "metric.prefix", "maxDatumsPerRequest", "report.period.seconds"),
    "m3": ("host", "port", "tags", "env", "service"),
}.items():
    for _name in _names:
        option(f"{_METRICS}{_kind}.{_name}", str, "", "there is no such reporter", status=Status.NO_EFFECT)
