"""A storage that fails, or dies, at its nth call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import IO, Any

from skep_table.errors import StorageError
from skep_table.storage import LocalStorage

CHANGES = {
    "open_write",
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

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        for path in paths:  # each is a step of its own: half of the files may be deleted
            self._call("delete_many", path, lambda: LocalStorage.delete_many(self, [path], durable=durable))  # noqa: B023


def _counted(name: str) -> Any:
    def method(self: FaultyStorage, path: str, *args: Any, **named: Any) -> Any:
        return self._call(name, path, lambda: getattr(LocalStorage, name)(self, path, *args, **named))

    return method


for _name in (CHANGES | READS) - {"open_write", "delete_many"}:
    setattr(FaultyStorage, _name, _counted(_name))
