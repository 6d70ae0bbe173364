"""HiveServer2's binary transport: Thrift over TCP, bare or within SASL PLAIN, with TLS where there is a certificate."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Iterator

from skep.serve.hive.calls import ConnectionLostError, processor
from skep.serve.hive.sessions import Client, SqlHub
from skep.serve.hive.wire import (
    BadMessageError,
    Channel,
    DisconnectedError,
    Sasl,
    answered,
    hang_up_seen,
    plain_credentials,
    reader,
    refuse,
)

log = logging.getLogger("skep.serve.sql")

_STRICT = 0x80  # the first byte of a message of Thrift's binary protocol


class TcpServer:
    """One thread for each connection, up to a limit."""

    def __init__(self, hub: SqlHub, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        self._hub, self._listening, self._context = hub, listening, context
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._accept, name="skep-sql-accept", daemon=True)

    def start(self) -> None:
        """Takes connections from now on."""
        self._listening.settimeout(0.25)
        self._thread.start()

    def stop(self) -> None:
        """Takes none any more; those that are open stay."""
        self._ended = True
        self._thread.join()
        self._listening.close()

    def close(self) -> None:
        """Closes all connections."""
        with self._guard:
            listed = list(self._connections)
        for connection in listed:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ended:
            try:
                connection, peer = self._listening.accept()
            except TimeoutError:
                continue
            except OSError as error:  # too many open files: those that are open may end
                log.warning("a connection could not be taken: %s", error)
                threading.Event().wait(0.25)
                continue
            with self._guard:
                is_full = len(self._connections) >= self._hub.limits.connections
                if not is_full:
                    self._connections.add(connection)
            if is_full:
                log.warning("refused a connection of %s: %d are open", peer[0], self._hub.limits.connections)
                connection.close()
                continue
            name = f"skep-sql-{peer[0]}:{peer[1]}"
            try:
                threading.Thread(target=self._serve, args=(connection, peer[0]), name=name, daemon=True).start()
            except RuntimeError:  # no more threads
                log.warning("refused a connection of %s: no thread can be started", peer[0])
                self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        with self._guard:
            self._connections.discard(connection)
        connection.close()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        try:
            with self._secured(connection) as secured, hang_up_seen(secured) as has_left:
                client = Client(peer, None, has_left=has_left)
                try:
                    self._converse(secured, client)
                finally:
                    self._hub.left(client)
        except (DisconnectedError, ConnectionLostError) as error:
            log.info("%s: %s", peer, error)
        except (BadMessageError, ssl.SSLError) as error:
            log.warning("closed a connection of %s: %s", peer, error)
        except OSError as error:
            log.info("%s: %s", peer, error)
        except Exception as error:  # bytes that are no message make Thrift raise all kinds of errors
            log.warning("closed a connection of %s: %s: %s", peer, type(error).__name__, error)
        finally:
            self._drop(connection)

    @contextlib.contextmanager
    def _secured(self, connection: socket.socket) -> Iterator[socket.socket]:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._context is None:
            yield connection
            return
        connection.settimeout(self._hub.limits.handshake_seconds)
        secured = self._context.wrap_socket(connection, server_side=True)
        with self._guard:
            self._connections.discard(connection)
            self._connections.add(secured)
        try:
            yield secured
        finally:
            self._drop(secured)

    def _converse(self, connection: socket.socket, client: Client) -> None:
        limits = self._hub.limits
        channel = Channel(connection, limits.message_bytes, limits.message_seconds)
        if not channel.begin(limits.handshake_seconds):
            return
        first = channel.first_byte()
        if first == Sasl.START:
            self._log_in(channel, client)
        elif first != _STRICT:
            raise BadMessageError("neither Thrift's binary protocol nor SASL; TLS and HTTP have ports of their own")
        calls, protocol = processor(self._hub, client), reader(channel, limits.message_bytes)
        # A connection without a session is closed soon; sessions end by their own time.
        while channel.begin(limits.idle_session_seconds * 2 if client.handles else limits.handshake_seconds):
            channel.send(answered(calls, protocol))

    def _log_in(self, channel: Channel, client: Client) -> None:
        name, password = plain_credentials(channel)
        client.name = name
        users = self._hub.settings.users
        if users is not None:
            client.user = users.check(name, password) if name else None
            if client.user is None:
                log.warning("refused %s, who gave the name %r", client.address, name)
                refuse(channel, "user or password is wrong")
                raise DisconnectedError("user or password is wrong")
        channel.negotiate(Sasl.COMPLETE)
        channel.is_framed = True
