"""HiveServer2's HTTP transport: each call a POST to /cliservice, with Basic or Bearer authorization."""

from __future__ import annotations

import base64
import binascii
import logging
from functools import partial
from typing import Final

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from thrift.transport.TTransport import TMemoryBuffer

from skep.serve.bodies import RefusedError, body_of
from skep.serve.hive.calls import processor
from skep.serve.hive.sessions import Client, SqlHub
from skep.serve.hive.users import User
from skep.serve.hive.wire import answered, reader

log = logging.getLogger("skep.serve.sql")

_MEDIA_TYPE: Final = "application/x-thrift"


def make_app(hub: SqlHub) -> Starlette:
    """The ASGI application. Sessions end when they are closed, or idle for too long."""
    limits = hub.limits
    threads = anyio.CapacityLimiter(limits.connections)

    def client_of(request: Request, address: str) -> Client:
        users = hub.settings.users
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        name, password = _pair(value) if scheme.lower() == "basic" else ("", "")
        user: User | None = None
        if users is not None:
            if scheme.lower() == "bearer":
                user = users.check_token(value.strip())
            elif name:
                user = users.check(name, password)
            if user is None:
                raise RefusedError(401, "a user and password are needed", "unauthorized")
        return Client(address, user, name, keeps_sessions=True)

    def carry_out(client: Client, body: bytes) -> bytes:
        try:
            return answered(processor(hub, client), reader(TMemoryBuffer(body), limits.message_bytes))
        except Exception as error:  # bytes that are no message make Thrift raise all kinds of errors
            log.warning("refused a request of %s: %s: %s", client.address, type(error).__name__, error)
            raise RefusedError(400, "not a message of Thrift's binary protocol", "invalid") from error

    async def call(request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        try:
            client = await anyio.to_thread.run_sync(partial(client_of, request, address), limiter=threads)
            body = await body_of(request, limits.message_bytes, limits.message_seconds)
            found = await anyio.to_thread.run_sync(partial(carry_out, client, body), limiter=threads)
        except RefusedError as refused:
            if refused.status == 401:
                log.warning("refused %s: user or password is wrong", address)
            headers = {"WWW-Authenticate": 'Basic realm="skep"'} if refused.status == 401 else None
            return PlainTextResponse(str(refused), refused.status, headers)
        return Response(found, media_type=_MEDIA_TYPE)

    return Starlette(routes=[Route(path, call, methods=["POST"]) for path in ("/cliservice", "/cliservice/")])


def _pair(value: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return name, password
