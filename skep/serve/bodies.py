"""Bodies of requests: at most the bytes that are allowed, within the time that is allowed."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request


class RefusedError(Exception):
    """An answer other than success: its status, its reason for the caller, and one word for metrics."""

    def __init__(self, status: int, reason: str, result: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.result = status, reason, result


async def body_of(request: Request, limit: int, seconds: float) -> bytes:
    """RefusedError for a body that is too large, too slow or cut off."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise RefusedError(413, "the request is too large", "too_large")
    try:
        return await asyncio.wait_for(_read(request, limit), seconds)
    except asyncio.TimeoutError:
        raise RefusedError(408, "the request did not arrive in time", "too_slow") from None
    except ClientDisconnect:
        raise RefusedError(400, "the caller closed the connection", "invalid") from None


async def _read(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RefusedError(413, "the request is too large", "too_large")
    return bytes(body)
