"""New tables: made with a sign, so that one whose first write is refused, or whose maker died, is in nobody's way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from skep_format.errors import AlreadyExistsError, FolderInUseError, NotATableError, SkepError, TableExistsError
from skep_format.names import META_FOLDER
from skep_format.options import Options
from skep_format.storage import Storage
from skep_format.table_config.keys import BACKUP_PATH, PROPERTIES_PATH
from skep_table.commit.create import TableSpec, create_table, table_config
from skep_table.commit.heartbeat import ActiveWriters
from skep_table.locks.holders import agent_facts, agent_text, has_ended
from skep_table.runtime.process import ProcessName, this_process
from skep_table.table import HudiTable
from skep_table.write.planning.settings import check_settings

SIGN: Final = f"{META_FOLDER}/.skep_making"
_LONGEST_SECONDS: Final = 3600  # of a maker on another machine, whose end can't be seen
_signs_here: set[str] = set()  # of the tables that this process makes now


@contextmanager
def new_table(
    storage: Storage, spec: TableSpec, options: Options, unregister: Callable[[], object] | None = None
) -> Iterator[HudiTable]:
    """A table that is complete with the block: its entry and its first rows belong there.

    Where the block fails, the table is removed, and by `unregister` its entry, unless another writer uses it. After a
    kill the next call for the same place does that. TableExistsError where there is a table, or one is being made,
    FolderInUseError where commits without settings are.
    """
    check_settings(table_config(spec), storage.root, options)
    sign = agent_text("making a table")
    _signs_here.add(sign)
    try:
        _put_sign(storage, sign, options, unregister)
        try:
            table = create_table(storage, spec, options)
        except (TableExistsError, FolderInUseError):
            storage.delete(SIGN)
            raise
        try:
            yield table
        except BaseException:
            with suppress(SkepError, OSError):  # the sign stays
                remove_unwritten(storage, options, unregister)
            raise
        storage.delete(SIGN)
    finally:
        _signs_here.discard(sign)


def is_left_over(table: HudiTable) -> bool:
    """Whether the maker of a table died before its first commit, and nobody else writes it."""
    writes = table.timeline.data()
    if writes.completed().instants or not _maker_is_away(table.storage):
        return False
    writers = ActiveWriters(table.context)
    return not any(writers.is_active(each.requested_time) for each in writes.instants)


def remove_unwritten(storage: Storage, options: Options, unregister: Callable[[], object] | None = None) -> None:
    """Removes a table without commits, unless somebody writes it; `unregister` takes its entry out of a metastore."""
    from skep_table.commit.undo.recovery import roll_back_failed  # with all that writes

    with suppress(NotATableError):
        table = HudiTable.open(storage, options)
        if table.timeline.data().completed().instants:
            return
        with table.context.locked():
            table = roll_back_failed(table)
        if table.timeline.data().instants:
            return
        if unregister is not None:
            unregister()
        storage.delete_many([PROPERTIES_PATH, BACKUP_PATH])  # first: what is left without them is no table
    storage.delete_folder(META_FOLDER)


def _put_sign(storage: Storage, sign: str, options: Options, unregister: Callable[[], object] | None) -> None:
    for _ in range(2):
        try:
            storage.create_exclusive(SIGN, sign.encode())
            return
        except AlreadyExistsError:
            if not _maker_is_away(storage):
                break
            remove_unwritten(storage, options, unregister)
            storage.delete(SIGN)
    raise TableExistsError(f"another process makes a table at {storage.root}", table=storage.root, path=storage.root)


def _maker_is_away(storage: Storage) -> bool:
    try:
        sign = storage.read(SIGN).decode()
        age = time.time() - storage.status(SIGN).modified_ms / 1000
    except FileNotFoundError:
        return False
    if sign in _signs_here:
        return False
    return has_ended(sign) or age > _LONGEST_SECONDS or ProcessName.parse(agent_facts(sign)) == this_process()
