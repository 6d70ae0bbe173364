"""Deleting many files one by one, of which some can't be deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from skep_format.errors import StorageError

_NAMED_MOST: Final = 5


def delete_each(paths: Collection[str], delete: Callable[[str], object], root: str, threads: int = 1) -> None:
    """Calls `delete` for each path, in order with one thread; then StorageError with the paths that failed."""

    def failure(path: str) -> StorageError | None:
        try:
            delete(path)
        except StorageError as error:
            return error
        return None

    if threads == 1 or len(paths) <= 1:
        found = list(map(failure, paths))
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(failure, paths))
    failed = {path: error for path, error in zip(paths, found, strict=True) if error is not None}
    if failed:
        first = next(iter(failed.values()))
        names = ", ".join([*list(failed)[:_NAMED_MOST], *(["…"] if len(failed) > _NAMED_MOST else [])])
        whole = StorageError(
            f"{len(failed)} of {len(paths)} files below {root} could not be deleted ({names}): {first.message}",
            hint=first.hint,
            call="delete_many",
            path=next(iter(failed)),
            paths=tuple(failed),
        )
        whole.errno = first.errno
        raise whole from first
