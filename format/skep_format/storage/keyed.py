"""A storage with the keys of its files: whatever opens or writes one in it finds them there, in any process."""

from __future__ import annotations

from typing import Final, cast

from skep_format.storage.base import Storage, StorageFlags

_OWN: Final = ("root", "flags")


class KeyedStorage:
    """All of another storage, which may be of more protocols, with `keys`. It pickles as that one does."""

    def __init__(self, inner: Storage, keys: object) -> None:
        self.inner, self.keys = inner, keys
        # Of the instance, so that checks of protocols at run time find them, too.
        for name in dir(inner):
            if not name.startswith("_") and name not in _OWN:
                self.__dict__[name] = getattr(inner, name)

    def __reduce__(self) -> tuple[object, ...]:
        return KeyedStorage, (self.inner, self.keys)

    def __repr__(self) -> str:
        return f"KeyedStorage({self.inner!r})"

    @property
    def root(self) -> str:
        """That of the other."""
        return self.inner.root

    @property
    def flags(self) -> StorageFlags:
        """Those of the other."""
        return self.inner.flags


def keyed(storage: Storage, keys: object) -> Storage:
    """The storage with these keys, in place of others."""
    return cast("Storage", KeyedStorage(plain_storage(storage), keys))


def plain_storage(storage: Storage) -> Storage:
    """The storage without keys."""
    return storage.inner if isinstance(storage, KeyedStorage) else storage


def keys_in(storage: Storage) -> object | None:
    """The keys that a storage has; None where it has none."""
    return storage.keys if isinstance(storage, KeyedStorage) else None
