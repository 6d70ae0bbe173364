"""What object stores and HDFS share: an address with options, and files that are durable once written."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from skep_format.storage.base import Storage


class RemoteStorage(Storage):
    """Files below the address `root`. `options` are credentials and endpoints."""

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        self._root = root.rstrip("/")
        self._options = dict(options or {})

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._root, self._options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r})"

    @property
    def root(self) -> str:
        return self._root

    def uri(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def sync(self, paths: Collection[str]) -> None:  # noqa: ARG002
        """Nothing to do: what was written has copies on other machines."""
        return
