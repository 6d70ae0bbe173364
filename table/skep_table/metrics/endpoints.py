"""Metrics for Prometheus over HTTP on loopback: one server for each port, which all of a process share."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skep_format.errors import InputError, needs

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

HOST: Final = "127.0.0.1"


@dataclass(slots=True)
class Endpoint:
    """A server that shows a registry. It is closed when all that use it have released it."""

    port: int  # as it was wanted
    registry: CollectorRegistry
    server: Any
    users: int = 0

    @property
    def url(self) -> str:
        """Where the metrics are read."""
        return f"http://{HOST}:{self.server.server_port}/metrics"


_open: dict[int, Endpoint] = {}
_guard = threading.Lock()


def needs_prometheus() -> None:
    """EnvironmentMissingError without the package for Prometheus."""
    with needs("serve", "metrics need the package %s"):
        import prometheus_client  # noqa: F401


def acquire(port: int) -> Endpoint:
    """The endpoint of a port; 0 takes any, once a process. InputError where the port can't be had."""
    needs_prometheus()
    from prometheus_client import CollectorRegistry, start_http_server

    with _guard:
        found = _open.get(port)
        if found is None:
            registry = CollectorRegistry()
            try:
                server, _ = start_http_server(port, HOST, registry)
            except (OSError, OverflowError) as error:
                raise InputError(f"metrics can't be served on {HOST}:{port}: {error}", found=port) from error
            found = _open[port] = Endpoint(port, registry, server)
        found.users += 1
        return found


def release(endpoint: Endpoint) -> None:
    """Ends one use of an endpoint."""
    with _guard:
        endpoint.users -= 1
        if endpoint.users:
            return
        del _open[endpoint.port]
    endpoint.server.shutdown()
    endpoint.server.server_close()
