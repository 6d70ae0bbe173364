"""The HTTP side: Hudi's commit callback in, health, metrics and what is pending out.

    POST /callback   Hudi's callback JSON; the token as HUDI-CALLBACK-KEY (hoodie.write.commit.callback.http.api.key)
    GET  /pending    what waits, and why
    GET  /metrics    for Prometheus
    GET  /healthz    whether the service works; the only one that asks for no token

A callback is answered with 202 when it is in the durable queue, and not before.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skep.serve.bodies import RefusedError, body_of
from skep.serve.hive.users import digest
from skep.serve.metrics import CONTENT_TYPE, Metrics
from skep_format.errors import SkepError
from skep_sync.following.allowed import AllowedPaths, PathNotAllowedError
from skep_sync.following.receiver import BadCallbackError, parse_callback
from skep_sync.following.service import SyncService
from skep_table.events import Events

log = logging.getLogger("skep.serve")
_READ_SECONDS: Final = 30.0  # in which a callback has to arrive

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    service: SyncService, allowed: AllowedPaths, metrics: Metrics, events: Events, *, token: str | None, body_bytes: int
) -> Starlette:
    """The ASGI application around a service that the caller starts and stops. Without a `token` callers are not asked;
    `body_bytes` bounds a callback."""

    def check_token(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("hudi-callback-key")
        if given is None:
            scheme, _, value = request.headers.get("authorization", "").partition(" ")
            given = value.strip() if scheme.lower() == "bearer" else ""
        if not hmac.compare_digest(digest(given), digest(token)):
            raise RefusedError(401, "a token is needed", "unauthorized")

    async def callback(request: Request) -> Response:
        try:
            check_token(request)
            body = await body_of(request, body_bytes, _READ_SECONDS)
            await run_in_threadpool(take, body)
        except RefusedError as refused:
            heard(refused.result)
            return _error(refused.status, refused.reason)
        heard("queued")
        return JSONResponse({"queued": list(service.targets)}, 202)

    def take(body: bytes) -> None:
        try:
            callback = parse_callback(body)
            path = allowed.check(callback.base_path)
        except BadCallbackError as error:
            raise RefusedError(400, error.message, "invalid") from error
        except PathNotAllowedError as error:
            log.warning("refused: %s", error.message)
            raise RefusedError(403, "this base path may not be synced here", "forbidden") from error
        try:
            service.submit(path, callback.table, callback.instant)
        except (SkepError, OSError) as error:
            log.exception("a callback could not be queued")
            raise RefusedError(503, "the queue can't be written; try again", "not_queued") from error

    def heard(result: str) -> None:
        events.emit("service.heard", source="http", result=result)

    def guarded(answer: Callable[[], Response]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                check_token(request)
            except RefusedError as refused:
                return _error(refused.status, refused.reason)
            return await run_in_threadpool(answer)

        return endpoint

    def pending() -> Response:
        return JSONResponse([one.to_json() for one in service.pending()])

    def metrics_text() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    async def health(_: Request) -> Response:
        working = service.is_working
        return JSONResponse({"status": "ok" if working else "stopping"}, 200 if working else 503)

    return Starlette(
        routes=[
            Route("/callback", callback, methods=["POST"]),
            Route("/pending", guarded(pending)),
            Route("/metrics", guarded(metrics_text)),
            Route("/healthz", health),
        ]
    )


def _error(status: int, reason: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": reason}, status, headers)
