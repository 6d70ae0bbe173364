"""A storage that fails, or dies, at its nth call."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from skep_format.errors import StorageError
from skep_format.storage import LocalStorage

CHANGES = {
    "open_write",
    "open_append",
    "sync",
    "create_exclusive",
    "replace_atomic",
    "rename",
    "delete",
    "delete_many",
    "delete_folder",
}
READS = {"list_prefix", "list_folder", "exists", "size", "read", "read_range", "read_suffix", "open_input"}


class Killed(BaseException):
    """The process has ended: no clean-up has any effect."""


class FaultyStorage(LocalStorage):
    """Counts calls. At call `at` it fails once (`dies=False`), or dies: then every later call fails too.

    `after`: the call takes effect and its answer is lost.
    """

    def __init__(self, root: str, at: int, *, dies: bool = False, after: bool = False) -> None:
        super().__init__(root)
        self.at, self.dies, self.after = at, dies, after
        self.calls: list[str] = []

    @property
    def hit(self) -> bool:
        return len(self.calls) >= self.at

    def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        self.calls.append(f"{name} {path}")
        number = len(self.calls)
        if number == self.at or (self.dies and number > self.at):
            if self.after and number == self.at:
                do()
            raise StorageError(f"injected: {name} {path}", call=name, path=path)
        return do()

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        self._call("open_write", path, lambda: None)
        with super().open_write(path) as file:
            yield file
            self._call("close", path, lambda: None)

    @contextmanager
    def open_append(self, path: str) -> Iterator[IO[bytes]]:
        self._call("open_append", path, lambda: None)
        with super().open_append(path) as file:
            yield file
            self._call("close", path, lambda: None)

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        for path in paths:  # each is a step of its own: half of the files may be deleted
            self._call("delete_many", path, lambda: LocalStorage.delete_many(self, [path], durable=durable))  # noqa: B023


def _counted(name: str) -> Any:
    def method(self: FaultyStorage, path: str, *args: Any, **named: Any) -> Any:
        return self._call(name, path, lambda: getattr(LocalStorage, name)(self, path, *args, **named))

    return method


for _name in (CHANGES | READS) - {"open_write", "open_append", "delete_many"}:
    setattr(FaultyStorage, _name, _counted(_name))


class KilledAtChanges(FaultyStorage):
    """Dies at its nth call that changes something: a kill at a read leaves what the change before it left.

    A file that is being written is left with half of its bytes; all of them where it dies `after` that call.
    """

    def __init__(self, root: str, at: int, *, after: bool = False) -> None:
        super().__init__(root, at, dies=True, after=after)

    def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        if name not in {*CHANGES, "close"} and not self.hit:
            return do()
        return super()._call(name, path, do)

    @contextmanager
    def open_append(self, path: str) -> Iterator[IO[bytes]]:
        target = Path(self.local_path(path))
        before = target.stat().st_size
        try:
            with super().open_append(path) as file:
                yield file
                file.flush()
        except StorageError:
            grown = target.stat().st_size - before
            if grown and len(self.calls) == self.at and not self.after:
                os.truncate(target, before + grown // 2)
            raise

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        written = None
        try:
            with super().open_write(path) as file:
                yield file
                file.flush()
                written = Path(self.local_path(path)).read_bytes()
        except StorageError:
            if written is not None and len(self.calls) == self.at:
                Path(self.local_path(path)).write_bytes(written if self.after else written[: len(written) // 2])
            raise
