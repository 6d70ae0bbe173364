"""Run as a script: a stream of JSON files into a table, killed (-9) before or after a change of its storage.

Arguments: folder, a pattern of the change (`create .*commit`; empty: none), `before` or `after`. Prints each batch and
whether it had been committed before.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from skep_catalog.class_archive import spark_environment
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.table import HudiTable
from skep_writer import SparkWriter, make_spark


class KillingStorage(LocalStorage):
    """Looks at the changes that the driver makes; its tasks have storage that does not."""

    pattern, after = "", False

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStorage, (self.root,)

    def _change(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        dies = self.pattern and re.search(self.pattern, f"{name} {path}")
        if dies and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = do()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        self._change("create", path, lambda: LocalStorage.create_exclusive(self, path, data, **how))

    def delete(self, path: str, **how: Any) -> None:
        self._change("delete", path, lambda: LocalStorage.delete(self, path, **how))

    def delete_many(self, paths: Collection[str], **how: Any) -> None:
        for path in paths:
            self._change("delete", path, partial(LocalStorage.delete_many, self, [path], **how))

    def delete_folder(self, path: str, **how: Any) -> None:
        self._change("delete_folder", path, lambda: LocalStorage.delete_folder(self, path, **how))


def main() -> None:
    folder, KillingStorage.pattern, KillingStorage.after = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "after"
    conf = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "1"}
    spark = make_spark(spark_environment(), master="local[2]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    collect = Options({"skep.spark.collect.max.bytes": "0"})  # as for large frames
    table = HudiTable.open(KillingStorage(str(folder / "table")))

    def write(frame: Any, number: int) -> None:
        result = SparkWriter(table.reload().with_context(options=collect), spark).insert(
            frame, batch_id=f"job-{number}"
        )
        print("BATCH", number, result.repeated, flush=True)

    stream = spark.readStream.schema("id bigint, v bigint").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
