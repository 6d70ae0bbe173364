"""Which checkpoint a round goes on from, by the commits of the active timeline."""

from __future__ import annotations

import pyarrow as pa
import pytest

from skep_format.errors import InputError
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Instant
from skep_format.versions import format_of_version
from skep_stream.checkpoints import CheckpointSettings, Recorded, newest, parse, resumed, stated
from skep_stream.protocols import Position
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

KEYS = format_of_version(6).streamer_keys
ROWS = pa.table({"id": ["a"], "v": [1]})


def table(path: object, version: int = 6) -> HudiTable:
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), version=version)
    return create_table(LocalStorage(str(path)), spec)


def commit(found: HudiTable, extra: dict[str, str]) -> Instant:
    return LocalWriter(found).upsert(ROWS, extra_metadata=extra).instant


def recorded(found: HudiTable, writer: str = "") -> Recorded:
    one = newest(found.reload(), writer)
    assert one is not None
    return one


@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_newest_commit_with_a_checkpoint_counts(tmp_path: object, version: int) -> None:
    found = table(tmp_path, version)
    keys = found.format.streamer_keys
    assert newest(found) is None
    commit(found, {keys.checkpoint: "1"})
    commit(found, {keys.checkpoint: "2", "skep.stream.files": "x"})
    commit(found, {})
    assert resumed(recorded(found), CheckpointSettings()) == Position("2", {"skep.stream.files": "x"})


def test_keys_of_both_kinds_of_releases_are_read(tmp_path: object) -> None:
    """A table that was upgraded has commits with the older keys."""
    assert (KEYS.checkpoint, KEYS.reset) == ("deltastreamer.checkpoint.key", "deltastreamer.checkpoint.reset_key")
    later = format_of_version(8).streamer_keys
    assert (later.checkpoint, later.reset) == ("streamer.checkpoint.key.v2", "streamer.checkpoint.reset.key.v2")
    found = table(tmp_path)
    commit(found, {later.checkpoint: "7"})
    assert recorded(found).checkpoint == "7"


def test_a_checkpoint_of_the_caller_counts_once(tmp_path: object) -> None:
    found = table(tmp_path)
    assert resumed(None, CheckpointSettings("5")) == Position("5")
    commit(found, {KEYS.checkpoint: "9"})
    assert resumed(recorded(found), CheckpointSettings("5")) == Position("5")
    commit(found, {KEYS.checkpoint: "9", KEYS.reset: "5"})
    assert resumed(recorded(found), CheckpointSettings("5")) == Position("9")
    assert resumed(recorded(found), CheckpointSettings("6")) == Position("6")


def test_ignoring_checkpoints_counts_once_for_each_text(tmp_path: object) -> None:
    found = table(tmp_path)
    commit(found, {KEYS.checkpoint: "9"})
    assert resumed(recorded(found), CheckpointSettings(ignore="one")) == Position(None)
    commit(found, stated(KEYS, "9", {}, CheckpointSettings(ignore="one"), None))
    assert resumed(recorded(found), CheckpointSettings(ignore="one")) == Position("9")
    assert resumed(recorded(found), CheckpointSettings(ignore="two")) == Position(None)


def test_several_streamers_go_on_from_their_own(tmp_path: object) -> None:
    found = table(tmp_path)
    a, b = CheckpointSettings(writer="a"), CheckpointSettings(writer="b")
    commit(found, stated(KEYS, "1", {"skep.stream.x": "of a"}, a, None))
    assert newest(found.reload(), "b") is None
    one = commit(found, stated(KEYS, "10", {}, b, recorded(found, "a")))
    assert resumed(recorded(found, "a"), a) == Position("1", {"skep.stream.x": "of a"})
    assert resumed(recorded(found, "b"), b) == Position("10")
    whole = parse(one, found.reload().commit_extra(one))
    assert whole is not None
    assert dict(whole.every) == {"a": "1", "b": "10"}
    with pytest.raises(InputError, match="several streamers: a, b"):
        resumed(recorded(found), CheckpointSettings())


def test_a_commit_beside_is_not_overtaken_by_an_older_entry(tmp_path: object) -> None:
    """Two streamers that commit at the same time each carry what they had read of the other."""
    found = table(tmp_path)
    a, b = CheckpointSettings(writer="a"), CheckpointSettings(writer="b")
    commit(found, stated(KEYS, "1", {}, a, None))
    before = recorded(found, "a")
    commit(found, stated(KEYS, "2", {}, a, before))
    commit(found, stated(KEYS, "10", {}, b, before))
    assert resumed(recorded(found, "a"), a) == Position("2")


def test_the_state_of_another_streamers_source_is_not_taken(tmp_path: object) -> None:
    found = table(tmp_path)
    entries = '{"a":"1","b":"10"}'
    commit(found, {KEYS.checkpoint: entries, "skep.stream.id": "b", "skep.stream.files": "of b"})
    assert resumed(recorded(found, "a"), CheckpointSettings(writer="a")) == Position("1")


def test_only_a_reset_key_is_refused(tmp_path: object) -> None:
    found = table(tmp_path)
    commit(found, {KEYS.reset: "5"})
    with pytest.raises(InputError, match="a reset key and no checkpoint"):
        resumed(recorded(found), CheckpointSettings())


def test_the_archive_is_not_read(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_format.timeline.timeline import Timeline

    found = table(tmp_path)
    commit(found, {KEYS.checkpoint: "1"})
    monkeypatch.setattr(Timeline, "archived", None)
    assert recorded(found).checkpoint == "1"
