"""Storage whose calls are counted, and requests to an S3 server by kind: what a test needs to state a cost.

* `CountingStorage(storage)` wraps one storage; `storage.calls` are its `Calls`.
* the fixture `storage_calls` counts the calls of every storage in the process, also of those opened by path.
* the fixture `s3_requests` counts the requests to moto's server (tables in `s3_folder()`), by kind.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from skep_format.storage import Storage
from skep_format.storage.versioned import Versioned

METHODS: Final = tuple(
    name for name, member in vars(Storage).items() if callable(member) and name[0] != "_" and name != "uri"
)
TIMELINES: Final = (".hoodie", ".hoodie/timeline")
PROPERTIES: Final = ".hoodie/hoodie.properties"


class Call(NamedTuple):
    """One call of a storage: the method and the paths that it was given, relative to the storage's root."""

    method: str
    paths: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.paths[0] if self.paths else ""


class Calls:
    """The calls in order. With `file` they are kept there: then calls of other processes are included."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._calls: list[Call] = []

    def __iter__(self) -> Iterator[Call]:
        if self._file is None:
            return iter(tuple(self._calls))
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return (Call(method, tuple(paths)) for method, paths in map(json.loads, lines))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return "\n".join(f"{call.method} {' '.join(call.paths)}" for call in self)

    def add(self, method: str, path: str | Collection[str]) -> None:
        call = Call(method, (path,) if isinstance(path, str) else tuple(path))
        if self._file is None:
            self._calls.append(call)
        else:
            with self._file.open("a") as out:  # one short line: appended whole, whichever process does it
                out.write(json.dumps(call) + "\n")

    def clear(self) -> None:
        self._calls.clear()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def paths(self, *methods: str, suffix: str = "") -> list[str]:
        """The paths of the calls of these methods (of all, when none is named), those that end with `suffix`."""
        found = (path for call in self if not methods or call.method in methods for path in call.paths)
        return [path for path in found if path.endswith(suffix)]

    def counts(self) -> Counter[str]:
        """The number of calls by method."""
        return Counter(call.method for call in self)

    def times_opened(self) -> int:
        """How often a table was opened: each time reads its properties once."""
        return self.paths("read").count(PROPERTIES)

    def timeline_listings(self) -> int:
        return sum(path in TIMELINES for path in self.paths("list_prefix", "list_folder"))

    def partition_listings(self) -> list[str]:
        """The listed folders outside of `.hoodie`."""
        return [path for path in self.paths("list_prefix", "list_folder") if not path.startswith(".hoodie")]


class CountingStorage:
    """Any storage, its calls counted. It pickles; give `calls` a file when tasks run in other processes."""

    def __init__(self, storage: Storage, calls: Calls | None = None) -> None:
        self.inner, self.calls = storage, Calls() if calls is None else calls

    def __repr__(self) -> str:
        return f"CountingStorage({self.inner!r})"

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def flags(self) -> Any:
        return self.inner.flags

    def uri(self, path: str) -> str:
        return self.inner.uri(path)

    def read_versioned(self, path: str) -> Versioned | None:
        self.calls.add("read_versioned", path)
        return self.inner.read_versioned(path)  # type: ignore[attr-defined,no-any-return]

    def swap(self, path: str, data: bytes | None, seen: Versioned | None) -> bool:
        self.calls.add("swap", path)
        return self.inner.swap(path, data, seen)  # type: ignore[attr-defined,no-any-return]


def _counted(name: str) -> Callable[..., Any]:
    def call(self: CountingStorage, path: str | Collection[str], *more: Any, **named: Any) -> Any:
        self.calls.add(name, path)
        return getattr(self.inner, name)(path, *more, **named)

    return call


for _name in METHODS:
    setattr(CountingStorage, _name, _counted(_name))


def count_class(kind: type, calls: Calls, set_attribute: Callable[[type, str, Any], None]) -> None:
    """Counts the calls of every instance of a storage class; not those that its methods make of one another."""
    within = threading.local()

    def wrap(name: str, real: Any) -> Any:
        @functools.wraps(real)
        def method(self: Any, path: str | Collection[str], *more: Any, **named: Any) -> Any:
            if getattr(within, "call", False):
                return real(self, path, *more, **named)
            calls.add(name, path)
            within.call = True
            try:
                return real(self, path, *more, **named)
            finally:
                within.call = False

        return method

    for name in (*METHODS, "read_versioned", "swap"):
        if name in vars(kind):
            set_attribute(kind, name, wrap(name, vars(kind)[name]))


KINDS: Final = ("GET", "LIST", "HEAD", "PUT", "COPY", "POST", "DELETE")


class Requests:
    """The requests to an S3 server, in order: kind, and the key or the prefix."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def add(self, environ: dict[str, Any]) -> None:
        """A request as WSGI describes it. A LIST is a GET of a bucket, a COPY a PUT that names its source."""
        method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
        key = environ["PATH_INFO"].strip("/").partition("/")[2]
        if method == "GET" and not key:
            prefix = [part.partition("=")[2] for part in query.split("&") if part.startswith("prefix=")]
            self.seen.append(("LIST", prefix[0] if prefix else ""))
        else:
            self.seen.append(("COPY" if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ else method, key))

    def __repr__(self) -> str:
        return "\n".join(f"{kind} {key}" for kind, key in self.seen)

    def __len__(self) -> int:
        return len(self.seen)

    def counts(self) -> Counter[str]:
        """The number of requests by kind, of KINDS."""
        return Counter(kind for kind, _ in self.seen)

    def clear(self) -> None:
        self.seen.clear()
