"""Power fails while a table is written: of files and folders only what fsync put on the disk is certain to be there.

A file's bytes are on the disk as of its last fsync, a folder's entries as of the folder's. What happened since may have
got there or not, folder by folder. Whatever is left reads as before or after the commit, and a commit that was
acknowledged stays.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import AlreadyExistsError, NotATableError, StorageError
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFileName, LogFileName
from skep_format.schema.change import AddColumn
from skep_format.schema.types import StringType
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType, load_table_config, update_table_config
from skep_table.commit.create import TableSpec, create_table
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, compact_logs
from skep_table.services.fsck import Problem, fsck
from skep_table.services.metadata.indexing import drop_metadata
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

Entries = dict[str, tuple[int, bool]]  # name → inode, whether it is a folder
Tree = dict[str, bytes | None]  # path → bytes; None for a folder


def entries_of(folder: str | int) -> Entries:
    with os.scandir(folder) as found:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in found}


@dataclass
class State:
    """What is on the disk for certain, and the entries as running processes see them."""

    what: str
    root: int
    data: dict[int, bytes]
    entries: dict[int, Entries]
    seen: dict[int, Entries]

    def trees(self) -> Iterator[tuple[str, Tree]]:
        """What may be left: nothing but what is certain, or also the later entries of all, or of some folders."""
        yield f"{self.what}: nothing that was not synced", self._tree(lambda path: False)
        yield f"{self.what}: all entries", self._tree(lambda path: True)
        yield f"{self.what}: entries of the timeline", self._tree(lambda path: path == ".hoodie")
        yield f"{self.what}: entries below .hoodie", self._tree(lambda path: path.startswith(".hoodie"))
        yield f"{self.what}: entries of partitions", self._tree(lambda path: not path.startswith(".hoodie"))

    def _tree(self, is_later: Callable[[str], bool]) -> Tree:
        found: Tree = {}
        folders = [("", self.root)]
        while folders:
            path, inode = folders.pop()
            entries = self.seen.get(inode) if is_later(path) else None
            for name, (child, is_folder) in (entries or self.entries.get(inode, {})).items():
                below = f"{path}/{name}" if path else name
                found[below] = None if is_folder else self.data.get(child, b"")
                if is_folder:
                    folders.append((below, child))
        return found


@dataclass
class Disk:
    """Watches `os.fsync` for files below a folder whose content now is on the disk."""

    folder: Path
    states: list[State] = field(default_factory=list)
    _data: dict[int, bytes] = field(default_factory=dict)
    _entries: dict[int, Entries] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)  # inodes are kept open: their numbers are not given again

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self._root = self.folder.stat().st_ino
        for folder, _, files in os.walk(self.folder):
            self._entries[Path(folder).stat().st_ino] = self._hold(folder)
            for path in (Path(folder, name) for name in files):
                self._data[path.stat().st_ino] = path.read_bytes()
        sync = os.fsync

        def fsync(handle: int) -> None:
            path = str(Path(f"/proc/self/fd/{handle}").readlink())
            self.look(f"before the sync of {os.path.relpath(path, self.folder)}")
            sync(handle)
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                self._entries[status.st_ino] = self._hold(path)
            else:
                self._data[status.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fsync)
                yield
            self.look("at the end")
        finally:
            for handle in self._held.values():
                os.close(handle)

    def look(self, what: str) -> None:
        seen = {Path(folder).stat().st_ino: self._hold(folder) for folder, _, _ in os.walk(self.folder)}
        self.states.append(State(what, self._root, dict(self._data), dict(self._entries), seen))

    def _hold(self, folder: str) -> Entries:
        found = entries_of(folder)
        for name, (inode, _) in found.items():
            if inode not in self._held:
                self._held[inode] = os.open(Path(folder, name), os.O_RDONLY)
        return found

    def trees(self) -> Iterator[tuple[str, Tree, bool]]:
        """Each tree that may be left once, with where it comes from, and whether the call had returned by then."""
        known = set()
        for state in self.states:
            for what, tree in state.trees():
                key = frozenset(tree.items()), state is self.states[-1]
                if key not in known:
                    known.add(key)
                    yield what, tree, state is self.states[-1]


def lay_out(tree: Tree, folder: Path) -> None:
    folder.mkdir()
    for path, data in sorted(tree.items()):
        if data is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(data)


def assert_clean(table: HudiTable, folder: Path, where: str) -> None:
    """No pending instant, and no data file of an instant that is neither complete nor archived."""
    assert not table.timeline.pending().instants, where
    completed = {i.requested_time for i in (*table.timeline.completed(), *table.timeline.archived())}
    for file in folder.rglob("*"):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is not None and ".hoodie" not in file.parts:
            assert name.instant_time in completed, f"{where}: {file} was left behind"


def update(maker: Any) -> None:
    maker.upsert(7, "p/a", "p/d", "new/deep/e")


def failing(maker: Any) -> None:
    """A write that ends in an error takes back what it wrote."""
    writer = LocalWriter(HudiTable.open(Refusing(str(maker.folder))).with_context(**maker.setting()))
    with pytest.raises(StorageError, match="refused"):
        writer.upsert(maker.frame(7, "p/a", "new/e"))


class Refusing(LocalStorage):
    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        if path.endswith("commit"):
            raise StorageError("refused", path=path)
        super().create_exclusive(path, data, **how)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "upsert": update,
    "bulk_insert": lambda m: LocalWriter(m.table.with_context(**m.setting())).bulk_insert(m.frame(7, "p/x", "new/y")),
    "delete": lambda m: LocalWriter(m.table.with_context(**m.setting())).delete(
        m.frame(7, "p/a").select(["id", "part"])
    ),
    "insert_overwrite": lambda m: LocalWriter(m.table.with_context(**m.setting())).insert_overwrite(m.frame(7, "p/x")),
    "delete_partition": lambda m: LocalWriter(m.table.with_context(**m.setting())).delete_partitions(["q"]),
    "failing write": failing,
    "compact": lambda m: compact(m.table.with_context(**m.setting())),
    "compact_logs": lambda m: compact_logs(m.table.with_context(**m.setting(log__compaction__blocks__threshold=2))),
    "cluster": lambda m: cluster(m.table.with_context(**m.setting())),
    "clean": lambda m: clean(m.table.with_context(**m.setting(cleaner__commits__retained=1))),
    "archive": lambda m: archive(
        m.table.with_context(**m.setting(keep__max__commits=3, keep__min__commits=2, cleaner__commits__retained=1))
    ),
    "rollback": lambda m: roll_back_instant(
        m.table.with_context(**m.setting()), m.table.timeline.completed().data().last().requested_time
    ),
    "savepoint": lambda m: create_savepoint(m.table.with_context(**m.setting())),
    "delete savepoint": lambda m: delete_savepoint(m.table.with_context(**m.setting()), saved(m)),
    "restore": lambda m: restore(m.table.with_context(**m.setting()), saved(m)),
    "alter": lambda m: LocalWriter(m.table.with_context(**m.setting())).alter([AddColumn("more", StringType())]),
    "change version": lambda m: change_version(
        m.table.with_context(**m.setting()), 6 if m.table.config.version == 9 else 9
    ),
    "make metadata": lambda m: LocalWriter(m.table.with_context(**m.setting(**INDEXES))).upsert(
        m.frame(7, "p/a", "p/d")
    ),
    "compact metadata": lambda m: maintain_metadata_table(
        m.table.with_context(**m.setting(metadata__compact__max__delta__commits=1))
    ),
    "drop metadata": lambda m: drop_metadata(m.table.with_context(**m.setting())),
}


def saved(maker: Any) -> InstantTime:
    """The one savepoint of the table."""
    (time,) = maker.table.savepoints()
    return time


def save(maker: Any, *later: int) -> None:
    create_savepoint(maker.table.with_context(**maker.setting()))
    for ts in later:
        maker.upsert(ts, "p/a", f"new/{ts}")


BEFORE: dict[str, Callable[[Any], Any]] = {"delete savepoint": save, "restore": lambda m: save(m, 6, 7)}
ON_LOGS = {"compact", "compact_logs"}
ON_INDEXES = {"compact metadata", "drop metadata"}
SERVICES = {
    *ON_LOGS,
    "cluster",
    "clean",
    "savepoint",
    "delete savepoint",
    "change version",
}  # what these planned may be left to the next executor
EXECUTED = {"compact", "cluster"}  # which here finds its plan
FINISHED = {"rollback", "restore"}  # the next writer finishes it
QUICK = {
    *((6, "cow", "rollback"), (6, "mor", "upsert"), (6, "cow", "archive"), (6, "mor-indexed", "upsert")),
    *((9, "cow", "archive"), (9, "mor", "restore"), (9, "mor", "compact"), (9, "cow", "alter")),
    *((6, "cow", "change version"), (9, "cow", "change version"), (9, "cow", "make metadata")),
}
INDEXES = {
    "metadata__enable": "true",
    "metadata__index__column__stats__enable": "true",
    "metadata__index__bloom__filter__enable": "true",
    "metadata__record__index__enable": "true",
    "metadata__record__index__min__filegroup__count": "1",
    "index__type": "GLOBAL_BLOOM",
}


MOST_TREES = 40  # of an operation, without --all


def cases() -> list[Any]:
    return [
        pytest.param(*case, id="-".join(map(str, case)), marks=[] if case in QUICK else [pytest.mark.slow])
        for case in itertools.product((6, 9), ("cow", "mor", "cow-indexed", "mor-indexed"), CHANGES)
        if (case[1].startswith("mor") or case[2] not in ON_LOGS)
        and (case[1].endswith("indexed") or case[2] not in ON_INDEXES)
    ]


def seed(maker: Any, kind: str) -> Any:
    """Several files a partition and several versions of each, or logs over them; with all indexes where asked for."""
    maker.create(TableType.MERGE_ON_READ if kind.startswith("mor") else TableType.COPY_ON_WRITE)
    first = maker.setting(**INDEXES if kind.endswith("indexed") else {})
    LocalWriter(maker.table.with_context(**first)).bulk_insert(maker.frame(1, "p/a", "p/b", "q/c"))
    LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(maker.frame(1, "p/f"))
    for ts in range(2, 4):
        maker.upsert(ts, "p/a", "p/b", "q/c")
    if kind.startswith("mor"):
        compact(maker.table.with_context(**maker.setting()))
    for ts in range(4, 6):
        maker.upsert(ts, "p/a", "p/b", "q/c")
    return maker


@pytest.mark.parametrize(("table_version", "kind", "name"), cases(), indirect=["table_version"])
def test_after_a_power_loss_the_table_is_as_before_or_after(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: Any, caplog: Any, request: Any
) -> None:
    caplog.set_level("CRITICAL", "skep")
    seeded = seed(type(maker)(tmp_path / "seeded", maker.clock), kind)
    BEFORE.get(name, lambda _maker: None)(seeded)
    before, reached = seeded.rows(), seeded.table.timeline.completed().data().instants
    disk = Disk(seeded.folder)
    with disk.watched(monkeypatch):
        CHANGES[name](seeded)
    after, completed = seeded.rows(), seeded.table.timeline.completed().instants
    undone = [each for each in reached if name == "restore" and each not in completed]
    between = [left_by(before, 6)] if len(undone) == 2 else []
    whole = request.config.getoption("--all")
    trees = list(disk.trees())
    assert len(trees) > 3
    for tried, (where, tree, returned) in enumerate(trees if whole else some(trees), 1):
        left = type(maker)(tmp_path / f"left{tried}", maker.clock)
        lay_out(tree, left.folder)
        found = left.rows()
        assert found in ((after,) if returned else (before, *between, after)), where
        assert not returned or left.table.timeline.completed().instants == completed, where
        if tried % 5 and not whole:
            shutil.rmtree(left.folder)
            continue
        go_on(left)
        finished = (found, after) if name in FINISHED else (found,)
        assert left.rows() in [{**rows, "z/z": 9} for rows in finished], where
        if name in EXECUTED:
            CHANGES[name](left)
            assert left.rows() == {**found, "z/z": 9}, where
        if name not in SERVICES - EXECUTED:
            assert_clean(left.table, left.folder, where)
        if left.table.config.metadata_partitions:
            assert not check_metadata_table(left.table).differences, where
        lost = [each for each in fsck(left.table) if each.problem is not Problem.LEFTOVER]
        assert not lost, f"{where}: {lost}"
        shutil.rmtree(left.folder)


def some(trees: list[Any]) -> list[Any]:
    """Some of what may be left, always the same ones, and all of what may be left once the call has returned."""
    chosen = {*random.Random(0).sample(range(len(trees)), min(MOST_TREES, len(trees)))}
    return [each for at, each in enumerate(trees) if at in chosen or each[2]]


def go_on(maker: Any) -> None:
    """The next write, with all columns that the table has."""
    table = maker.table.with_context(**maker.setting())
    rows = maker.frame(9, "z/z")
    for name in set(table.schema().names()) - set(rows.column_names):
        rows = rows.append_column(name, pa.array([""]))
    LocalWriter(table).upsert(rows)


def left_by(rows: dict[str, int], last: int) -> dict[str, int]:
    """What an interrupted restore has left of two writes (see `save`) once it has undone the second."""
    return {**{key: ts for key, ts in rows.items() if ts <= last or key == "p/a"}, "p/a": last}


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_a_table_that_was_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: Any) -> None:
    """Before that there is none, and it can be made; folders above it that were missing are on the disk with it."""
    (tmp_path / "lake").mkdir()
    disk = Disk(tmp_path / "lake")
    spec = TableSpec(name="t", schema=maker.frame(1, "p/a").schema, record_key=("id",), partition_by=("part",))
    with disk.watched(monkeypatch):
        create_table(LocalStorage(str(disk.folder / "db/t")), spec)
    for number, (where, tree, returned) in enumerate(disk.trees()):
        folder = tmp_path / f"left{number}"
        lay_out(tree, folder)
        try:
            HudiTable.open(str(folder / "db/t"))
        except NotATableError:
            assert not returned, where
            create_table(LocalStorage(str(folder / "db/t")), spec)
        left = type(maker)(folder / "db/t", maker.clock)
        left.upsert(1, "p/a")
        assert left.rows() == {"p/a": 1}, where


def test_a_setting_of_the_table_is_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: Any
) -> None:
    disk = Disk(maker.folder)
    with disk.watched(monkeypatch):
        update_table_config(LocalStorage(str(maker.folder)), {"hoodie.some.key": "new"})
    seen = set()
    for number, (where, tree, returned) in enumerate(disk.trees()):
        lay_out(tree, tmp_path / f"left{number}")
        value = load_table_config(LocalStorage(str(tmp_path / f"left{number}"))).raw.get("hoodie.some.key")
        assert value == "new" or not returned, where
        seen.add(value)
    assert seen == {None, "new"}


def write(storage: LocalStorage) -> None:
    for path in ("new/deep/file", "new/deeper/one"):
        with storage.open_write(path) as file:
            file.write(b"new")
    storage.delete("a/file", durable=False)
    storage.sync(["new/deep/file", "new/deeper/one", "a/file"])


STEPS: dict[str, tuple[Callable[[LocalStorage], Any], Tree]] = {
    "sync": (write, {"new/deep/file": b"new", "new/deeper/one": b"new", "a/file": None}),
    "create_exclusive": (lambda s: s.create_exclusive("new/deep/file", b"new"), {"new/deep/file": b"new"}),
    "replace_atomic": (lambda s: s.replace_atomic("a/file", b"new"), {"a/file": b"new"}),
    "rename": (lambda s: s.rename("a/file", "new/deep/file"), {"a/file": None, "new/deep/file": b"old"}),
    "delete": (lambda s: s.delete("a/file"), {"a/file": None}),
    "delete_folder": (lambda s: s.delete_folder("a"), {"a/file": None}),
    "swap": (lambda s: s.swap("a/file", b"new", s.read_versioned("a/file")), {"a/file": b"new"}),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_local_storage_has_done_is_on_the_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "disk"
    (folder / "a").mkdir(parents=True)
    (folder / "a/file").write_bytes(b"old")
    (folder / "a/.file.crc").write_bytes(b"a check sum of old")
    disk = Disk(folder)
    step, expected = STEPS[name]
    with disk.watched(monkeypatch):
        step(LocalStorage(str(folder)))
    for where, tree, returned in disk.trees():
        files = {path: data for path, data in tree.items() if data is not None}
        assert files.get("a/file", b"old") in (b"old", b"new"), where
        if name == "rename":
            assert b"old" in files.values(), where
        if returned:
            assert {path: files.get(path) for path in expected} == expected, where
            assert not [path for path in files if path.endswith(".tmp")], where


def test_a_name_that_may_not_be_on_the_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses to sync the folder: a later listing must not find what is reported as failed."""
    storage = LocalStorage(str(tmp_path))
    storage.create_exclusive("staged", b"new")
    sync = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(5, "Input/output error")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    for call in (
        lambda: storage.create_exclusive("file", b"new"),
        lambda: storage.rename("staged", "file"),
    ):
        with pytest.raises(StorageError, match="Input/output"):
            call()
        assert [file.path for file in storage.list_prefix("", recursive=True)] == ["staged"]
    with pytest.raises(StorageError, match="Input/output"):
        storage.sync(["staged"])
    monkeypatch.undo()
    storage.create_exclusive("file", b"new")
    with pytest.raises(AlreadyExistsError):
        storage.create_exclusive("file", b"newer")
    assert storage.read("file") == b"new"
