"""Where servers listen: sockets, and ASGI applications in a thread beside their caller."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

from skep_format.errors import InputError, needs

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket; port 0 takes any. InputError where that can't be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InputError(f"can't listen on {host}:{port}: {error.strerror or error}", option=option) from error


def address_of(listening: socket.socket) -> str:
    """`host:port`."""
    host, port = listening.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def serving_app(app: Any, listening: socket.socket, name: str, **config: Any) -> Iterator[None]:
    """Serves an ASGI application on a socket, which is closed once the requests taken are answered."""
    with contextlib.closing(listening):
        with needs("serve", "the service needs the package %s"):
            import uvicorn
        settings: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False, **config}
        server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=10, **settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()
