"""Runs the SQL server over a lake, as a context: its ports take clients within it."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skep.serve.hive.settings import SqlServerSettings
from skep.serve.listening import address_of, listen, serving_app
from skep_format.errors import InputError, needs

if TYPE_CHECKING:
    from skep.lake import Lake
    from skep.serve.hive.sessions import SqlHub


@dataclass
class SqlServer:
    """What clients connect to. `ended_in_time` is known after the end: whether no statement had to be given up."""

    urls: tuple[str, ...]
    port: int | None
    http_port: int | None
    ended_in_time: bool = True


@contextlib.contextmanager
def sql_server(lake: Lake, settings: SqlServerSettings) -> Iterator[SqlServer]:
    """Serves statements on a lake, which the caller closes. At the end those under way have `grace_seconds`."""
    settings.check()
    with needs("sql-server", "the SQL server needs the package %s"):
        from skep.serve.hive.sessions import SqlHub
        from skep.serve.hive.tcp import TcpServer
    context = _context(settings)
    secure = ";ssl=true" if context is not None else ""
    with contextlib.ExitStack() as stack:  # what comes last is ended first
        urls: list[str] = []
        server = SqlServer((), None, None)
        hub = SqlHub(lake, settings)

        def close() -> None:
            server.ended_in_time = hub.close()

        stack.callback(close)
        stop = contextlib.ExitStack()
        if settings.port is not None:
            listening = listen(settings.host, settings.port)
            server.port = listening.getsockname()[1]
            urls.append(f"jdbc:hive2://{address_of(listening)}/{lake.database}{secure}")
            tcp = TcpServer(hub, listening, context)
            tcp.start()
            stack.callback(tcp.close)
            stop.callback(tcp.stop)
        if settings.http_port is not None:
            listening = listen(settings.host, settings.http_port, "--http-port")
            server.http_port = listening.getsockname()[1]
            mode = ";transportMode=http;httpPath=cliservice"
            urls.append(f"jdbc:hive2://{address_of(listening)}/{lake.database}{secure}{mode}")
            stack.enter_context(_http(hub, listening, settings))
        stack.callback(hub.drain, settings.limits.grace_seconds)
        stack.push(stop)
        server.urls = tuple(urls)
        yield server


def _context(settings: SqlServerSettings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # of which those of TLS are a kind
        raise InputError(
            f"certificate {settings.certificate} can't be used: {error}", option="--certificate"
        ) from error
    return context


def _http(
    hub: SqlHub, listening: socket.socket, settings: SqlServerSettings
) -> contextlib.AbstractContextManager[None]:
    from skep.serve.hive.http import make_app

    return serving_app(
        make_app(hub),
        listening,
        "skep-sql-http",
        limit_concurrency=settings.limits.connections,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
