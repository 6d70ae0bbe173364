"""The events of a table whose options have them measured, or made spans."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from skep_format.options import REGISTRY, Options
from skep_table.events import NO_EVENTS, Event, Events, Listener
from skep_table.metrics.options import LOCK_METRICS, METRICS_ON, NAME_PREFIX, TRACING


class ObservedEvents(Events):
    """Events of others with further listeners, which only this table has; `listen` adds one to those of the others."""

    def __init__(self, base: Events, *listeners: Listener) -> None:
        super().__init__(*listeners)
        self.base = base

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self.base.listen(listener)

    def send(self, event: Event) -> None:
        self.base.send(event)
        self.deliver(event)


def observed(events: Events, options: Options, name: str) -> Events:
    """The events of the table `name`, whatever these options were before. Raises what `reporter_of` and `Spans` do."""
    base = events.base if isinstance(events, ObservedEvents) else events
    listeners: list[Listener] = []
    if options.value(METRICS_ON):
        listeners.append(_measuring(options, name))
    if options.value(TRACING) and not base.has(spans()):
        listeners.append(spans())
    return ObservedEvents(base, *listeners) if listeners else base


def _measuring(options: Options, name: str) -> Listener:
    from skep_table.metrics.channels import channel_of
    from skep_table.metrics.reporters import reporter_of
    from skep_table.metrics.values import measured

    reporter = reporter_of(options)
    prefix = (options.value(NAME_PREFIX) or name).replace(".", "_")  # as Hudi: a dot divides names
    of_locks = options.value(LOCK_METRICS) if options.is_set(LOCK_METRICS) else True

    def listen(event: Event) -> None:
        found = measured(event)
        if found is None or (found.of_locks and not of_locks):
            return
        gauges = {f"{prefix}.{name}": value for name, value in found.gauges.items()}
        channel_of(reporter).add(gauges, [f"{prefix}.{name}" for name in found.counts])

    return listen


def _check(options: Options) -> None:
    """Before anything is written for a new table, which is opened when its settings are there."""
    observed(NO_EVENTS, options, "")


REGISTRY.checks.append(_check)


def unobserved(options: Options) -> Options:
    """Without what has a table observed: tasks in other processes report nothing."""
    return Options({key: text for key, text in options.items() if key not in (METRICS_ON.key, TRACING.key)})


def traced(events: Events, options: Options) -> Events:
    """The same events, which make spans where the options have it."""
    if options.value(TRACING) and not events.has(spans()):
        events.listen(spans())
    return events


@cache
def spans() -> Listener:
    """The listener of this process that makes spans."""
    from skep_table.metrics.spans import Spans

    return Spans()
