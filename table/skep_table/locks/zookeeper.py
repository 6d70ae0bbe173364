"""A lock in ZooKeeper, by the protocol of Curator's InterProcessMutex, which Hudi uses: ephemeral nodes in a queue.

Each writer creates a sequential node below the lock's; the lowest holds the lock, the others watch their predecessor. A
node exists as long as its session, so a dead writer's is deleted after the session's time-out.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from skep_format.errors import LeaseLostError, LockError, OptionError, needs
from skep_table.locks.holders import Holder, agent_facts, agent_text, describe
from skep_table.locks.lease import LeasedLock, LockTerms, Queue

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LOCK: Final = "lock-"  # what comes before the number in the names of Curator's nodes


class ZooKeeperLock(LeasedLock):
    """The lock node `path` on the servers `hosts` (`host:port,…`)."""

    provider = "zookeeper"

    def __init__(
        self,
        hosts: str,
        path: str,
        *,
        session_seconds: float = 60,
        connect_seconds: float = 15,
        **terms: Unpack[LockTerms],
    ) -> None:
        if not path.strip("/"):
            raise OptionError("a lock in ZooKeeper needs a path", option="hoodie.write.lock.zookeeper.base_path")
        # The session's heartbeats are the client's own; ours only looks whether the node is there.
        super().__init__(f"{hosts}/{path.strip('/')}", heartbeat_seconds=max(0.05, session_seconds / 4), **terms)
        self._hosts = hosts
        self._path = "/" + path.strip("/")
        self._session_seconds = session_seconds
        self._connect_seconds = connect_seconds
        self._client: Any = None
        self._node: str | None = None
        self._changed = threading.Event()

    @property
    def lock_id(self) -> object | None:
        return self._node and self._node.rpartition("/")[2]

    def _enter(self) -> bool:
        self._client = self._connected()
        prefix = f"{self._path}/_c_{uuid.uuid4()}-{_LOCK}"
        with _failures(self.name):
            self._node = self._made(prefix)
        return self._poll()

    def _made(self, prefix: str) -> str:
        """A node of ours. When the answer was lost with the connection, it is found by its name."""
        from kazoo.exceptions import ConnectionLoss

        content = agent_text(self._purpose).encode()
        try:
            return str(self._client.create(prefix, content, ephemeral=True, sequence=True, makepath=True))
        except ConnectionLoss:
            own = prefix.rpartition("/")[2]
            for name in self._client.retry(self._client.get_children, self._path):
                if name.startswith(own):
                    return f"{self._path}/{name}"
            raise

    def _poll(self) -> bool:
        assert self._node is not None
        with _failures(self.name):
            names = self._names()
            own = self._node.rpartition("/")[2]
            if own not in names:
                raise LockError(f"the place in the queue for the lock on {self.name} is lost: the session expired")
            place = names.index(own)
            if place == 0:
                return True
            self._changed.clear()
            there = self._client.exists(f"{self._path}/{names[place - 1]}", watch=lambda _event: self._changed.set())
        if there is None:
            self._changed.set()
        return False

    def _pause(self, seconds: float) -> int:
        self._changed.wait(seconds)
        return 0

    def _leave(self) -> None:
        client, node, self._client, self._node = self._client, self._node, None, None
        try:
            with _failures(self.name):
                if node is not None and not _deleted(client, node):
                    raise LeaseLostError(f"lock on {self.name} was lost already")
        finally:
            client.stop()
            client.close()

    def release(self) -> None:
        """Releases the lock and closes the client."""
        super().release()
        if self._client is not None:  # connected, and no node made
            with suppress(Exception):
                self._client.stop()
                self._client.close()
            self._client = None

    def _look(self) -> None:
        with _failures(self.name):
            status = self._client.exists(self._node)
        if status is None or status.ephemeralOwner != self._client.client_id[0]:
            raise self.lease_lost()

    def _beat(self) -> None:
        self._look()

    def _queue(self) -> Queue:
        from kazoo.exceptions import NoNodeError

        with _failures(self.name):
            names = self._names()
            own = self.lock_id
            if not names or names[0] == own:
                return Queue()
            try:
                data, status = self._client.get(f"{self._path}/{names[0]}")
            except NoNodeError:
                return Queue()
        facts = agent_facts(data.decode(errors="replace"))
        holder = describe(facts, since=status.ctime / 1000) if facts else f"another client, {_of_node(data, status)}"
        return Queue(holder, names.index(own) if own in names else len(names), names[0])

    def holders(self) -> list[Holder]:
        """Holder and queue. A node exists as long as its session: ZooKeeper regards every listed client as alive."""
        from kazoo.exceptions import NoNodeError

        found: list[Holder] = []
        with self._visiting() as client, _failures(self.name):
            if client.exists(self._path) is None:
                return []
            for name in self._names(client):
                with suppress(NoNodeError):
                    data, status = client.get(f"{self._path}/{name}")
                    found.append(
                        Holder(name, data.decode(errors="replace"), held=not found, last_sign=status.mtime / 1000)
                    )
        return found

    def revoke(self, lock_id: str) -> bool:
        with self._visiting() as client, _failures(self.name):
            return _deleted(client, f"{self._path}/{lock_id}")

    @contextmanager
    def _visiting(self) -> Iterator[Any]:
        client = self._connected()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def _names(self, client: Any = None) -> list[str]:
        """The queue in its order, Curator's way: by what follows `lock-`."""
        return sorted((client or self._client).get_children(self._path), key=lambda name: name.rpartition(_LOCK)[2])

    def _connected(self) -> Any:
        with needs("zookeeper", "locks in ZooKeeper need the package kazoo"):
            from kazoo.client import KazooClient
        client = KazooClient(hosts=self._hosts, timeout=self._session_seconds)
        with _failures(self.name):
            try:
                client.start(timeout=self._connect_seconds)
            except BaseException:
                client.stop()
                client.close()
                raise
        return client


def _of_node(data: bytes, status: Any) -> str:
    """The content of Curator's node, the address of its client, and since when it waits or holds."""
    began = datetime.fromtimestamp(status.ctime / 1000, timezone.utc)
    return f"{data.decode(errors='replace') or 'unnamed'}, since {began:%Y-%m-%d %H:%M:%S} UTC"


def _deleted(client: Any, node: str) -> bool:
    from kazoo.exceptions import NoNodeError

    try:
        client.retry(client.delete, node)
    except NoNodeError:
        return False
    return True


@contextmanager
def _failures(name: str) -> Iterator[None]:
    """Failures of ZooKeeper or of the way to it as LockError."""
    try:
        yield
    except Exception as error:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        if not isinstance(error, (KazooException, KazooTimeoutError)):
            raise
        text = str(error) or type(error).__name__
        raise LockError(f"ZooKeeper at {name} failed: {text}", lock=name) from error
