"""A topic as a source: the messages behind the checkpoint, whose rows and next offsets go into one commit."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from skep_format.errors import DataLossError, InputError
from skep_format.options import of_option
from skep_format.rowfiles.rejected import Rejected
from skep_stream.checkpoints import STATE_PREFIX
from skep_stream.kafka import messages, offsets
from skep_stream.kafka import options as keys
from skep_stream.kafka.client import Topic
from skep_stream.kafka.offsets import Log, OffsetRange, Offsets
from skep_stream.kafka.options import CheckpointType, Start
from skep_stream.protocols import SINCE, Batch, Position, ReadSchemas, SchemaProvider
from skep_stream.rounds import UNLIMITED
from skep_stream.united import united
from skep_table.events import Events
from skep_table.table import HudiTable

log = logging.getLogger("skep.stream.kafka")
Decode = Callable[[str, pa.RecordBatch], tuple[pa.Table, pa.RecordBatch]]
"""Messages of a topic to rows, and the messages that they are of."""
ID_KEY: Final = f"{STATE_PREFIX}kafka.topic"


class DataLossWarning(UserWarning):
    """Records between a checkpoint and what a topic holds are not there any more."""


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """How offsets are chosen."""

    start: Start = of_option(keys.START)
    checkpoint: CheckpointType = of_option(keys.CHECKPOINT_TYPE)
    fails_on_loss: bool = of_option(keys.FAIL_ON_LOSS)
    most: int = of_option(keys.MOST_EVENTS)
    least_parts: int = of_option(keys.LEAST_PARTS)
    by_id: bool = of_option(keys.TOPIC_ID)


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """One topic; `decoder` is called once a round.

    `appends`: rows get the offset, partition, time and key of their messages; `commits`: the offsets of each commit are
    committed for the group as well; `flattens`: the schema of messages is not that of rows.
    """

    topic: Topic
    decoder: Callable[[], Decode]
    rule: OffsetRule
    rejected: Rejected = field(default_factory=Rejected)
    appends: bool = False
    commits: bool = False
    flattens: bool = False
    events: Events = field(default_factory=Events)

    def fetch(self, last: Position, limit: int) -> Batch:
        """The rows of up to `limit` messages; the checkpoint has the next offset of every partition.

        DataLossError where the topic does not hold the checkpoint, InputError for what is none, and for a message that
        can't be read.
        """
        self.rejected.taken()  # of a round that failed
        identity = self.topic.identity() if self.rule.by_id else ""
        logs = self.topic.logs()
        most = self.rule.most if limit >= UNLIMITED else limit
        starts = self._starts(last.checkpoint, logs)
        if identity and last.extra.get(ID_KEY, identity) != identity:
            starts = self._of_another(last.checkpoint, logs)
        ranges = offsets.ranges(starts, logs, most, self.rule.least_parts)
        frame = self._rows(ranges)
        ends = {partition: each.end for partition, each in ranges.items()}
        state = {ID_KEY: identity} if identity else {}
        return Batch(frame, offsets.spell(self.topic.name, ends), state, rejected=self.rejected.taken())

    def committed(self, checkpoint: str) -> None:
        """After a commit: its offsets are the group's, too. What fails here is logged, the commit is complete."""
        if not self.commits:
            return
        try:
            self.topic.commit(offsets.parse(checkpoint, self.topic.name))
        except Exception:
            log.exception("topic %s: offsets could not be committed for the group", self.topic.name)

    def first_checkpoint(self, table: HudiTable) -> str | None:
        """The offsets that Hudi's sink of Kafka Connect committed last; None where it made no commit."""
        for instant in reversed(table.timeline.data().completed().instants):
            text = table.commit_extra(instant).get(offsets.SINK_KEY)
            if text:
                return offsets.of_sink(text, self.topic.name)
        return None

    def schemas_of_rows(self, given: SchemaProvider | None) -> SchemaProvider | None:
        """Those `given`, with the columns of messages where rows have them; of changes that of the target alone."""
        if given is None or (self.flattens and given.target_schema() is None):
            return None
        # Of envelopes nothing is known but what the target's schema states.
        source = given.target_schema if self.flattens else given.source_schema
        if self.appends:
            target = given.target_schema
            return ReadSchemas(lambda: messages.with_appended(source()), lambda: messages.with_appended(target()))
        return ReadSchemas(source, given.target_schema)

    def waiting(self, last: Position) -> dict[str, int | None]:
        """How many offsets are behind the checkpoint, and the time of the oldest of the messages that are next."""
        logs = self.topic.logs()
        starts = self._starts(last.checkpoint, logs)
        behind = {
            number: OffsetRange(starts[number], each.end) for number, each in logs.items() if each.end > starts[number]
        }
        return {"waiting_messages": sum(each.count for each in behind.values()), SINCE: self.topic.oldest(behind)}

    def _starts(self, checkpoint: str | None, logs: Mapping[int, Log]) -> dict[int, int]:
        if not checkpoint:
            return self._first(logs)
        if checkpoint.isdigit():
            match self.rule.checkpoint, len(checkpoint):
                case CheckpointType.TIMESTAMP, 10:  # seconds
                    return self.topic.at_time(int(checkpoint) * 1000, logs)
                case CheckpointType.TIMESTAMP, 13:  # milliseconds
                    return self.topic.at_time(int(checkpoint), logs)
                case CheckpointType.SINGLE_OFFSET, _:
                    checkpoint = self._with_topic(checkpoint, logs)
        return self._kept(offsets.parse(checkpoint, self.topic.name), logs)

    def _kept(self, last: Offsets, logs: Mapping[int, Log]) -> dict[int, int]:
        """Where to go on from offsets that the topic may have lost."""
        if self.rule.fails_on_loss:
            return offsets.checked(self.topic.name, last, logs)
        starts, lost = offsets.clamped(last, logs)
        if lost:
            self._warn("; ".join(lost))
        return starts

    def _of_another(self, checkpoint: str | None, logs: Mapping[int, Log]) -> dict[int, int]:
        """The offsets of a checkpoint mean nothing in a topic that was created again."""
        why = f"it was deleted and created again since the checkpoint {checkpoint}"
        if self.rule.fails_on_loss:
            hint = f"--ignore-checkpoint begins with it, {keys.FAIL_ON_LOSS.key}=false reads it from its first offsets"
            raise DataLossError(f"topic {self.topic.name}: {why}", hint=hint, topic=self.topic.name)
        self._warn(why)
        return {partition: each.first for partition, each in logs.items()}

    def _warn(self, why: str) -> None:
        text = f"topic {self.topic.name}: {why}: read from the first offset that is there"
        warnings.warn(text, DataLossWarning, stacklevel=4)

    def _first(self, logs: Mapping[int, Log]) -> dict[int, int]:
        """Without a checkpoint; a group that lacks offsets of a partition begins at the end of all, as in Hudi."""
        if self.rule.start is Start.EARLIEST:
            return {partition: each.first for partition, each in logs.items()}
        if self.rule.start is Start.GROUP:
            found = self.topic.committed(list(logs))
            if found.keys() == logs.keys():
                return self._kept(found, logs)
            log.warning("topic %s: the group has no offsets, it begins at the end", self.topic.name)
        return {partition: each.end for partition, each in logs.items()}

    def _with_topic(self, checkpoint: str, logs: Mapping[int, Log]) -> str:
        if len(logs) != 1:
            raise InputError(
                f"topic {self.topic.name} has {len(logs)} partitions: an offset alone is no checkpoint of it",
                topic=self.topic.name,
                found=checkpoint,
            )
        return offsets.spell(self.topic.name, {0: int(checkpoint)})

    def _rows(self, ranges: Mapping[int, OffsetRange]) -> pa.Table | None:
        """Messages become rows as they arrive, so that a round holds its rows only."""
        decode: Decode | None = None
        tables, of_rows = [], []
        with closing(self.topic.read(ranges)) as batches:
            for batch in filter(len, map(messages.with_values, self._counted(batches, ranges))):
                decode = decode or self.decoder()
                rows, kept = decode(self.topic.name, batch)
                tables.append(messages.appended(rows, kept) if self.appends else rows)
                of_rows.append(kept.select(["partition", "offset"]))
        found = united(tables, "messages") if tables else None
        if found is None or not found.num_columns:  # there were none, or all were refused and no columns are known
            return None
        return messages.in_order(found, of_rows)

    def _counted(
        self, batches: Iterable[pa.RecordBatch], ranges: Mapping[int, OffsetRange]
    ) -> Iterator[pa.RecordBatch]:
        done, total = 0, sum(each.count for each in ranges.values())
        for batch in batches:
            yield batch
            done += len(batch)
            self.events.progress("stream.fetch", done, total)
