"""Where metrics go, as Hudi's reporters send them: each is made of options, and is the same for the same ones."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import Options, of_option
from skep_table.metrics import options as of
from skep_table.metrics.endpoints import HOST, Endpoint, acquire, needs_prometheus, release
from skep_table.metrics.options import DatadogSite, ReporterKind

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LOCAL_PERIOD: Final = 30
_TIMEOUT_SECONDS: Final = 5.0
_DATADOG_NEEDS: Final = "metrics for DATADOG need the option"
_DATADOG_URL: Final = "https://app.datadoghq.{domain}"
_DOMAINS: Final = {DatadogSite.US: "com", DatadogSite.EU: "eu"}

log = logging.getLogger("skep.metrics")


@dataclass(frozen=True, slots=True)
class ReportedValues:
    """All values of a reporter at one moment, by their whole names."""

    gauges: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reporter:
    """Sends values, whenever they change or each `period_seconds`; this one sends none, as `metrics()` has them.

    `address` is for messages. What is raised is logged by the caller.
    """

    address: str
    period_seconds: float | None = None

    def send(self, values: ReportedValues) -> None:
        """Sends all values."""

    def close(self) -> None:
        """After the last values."""


class Console(Reporter):
    """Lines on stderr: stdout of a command is often the input of another one."""

    def send(self, values: ReportedValues) -> None:
        """Gauges, then counters, as Dropwizard's console reporter groups them."""
        lines = []
        for title, part in (("-- Gauges", values.gauges), ("-- Counters", values.counts)):
            if part:
                lines += [title, *(f"{name} = {value}" for name, value in sorted(part.items()))]
        sys.stderr.write("".join(f"{line}\n" for line in lines))


class Logged(Reporter):
    """Lines of the logger `skep.metrics`, as Dropwizard writes them to SLF4J."""

    def send(self, values: ReportedValues) -> None:
        for name, value in sorted(values.gauges.items()):
            log.info("type=GAUGE, name=%s, value=%d", name, value)
        for name, value in sorted(values.counts.items()):
            log.info("type=COUNTER, name=%s, count=%d", name, value)


@dataclass(frozen=True, kw_only=True)
class Graphite(Reporter):
    """Lines of text over TCP; the name of a counter ends in `.count`, as Dropwizard has it."""

    host: str = of_option(of.GRAPHITE_HOST)
    port: int = of_option(of.GRAPHITE_PORT)
    prefix: str = of_option(of.GRAPHITE_PREFIX)
    period_seconds: float | None = of_option(of.GRAPHITE_PERIOD)

    def send(self, values: ReportedValues) -> None:
        now, prefix = int(time.time()), f"{self.prefix}." if self.prefix else ""
        named = {**values.gauges, **{f"{name}.count": value for name, value in values.counts.items()}}
        texts = {re.sub(r"\s+", "-", (prefix + name).strip()): value for name, value in named.items()}
        lines = [f"{text} {value} {now}\n" for text, value in texts.items()]
        with socket.create_connection((self.host, self.port), timeout=_TIMEOUT_SECONDS) as connection:
            connection.sendall("".join(lines).encode())


@dataclass(frozen=True, kw_only=True)
class Datadog(Reporter):
    """Gauges by Datadog's API of series; as with Hudi, no counters."""

    key: str = of_option(of.DATADOG_KEY)
    prefix: str = of_option(of.DATADOG_PREFIX)
    host: str = of_option(of.DATADOG_HOST)
    tags: tuple[str, ...] = of_option(of.DATADOG_TAGS)
    timeout_seconds: int = of_option(of.DATADOG_TIMEOUT)
    period_seconds: float | None = of_option(of.DATADOG_PERIOD)

    def send(self, values: ReportedValues) -> None:
        now = int(time.time())
        host = {"host": self.host} if self.host else {}
        series = [
            {"metric": f"{self.prefix}.{name}", "points": [[now, value]], **host, "tags": list(self.tags)}
            for name, value in values.gauges.items()
        ]
        headers = {"DD-API-KEY": self.key, "Content-Type": "application/json"}
        request = urllib.request.Request(self.address, json.dumps({"series": series}).encode(), headers)
        with urllib.request.urlopen(request, timeout=self.timeout_seconds) as answer:
            answer.read()


class _Shown:
    """A collector of one reporter's values, under the names that Prometheus takes."""

    def __init__(self, labels: Mapping[str, str], registry: CollectorRegistry, values: ReportedValues) -> None:
        self._labels = labels
        self.values = values
        registry.register(self)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        names, texts = list(self._labels), list(self._labels.values())
        for name, value in {**self.values.gauges, **self.values.counts}.items():
            # as Prometheus' library for Java makes names of Dropwizard's
            sanitized = re.sub(r"[^a-zA-Z0-9_:]", "_", re.sub(r"^[^a-zA-Z_:]", "_", name))
            family = GaugeMetricFamily(sanitized, name, labels=names)
            family.add_metric(texts, value)
            yield family


