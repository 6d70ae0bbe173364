"""Tables by their paths, without a metastore: `skep.load`, `skep.open_table` and `skep.maintain`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from skep.base.arguments import checked as with_checks
from skep.base.keywords import takes_options
from skep.handles.table import Table
from skep.metastore.locking import checked, lock_by_path
from skep.metastore.syncing import TableSyncs, open_queue
from skep.query.rows import Rows
from skep.query.spark import SparkHolder
from skep.services.runner import Services
from skep_format.options import Options
from skep_sync.options import ENABLE, main_address
from skep_sync.targets import Clients, Target, targets_of
from skep_table.events import Events
from skep_table.hooks import Committed
from skep_table.query.request import ReadRequest
from skep_table.services.done import Done
from skep_table.table import HudiTable


@with_checks
@takes_options
def load(path: str | os.PathLike[str], **options: object) -> Rows:
    """The rows of the Hudi table at `path`; `options` are those of Hudi's DataFrame reader."""
    return rows_at(path, options, SparkHolder())


def rows_at(path: str | os.PathLike[str], options: Mapping[str, object], spark: SparkHolder) -> Rows:
    """The same for a session."""
    given = Options(options)
    given.check()
    return Rows(HudiTable.open(path, given), ReadRequest.of(given), spark)


@with_checks
@takes_options
def open_table(path: str | os.PathLike[str], **options: object) -> Table:
    """The Hudi table at `path`, without a metastore: reads and writes it, and never syncs."""
    return handle_of(HudiTable.open(path, Options(options)))


def handle_of(table: HudiTable, events: Events | None = None, spark: SparkHolder | None = None) -> Table:
    """Its services are those of a path: the lock, callbacks and syncs that the table's options name."""
    table, options = table.with_context(events=events or Events()), table.options
    hooks = [partial(_sync, options, targets_of(options, main_address(options)))] if options.value(ENABLE) else []
    return Table(table, Services(checked(partial(lock_by_path, table), options), spark or SparkHolder(), hooks))


def _sync(options: Options, targets: tuple[Target, ...], committed: Committed) -> None:
    """After a commit with `hoodie.datasource.hive_sync.enable`."""
    with Clients() as clients:
        TableSyncs(targets, clients, partial(open_queue, options)).after_commit()(committed)


@takes_options
def maintain(
    table: Table | str | os.PathLike[str], *, plan: bool = False, dry_run: bool = False, **options: object
) -> list[Done]:
    """Runs what is due: pending plans, compaction, clustering and expiry where configured, clean, archive.

    `table` is one of a lake, or the path of one. `plan` or `dry_run`: only returns what is due. `options` are Hudi's:
    `**{"hoodie.…": …}`.
    """
    return (table if isinstance(table, Table) else open_table(table)).maintain(plan=plan, dry_run=dry_run, **options)
