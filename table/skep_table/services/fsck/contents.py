"""What lies in data files, read to the last byte: pages of base files, blocks of log files, keys and their filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import BaseFileFooter, read_base, read_footer
from skep_format.basefile.pages import damaged_pages
from skep_format.basefile.writer import key_range
from skep_format.errors import EncryptedFileError, SkepError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey, LogBlock, read_blocks
from skep_format.names import BaseFileName, BaseFormat, LogFileName
from skep_format.runner import Runner
from skep_format.storage import FileStatus, Storage
from skep_table.keys.stored import StoredKeys
from skep_table.services.fsck.files import ListedFiles, is_committed
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, reason
from skep_table.table import HudiTable, Written


def check_contents(
    table: HudiTable, runner: Runner, newest: Mapping[str, Written], listed: ListedFiles
) -> Iterator[FileFinding]:
    """Every committed base and log file that is there, those before the newest slices included."""
    logs, bases = [], []
    for file in listed.files.values():
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is None or not is_committed(table, name):
            continue
        if isinstance(name, BaseFileName):
            bases.append(file)
        else:
            stated = newest.get(file.path)
            logs.append((file, name.instant_time, stated[1].file_size_in_bytes if stated else 0))
    keys = _stored_keys(table)
    for found in runner.map(partial(_check_base, table.storage, keys), bases):
        yield from found
    for found in runner.map(partial(_check_log, table.storage), logs):
        yield from found


def _stored_keys(table: HudiTable) -> StoredKeys | None:
    """None where no schema names the columns that make a key."""
    try:
        return StoredKeys.of(table.config, table.stored_schema())
    except UNREADABLE:
        return None


def _check_base(storage: Storage, keys: StoredKeys | None, file: FileStatus) -> list[FileFinding]:
    name = BaseFileName.parse(file.name)
    if name is None or name.format is BaseFormat.HFILE:
        return []
    time = name.instant_time
    try:
        found = [FileFinding(Problem.DAMAGED, file.path, time, what) for what in damaged_pages(storage, file.path)]
        if not found and keys is not None:
            footer = read_footer(storage, file.path)
            found += [FileFinding(Problem.KEYS, file.path, time, what) for what in _hidden_keys(storage, keys, footer)]
    except FileNotFoundError:
        return []  # cleaned since it was listed, or named as missing
    except EncryptedFileError:
        raise
    except SkepError as error:
        return [FileFinding(Problem.DAMAGED, file.path, time, error.message)]
    return found


def _hidden_keys(storage: Storage, stored: StoredKeys, footer: BaseFileFooter) -> Iterator[str]:
    """Why look-ups by key would pass over the file although it holds the key."""
    if footer.bloom is None and footer.min_key is None:
        return
    lacking, first = 0, None
    for rows in read_base(storage, footer.path, schema=stored.schema):
        keys = stored.of_rows(rows).cast(pa.string())
        if footer.bloom is not None:
            absent = pc.invert(footer.bloom.might_contain(keys))
            count = pc.sum(absent).as_py() or 0
            first = keys.filter(absent)[0].as_py() if count and first is None else first
            lacking += count
        if footer.min_key is not None and footer.max_key is not None and (ends := key_range(keys)) is not None:
            low, high = (pa.array([text]) for text in (footer.min_key, footer.max_key))
            merged = key_range(pa.concat_arrays([low, high, pa.array(ends)]))
            if merged != (footer.min_key, footer.max_key):
                yield f"its keys are {ends[0]} to {ends[1]}, its footer states {footer.min_key} to {footer.max_key}"
    if lacking:
        yield f"the filter in its footer lacks {lacking:,} of its keys, {first} among them"


def _check_log(storage: Storage, task: tuple[FileStatus, InstantTime, int]) -> list[FileFinding]:
    file, time, stated = task
    found = []
    try:
        with storage.open_input(file.path) as source:
            end = 0
            for block in read_blocks(source, file.path):
                end = block.offset + block.size
                if block.type is BlockType.CORRUPT:
                    found.append(_no_block(file.path, time, block.offset, block.size, stated))
                elif (problem := _damage(block)) is not None:
                    found.append(FileFinding(Problem.DAMAGED, file.path, time, problem))
            if end < file.size_bytes:
                found.append(_no_block(file.path, time, end, file.size_bytes - end, stated))
    except FileNotFoundError:
        return []
    except SkepError as error:
        found.append(FileFinding(Problem.DAMAGED, file.path, time, error.message))
    return found


def _no_block(path: str, time: InstantTime, offset: int, size: int, stated: int) -> FileFinding:
    what = f"{size:,} bytes at byte {offset:,} are no block"
    if offset < stated:
        return FileFinding(Problem.DAMAGED, path, time, f"{what}: rows that a commit wrote there are not read")
    return FileFinding(Problem.TORN, path, time, f"{what}: readers pass over them")


def _damage(block: LogBlock) -> str | None:
    """Why the content of a block can't be read; None where it can."""
    try:
        if HeaderKey.RECORD_POSITIONS in block.headers:
            _ = block.record_positions
        if block.type.has_records:
            for batch in block.batches():
                batch.validate(full=True)
        elif block.type is BlockType.DELETE:
            block.deletes().validate(full=True)
        elif block.is_rollback:
            _ = block.target_instant_time
        _ = block.instant_time
    except UNREADABLE as error:
        return reason(error)
    except (pa.ArrowException, ValueError) as error:
        return f"block at byte {block.offset:,}: {error}"
    return None
