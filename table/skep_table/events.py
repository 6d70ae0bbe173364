"""Progress, metrics and audit lines, as typed events to registered listeners."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

log = logging.getLogger("skep")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `name` is dotted (`write.tag`, `sync.apply`), `facts` are plain values.

    `seconds` is set on the event that ends a step; `done`/`total` on progress.
    """

    name: str
    facts: Mapping[str, object] = field(default_factory=dict)
    seconds: float | None = None
    done: int | None = None
    total: int | None = None


Listener = Callable[[Event], None]


class Events:
    """Hands events to its listeners. A listener that fails is logged and never stops the work."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = list(listeners)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Adds a listener. Calling the returned function removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, name: str, **facts: object) -> None:
        """Sends one event."""
        self.send(Event(name, facts))

    def progress(self, name: str, done: int, total: int | None = None, **facts: object) -> None:
        """Sends an event with how much of a step is done; `total` is None where it is unknown."""
        self.send(Event(name, facts, done=done, total=total))

    @contextlib.contextmanager
    def step(self, name: str, **facts: object) -> Iterator[dict[str, object]]:
        """Times a step: sends `<name>.start`, then `<name>` or `<name>.failed` with the duration.

        Entries that the body adds to the yielded dict are facts of the closing event.
        """
        found: dict[str, object] = dict(facts)
        self.send(Event(name + ".start", dict(facts)))
        start = time.perf_counter()
        try:
            yield found
        except BaseException as error:
            self.send(Event(name + ".failed", {**found, "error": repr(error)}, seconds=time.perf_counter() - start))
            raise
        self.send(Event(name, found, seconds=time.perf_counter() - start))

    def has(self, listener: Listener) -> bool:
        """Whether it is among the listeners."""
        return listener in self._listeners

    def send(self, event: Event) -> None:
        """Sends an event that is made already."""
        log.debug("%s %s", event.name, event)
        self.deliver(event)

    def deliver(self, event: Event) -> None:
        """Calls the listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on event %s", event.name)


NO_EVENTS = Events()
