"""An error of skep in a task of Spark comes out of the write as itself."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError, CorruptFileError, SkepError, StorageError
from skep_format.storage import LocalStorage
from skep_table.table import HudiTable
from skep_writer import SparkWriter
from skep_writer.task_errors import TaskError, carrying_errors, errors_of_tasks

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])


@pytest.mark.parametrize(
    "error",
    [
        StorageError("no room", hint="make some", path="a/b"),
        CorruptFileError('cut "here"\nand there', path="f", offset=7),
        CommitConflictError("late", groups=("a", "b")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_with_its_facts(error: SkepError) -> None:
    with pytest.raises(TaskError) as failed, carrying_errors():
        raise error
    with pytest.raises(type(error)) as raised, errors_of_tasks():
        raise RuntimeError(f"Job aborted\n  {failed.value}\n\tat java.lang.Thread")
    assert str(raised.value) == str(error)
    assert list(raised.value.fields) == list(error.fields)


def test_an_interrupt_wins_over_what_fails_for_it() -> None:
    """A call of Spark that was interrupted has its answer unread, and the next one takes that for its own."""

    def interrupted() -> None:
        try:
            sys.exit(143)
        finally:
            raise KeyError("an answer to another call")

    with pytest.raises(SystemExit, match="143"), errors_of_tasks():
        interrupted()


def test_errors_of_others_pass() -> None:
    with pytest.raises(ZeroDivisionError), errors_of_tasks(), carrying_errors():
        raise ZeroDivisionError


class NoRoom(LocalStorage):
    """No data file finds room."""

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        if path.endswith(".parquet"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        with super().open_write(path) as file:
            yield file


@pytest.mark.spark
@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_full_disk_of_an_executor(operation: str, spark: Any, make_table: Callable[..., HudiTable]) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    table = HudiTable.open(NoRoom(make_table(SCHEMA).storage.root))
    frame = spark.createDataFrame([("a", "x", 1), ("b", "y", 1)], "id string, part string, ts long")
    with pytest.raises(StorageError, match="No space left on device") as raised:
        getattr(SparkWriter(table, spark), operation)(frame)
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.hint == "free some space, then try again"
    assert raised.value.__cause__ is None
    assert not table.reload().timeline.pending().instants
    assert not table.reload().timeline.data().instants