@dataclass(frozen=True, kw_only=True)
class Prometheus(Reporter):
    """Values to be scraped at an endpoint that a process shares."""

    port: int
    labels: tuple[tuple[str, str], ...]
    _used: list[tuple[Endpoint, _Shown]] = field(default_factory=list, compare=False, repr=False)

    def send(self, values: ReportedValues) -> None:
        if not self._used:
            endpoint = acquire(self.port)
            self._used.append((endpoint, _Shown(dict(self.labels), endpoint.registry, values)))
        self._used[0][1].values = values

    def close(self) -> None:
        for endpoint, shown in self._used:
            endpoint.registry.unregister(shown)
            release(endpoint)
        self._used.clear()


@dataclass(frozen=True, kw_only=True)
class Pushgateway(Reporter):
    """Values that are sent to Prometheus' gateway, beside those of others."""

    labels: tuple[tuple[str, str], ...]
    job: str = of_option(of.GATEWAY_JOB)
    has_suffix: bool = of_option(of.GATEWAY_SUFFIX)
    deletes: bool = of_option(of.GATEWAY_DELETE)
    period_seconds: float | None = of_option(of.GATEWAY_PERIOD)
    _suffix: str = field(default_factory=lambda: str(random.getrandbits(63)), compare=False, repr=False)

    @property
    def _job(self) -> str:
        return self.job + self._suffix if self.has_suffix else self.job

    def send(self, values: ReportedValues) -> None:
        from prometheus_client import CollectorRegistry, pushadd_to_gateway

        registry = CollectorRegistry()
        _Shown({}, registry, values)
        pushadd_to_gateway(self.address, self._job, registry, dict(self.labels), timeout=_TIMEOUT_SECONDS)

    def close(self) -> None:
        from prometheus_client import delete_from_gateway

        if self.deletes:
            delete_from_gateway(self.address, self._job, dict(self.labels), timeout=_TIMEOUT_SECONDS)


def reporter_of(options: Options) -> Reporter:
    """The reporter that options name. UnsupportedError for one that is not built, OptionError where its options lack
    something, EnvironmentMissingError where a package does."""
    if options.value(of.REPORTER_CLASS):
        raise _refused(of.REPORTER_CLASS.key, options.value(of.REPORTER_CLASS))
    kind = options.value(of.REPORTER)
    make = _MADE.get(kind)
    if make is None:
        raise _refused(of.REPORTER.key, kind.value)
    return make(options)


def _refused(key: str, value: str) -> UnsupportedError:
    built = ", ".join(kind.value for kind in _MADE)
    return UnsupportedError(
        f"option {key}: {value} is not built",
        hint=f"{of.REPORTER.key} is one of {built}, or {of.METRICS_ON.key}=false",
        option=key,
        found=value,
        expected=built,
    )


def _graphite(options: Options) -> Graphite:
    return options.read(Graphite, address=f"{options.value(of.GRAPHITE_HOST)}:{options.value(of.GRAPHITE_PORT)}")


def _datadog(options: Options) -> Datadog:
    site = options.needed(of.DATADOG_SITE, _DATADOG_NEEDS)
    for each in (of.DATADOG_KEY, of.DATADOG_PREFIX):
        options.needed(each, _DATADOG_NEEDS)
    assert site is not None
    return options.read(Datadog, address=f"{_DATADOG_URL.format(domain=_DOMAINS[site])}/api/v1/series")


def _prometheus(options: Options) -> Prometheus:
    needs_prometheus()
    port = options.value(of.PROMETHEUS_PORT)
    return Prometheus(address=f"{HOST}:{port}", port=port, labels=_labels(options))


def _pushgateway(options: Options) -> Pushgateway:
    needs_prometheus()
    host, port = options.value(of.GATEWAY_HOST), options.value(of.GATEWAY_PORT)
    address = f"{'https' if port == 443 else 'http'}://{host}:{port}"
    return options.read(Pushgateway, address=address, labels=_labels(options))


def _labels(options: Options) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for text in options.value(of.LABELS):
        name, _, value = text.partition(":")
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or name in found:
            raise OptionError(
                f"option {of.LABELS.key}: {text!r} is not name:value, with a name of its own",
                option=of.LABELS.key,
                found=text,
                expected="name:value, …",
            )
        found[name] = value
    return tuple(found.items())


_MADE: dict[ReporterKind, Callable[[Options], Reporter]] = {
    ReporterKind.PROMETHEUS: _prometheus,
    ReporterKind.PROMETHEUS_PUSHGATEWAY: _pushgateway,
    ReporterKind.GRAPHITE: _graphite,
    ReporterKind.DATADOG: _datadog,
    ReporterKind.CONSOLE: lambda _: Console(address="stderr", period_seconds=_LOCAL_PERIOD),
    ReporterKind.INMEMORY: lambda _: Reporter(address="memory"),
    ReporterKind.SLF4J: lambda _: Logged(address="logger skep.metrics", period_seconds=_LOCAL_PERIOD),
}
