"""Runs the service: queue, targets, watcher, HTTP and Kafka, until `ended` is set."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from skep.metastore.syncing import open_queue
from skep.serve.listening import LOOPBACK, address_of, listen, serving_app
from skep_catalog.addresses import is_of_glue
from skep_catalog.catalogs import EntryCatalog
from skep_format.errors import InputError, needs
from skep_format.options import Options
from skep_sync.following.allowed import AllowedPaths
from skep_sync.following.pending import DroppedEntries
from skep_sync.following.service import AfterSync, SyncService
from skep_sync.following.watch import News, WatchedTable, Watcher
from skep_sync.targets import Clients, Target, targets_of
from skep_table.events import Event, Events

if TYPE_CHECKING:
    from skep.serve.kafka import KafkaSettings

log = logging.getLogger("skep.serve")

# What Hudi sends when nobody set hoodie.write.commit.callback.http.api.key: everybody knows it.
_KNOWN_KEY = "hudi_write_commit_http_callback"
_SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where and whom the HTTP side serves."""

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    body_bytes: int = 32 << 20
    certificate: str | None = None
    key: str | None = None

    def check(self) -> None:
        """Others than this machine's users are always asked for a token, and a good one."""
        if self.token is None and self.host not in LOOPBACK:
            raise InputError(f"without a token only loopback is served, not {self.host}", option="--no-token")
        if self.token is not None and (len(self.token) < _SHORTEST_TOKEN or self.token == _KNOWN_KEY):
            raise InputError(
                f"the token must have {_SHORTEST_TOKEN} characters or more and not be the key that Hudi's default is",
                hint="python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Which timelines are watched, and how often."""

    tables: Callable[[], Sequence[WatchedTable]]
    interval_seconds: float = 5.0
    refresh_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What the service does. `allowed`: base paths below which callers may have tables synced. `grace_seconds`: how
    long syncs under way may take to end."""

    allowed: tuple[str, ...] = ()
    workers: int = 4
    grace_seconds: float = 30.0
    watch: WatchSettings | None = None
    http: HttpSettings | None = None
    kafka: KafkaSettings | None = None
    after: AfterSync | None = None


def serve(
    metastore: EntryCatalog,
    warehouse: str,
    options: Options,
    settings: ServiceSettings,
    ended: threading.Event,
    *,
    targets: Sequence[Target] | None = None,
    listener: Callable[[Event], None] | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> bool:
    """Serves until `ended` is set; `ready` gets the HTTP side's address. Whether all syncs under way ended in time."""
    if settings.http is not None:
        settings.http.check()
    queue = open_queue(options, warehouse)
    assert queue is not None
    events = Events(*([listener] if listener else []))
    with Clients(metastore) as clients:
        service = SyncService(
            targets if targets is not None else targets_of(options, in_glue=is_of_glue(metastore)),
            clients,
            queue,
            workers=settings.workers,
            after=settings.after,
            events=events,
        )
        service.start()
        try:
            with contextlib.ExitStack() as stack:
                if settings.http is not None:
                    ready(stack.enter_context(_http(service, settings.http, AllowedPaths(settings.allowed), events)))
                if settings.watch is not None:
                    stack.enter_context(_thread("watch", _watcher(service, settings.watch, options, events).run))
                if settings.kafka is not None:
                    stack.enter_context(_kafka(service, settings, events))
                ended.wait()
        finally:
            in_time = service.stop(settings.grace_seconds)
    return in_time


def _watcher(service: SyncService, settings: WatchSettings, options: Options, events: Events) -> Watcher:
    def submit(news: News) -> None:
        service.submit(news.table.base_path, news.name, news.instant, entry=news.table.entry)

    return Watcher(
        settings.tables,
        submit,
        options,
        dropped=DroppedEntries(tuple(service.targets.values()), service.clients),
        interval_seconds=settings.interval_seconds,
        refresh_seconds=settings.refresh_seconds,
        events=events,
    )


@contextlib.contextmanager
def _thread(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs `work` beside the body, and has it end with it."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), name=f"skep-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _kafka(service: SyncService, settings: ServiceSettings, events: Events) -> contextlib.AbstractContextManager[None]:
    from skep.serve import kafka

    assert settings.kafka is not None
    consumer = kafka.connect(settings.kafka)
    allowed = AllowedPaths(settings.allowed)
    return _thread("kafka", partial(kafka.consume, consumer, allowed, service.submit, events))


@contextlib.contextmanager
def _http(service: SyncService, settings: HttpSettings, allowed: AllowedPaths, events: Events) -> Iterator[str]:
    """The HTTP side in a thread; yields its address. Requests that were taken are answered before it ends."""
    with needs("serve", "the service needs the package %s"):
        from skep.serve.app import make_app
        from skep.serve.metrics import Metrics
    metrics = Metrics(service.pending)
    events.listen(metrics)
    app = make_app(service, allowed, metrics, events, token=settings.token, body_bytes=settings.body_bytes)
    listening = listen(settings.host, settings.port)
    address = address_of(listening)
    certificates = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key}
    with serving_app(app, listening, "skep-http", limit_concurrency=64, **certificates):
        yield f"{'https' if settings.certificate else 'http'}://{address}"
