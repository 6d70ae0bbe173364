"""A lock that is a file: its creator holds the lock. Hudi's FileSystemBasedLockProvider, on the same file.

The file of another process is deleted when that process has certainly ended, or did not renew the file for the time
that the options allow. A holder deletes its own file only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from skep_format.errors import AlreadyExistsError, LeaseLostError, UnsupportedError
from skep_format.names import META_FOLDER
from skep_format.storage import LocalStorage, Storage
from skep_format.storage.versioned import Versioned
from skep_table.locks.holders import Holder, agent_facts, agent_text, describe, has_ended
from skep_table.locks.lease import LeasedLock, LockTerms, Queue

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAME: Final = "lock"


class FileSystemLock(LeasedLock):
    """The lock file in `.hoodie`, or in `folder`. UnsupportedError on object stores: they have StorageLock."""

    provider = "filesystem"

    def __init__(
        self,
        storage: Storage,
        *,
        folder: str | None = None,
        expire_seconds: float = 0,
        heartbeat_seconds: float = 60,
        **terms: Unpack[LockTerms],
    ) -> None:
        place = storage if folder is None else LocalStorage(folder)
        if not isinstance(place, LocalStorage):
            problem = "a lock file needs a file system"
            raise UnsupportedError.of_file(storage.root, problem, hint="use the provider storage")
        self._storage = place
        self._root = storage.root
        self._path = f"{META_FOLDER}/{_NAME}" if folder is None else _NAME
        super().__init__(place.uri(self._path), heartbeat_seconds=heartbeat_seconds, **terms)
        self._expire_seconds = expire_seconds

    @property
    def target(self) -> str:
        return self._root

    def _poll(self) -> bool:
        owner = agent_text(self._purpose)
        try:
            self._storage.create_exclusive(self._path, owner.encode())
        except AlreadyExistsError:
            self._break_if_dead()
            return False
        self._owner = owner
        return True

    def _break_if_dead(self) -> None:
        seen = self._storage.read_versioned(self._path)
        if seen is None:
            return
        is_dead = has_ended(seen.data.decode(errors="replace")) or 0 < self._expire_seconds < self._age_seconds()
        if is_dead and self._storage.swap(self._path, None, seen):
            self._events.emit("lock.broken", lock=self.name, holder=_holder(seen))

    def _age_seconds(self) -> float:
        folder = self._path.rpartition("/")[0]
        modified = [file.modified_ms for file in self._storage.list_prefix(folder) if file.path == self._path]
        return self._clock.now().timestamp() - modified[0] / 1000 if modified else 0.0

    def _leave(self) -> None:
        seen, owner, self._owner = self._ours(), self._owner, None
        if owner is None or seen is None or not self._storage.swap(self._path, None, seen):
            raise LeaseLostError(f"lock on {self.name} was lost already")

    def _look(self) -> None:
        if self._ours() is None:
            raise self.lease_lost()

    def _beat(self) -> None:
        seen = self._ours()
        if seen is None or not self._storage.swap(self._path, seen.data, seen):
            raise self.lease_lost()

    def _ours(self) -> Versioned | None:
        seen = self._storage.read_versioned(self._path)
        return seen if seen is not None and self._owner is not None and seen.data == self._owner.encode() else None

    def _queue(self) -> Queue:
        seen = self._storage.read_versioned(self._path)
        if seen is None:
            return Queue()
        return Queue(f"{_holder(seen)} by the file {self.name}", 1, _id_of(seen))

    def holders(self) -> list[Holder]:
        seen = self._storage.read_versioned(self._path)
        if seen is None:
            return []
        age = self._age_seconds()
        over = 0 < self._expire_seconds < age
        text = seen.data.decode(errors="replace")
        return [Holder(_id_of(seen), text, last_sign=self._clock.now().timestamp() - age, over=over)]

    def revoke(self, lock_id: str) -> bool:
        seen = self._storage.read_versioned(self._path)
        return seen is not None and _id_of(seen) == lock_id and self._storage.swap(self._path, None, seen)


def _holder(seen: Versioned) -> str:
    text = seen.data.decode(errors="replace")
    facts = agent_facts(text)
    return describe(facts) if facts else _of_hudi(text) or "another client"


def _of_hudi(text: str) -> str | None:
    """The holder in a file of Hudi's provider: its thread, and when the lock was taken."""
    try:
        facts = json.loads(text)
        return f"another client, thread {facts['lockThreadName']}, since {facts['lockCreateTime']}"
    except (ValueError, KeyError, TypeError):
        return None


def _id_of(seen: Versioned) -> str:
    """Hudi's files have no id."""
    return str(agent_facts(seen.data.decode(errors="replace")).get("id", _NAME))
