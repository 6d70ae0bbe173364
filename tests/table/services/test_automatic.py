"""What follows a commit by the options, what maintenance does, and partitions whose time is up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import OptionError
from skep_format.properties import parse_properties
from skep_format.timeline.instant import Action
from skep_table import plug_ins
from skep_table.services.automatic import after_commit, check_automatic, maintain
from skep_table.services.cleaning.clean import clean, is_clean_due, last_clean, plan_clean, schedule_clean
from skep_table.services.cleaning.ttl import expire_partitions, expired_partitions
from skep_table.write.local import LocalWriter

PLAN = "clustering__plan__strategy__"


def asked(maker: Any, **options: Any) -> list[tuple[str, bool]]:
    return [(step.service, step.later) for step in after_commit(maker.table.with_context(**maker.setting(**options)))]


def run(maker: Any, steps: Any) -> list[tuple[str, str]]:
    return [(done.service, done.state) for step in steps for done in step.run()]


def commits(maker: Any, count: int, part: str = "p") -> None:
    for number in range(count):
        maker.upsert(number, f"{part}/a")


def test_by_default_old_slices_are_cleaned_after_a_commit(maker: Any) -> None:
    commits(maker, 10)
    assert asked(maker) == []
    maker.upsert(10, "p/a")
    assert asked(maker) == [("clean", False)]
    assert asked(maker, clean__async=True) == [("clean", True)]
    assert asked(maker, clean__automatic=False) == []
    assert (
        run(maker, after_commit(maker.table.with_context(**maker.setting()))) == []
    )  # the slice of the 1st is read as of the 2nd
    maker.upsert(11, "p/a")
    assert run(maker, after_commit(maker.table.with_context(**maker.setting()))) == [("clean", "completed")]


def test_so_many_commits_later_the_next_clean_is_looked_for(maker: Any) -> None:
    options = {"cleaner__commits__retained": 1, "clean__max__commits": 2}
    commits(maker, 3)
    assert clean(maker.table.with_context(**maker.setting(**options)))
    maker.upsert(3, "p/a")
    assert not is_clean_due(maker.table.with_context(**maker.setting(**options)))
    maker.upsert(4, "p/a")
    assert is_clean_due(maker.table.with_context(**maker.setting(**options)))


def test_the_commit_past_the_threshold_archives_down_to_the_least(maker: Any) -> None:
    keep = {"keep__max__commits": 4, "keep__min__commits": 3, "cleaner__commits__retained": 1}
    commits(maker, 4)
    assert ("archive", False) not in asked(maker, **keep)
    maker.upsert(4, "p/a")
    assert asked(maker, **keep)[-1] == ("archive", False)
    assert asked(maker, **keep, archive__async=True)[-1] == ("archive", True)
    assert ("archive", False) not in asked(maker, **keep, archive__automatic=False)
    assert ("archive", "completed") in run(maker, after_commit(maker.table.with_context(**maker.setting(**keep))))
    assert len(maker.table.timeline.data()) == 3


def test_clustering_after_every_fourth_commit(maker: Any) -> None:
    commits(maker, 3)
    inline = {"clustering__inline": True, f"{PLAN}sort__columns": "ts"}
    assert asked(maker, **inline) == []
    maker.upsert(3, "q/b")
    assert asked(maker) == []
    assert asked(maker, clustering__schedule__inline=True) == [("cluster", False)]
    assert asked(maker, clustering__async__enabled=True) == [("cluster", False), ("cluster", True)]
    assert run(maker, after_commit(maker.table.with_context(**maker.setting(**inline)))) == [("cluster", "completed")]
    assert asked(maker, **inline) == []


def test_semi_async_clustering_is_planned_here_and_carried_out_elsewhere(maker: Any) -> None:
    commits(maker, 2)
    setting = maker.setting(
        clustering__schedule__inline=True, clustering__inline__max__commits=2, **{f"{PLAN}sort__columns": "ts"}
    )
    assert run(maker, after_commit(maker.table.with_context(**setting))) == [("cluster", "scheduled")]
    assert run(maker, maintain(maker.table.with_context(**maker.setting()))) == [("cluster", "completed")]


def test_compaction_comes_before_all_others(mor_maker: Any) -> None:
    commits(mor_maker, 6)
    options = {
        "compact__inline": True,
        "clustering__inline": True,
        f"{PLAN}sort__columns": "ts",
        "cleaner__commits__retained": 1,
        "keep__max__commits": 3,
        "keep__min__commits": 2,
    }
    assert [name for name, _ in asked(mor_maker, **options)] == ["compact", "cluster", "clean", "archive"]
    before = mor_maker.rows()
    done = run(mor_maker, after_commit(mor_maker.table.with_context(**mor_maker.setting(**options))))
    assert done[:2] == [("compact", "completed"), ("cluster", "completed")]
    assert mor_maker.rows() == mor_maker.rows(query="read_optimized") == before


def test_compaction_inline_scheduled_and_beside(mor_maker: Any) -> None:
    commits(mor_maker, 4)
    assert asked(mor_maker, compact__inline=True) == []
    mor_maker.upsert(4, "p/a")
    assert asked(mor_maker, compact__inline=False) == []
    assert asked(mor_maker) == asked(mor_maker, compact__inline=True) == [("compact", False)]
    assert asked(mor_maker, compact__schedule__inline=True) == [("compact", False)]
    beside = {"datasource__compaction__async__enable": True}
    assert asked(mor_maker, **beside) == [("compact", False), ("compact", True)]
    run(mor_maker, after_commit(mor_maker.table.with_context(**mor_maker.setting(**beside))))
    assert not mor_maker.table.timeline.pending()
    assert mor_maker.rows(query="read_optimized") == {"p/a": 4}


def test_contradictions_are_refused_by_name(maker: Any) -> None:
    for pair in (
        ("compact__inline", "compact__schedule__inline"),
        ("clustering__inline", "clustering__schedule__inline"),
    ):
        with pytest.raises(OptionError, match="exclude each other"):
            check_automatic(maker.setting(**dict.fromkeys(pair, True))["options"])
    with pytest.raises(OptionError, match=r"commits\.retained=20 is not below hoodie\.keep\.min\.commits=20"):
        check_automatic(maker.setting(cleaner__commits__retained=20)["options"])
    check_automatic(maker.setting(cleaner__commits__retained=20, archive__automatic=False)["options"])


def test_maintenance_does_what_is_due_and_then_nothing(mor_maker: Any) -> None:
    commits(mor_maker, 6)
    options = {"cleaner__commits__retained": 1, "keep__max__commits": 3, "keep__min__commits": 2}
    before = mor_maker.rows()
    first = run(mor_maker, maintain(mor_maker.table.with_context(**mor_maker.setting(**options))))
    assert first[0] == ("compact", "completed")
    run(mor_maker, maintain(mor_maker.table.with_context(**mor_maker.setting(**options))))
    assert run(mor_maker, maintain(mor_maker.table.with_context(**mor_maker.setting(**options)))) == []
    assert mor_maker.rows() == before


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_the_first_clean_looks_only_where_commits_wrote(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nothing is archived, the active timeline knows all that was ever written."""
    from skep_table.view.listing import StorageListing

    for part in "abcdef":
        maker.upsert(1, f"{part}/x")
    maker.upsert(2, "a/x")
    maker.upsert(3, "f/x")

    def refuse(self: Any) -> list[str]:
        raise AssertionError("all partitions were listed")

    monkeypatch.setattr(StorageListing, "partitions", refuse)
    plan = plan_clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert set(plan.file_paths_to_be_deleted_per_partition) == {"a"}


def test_cleans_that_find_nothing_still_let_the_archiver_go_on(maker: Any) -> None:
    """Inserts only: nothing is ever to be deleted, and the timeline must not grow for ever."""
    keep = {"keep__max__commits": 5, "keep__min__commits": 3, "cleaner__commits__retained": 2}
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
    for number in range(12):
        frame = pa.table([[str(number)], ["p"], [number]], schema=schema)
        LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(frame)
        run(maker, after_commit(maker.table.with_context(**maker.setting(**keep))))
        assert len(maker.table.timeline.data()) <= 5
    assert last_clean(maker.table).total_files_deleted == 0
    assert len(maker.rows()) == 12
    cleans = len(maker.table.timeline.of(Action.CLEAN))
    assert schedule_clean(maker.table.with_context(**maker.setting(**keep))) is None
    assert len(maker.table.timeline.of(Action.CLEAN)) == cleans < 8


# -- time to live


def days_later(maker: Any, days: float) -> None:
    from datetime import timedelta

    maker.clock.start += timedelta(days=days)


def test_partitions_expire_by_their_last_write(maker: Any) -> None:
    maker.upsert(1, "old/a", "kept/a")
    days_later(maker, 5)
    maker.upsert(2, "kept/b", "new/a")
    days_later(maker, 6)
    ttl = {"partition__ttl__strategy__days__retain": 10}
    assert expired_partitions(maker.table.with_context(**maker.setting(**ttl))) == ["old"]
    (done,) = expire_partitions(maker.table.with_context(**maker.setting(**ttl)))
    assert set(maker.rows()) == {"kept/a", "kept/b", "new/a"}
    assert maker.table.commit_metadata(done.instant).operation_type.value == "DELETE_PARTITION"
    assert expire_partitions(maker.table.with_context(**maker.setting(**ttl))) == []
    maker.upsert(3, "old/b")
    assert set(maker.rows()) == {"kept/a", "kept/b", "new/a", "old/b"}


def test_partitions_expire_by_their_creation(maker: Any) -> None:
    maker.upsert(1, "old/a", "kept/a")
    days_later(maker, 5)
    maker.upsert(2, "kept/b", "new/a")
    days_later(maker, 6)
    ttl = {
        "partition__ttl__strategy__days__retain": 10,
        "partition__ttl__management__strategy__type": "KEEP_BY_CREATION_TIME",
    }
    assert expired_partitions(maker.table.with_context(**maker.setting(**ttl))) == ["kept", "old"]
    most = {"partition__ttl__strategy__max__delete__partitions": 1}
    assert expired_partitions(maker.table.with_context(**maker.setting(**ttl, **most))) == ["kept"]
    only = {"partition__ttl__strategy__partition__selected": "old,new"}
    assert expired_partitions(maker.table.with_context(**maker.setting(**ttl, **only))) == ["old"]


def test_expiry_strategies_by_their_class(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_table.services import strategies

    def even(table: Any, partitions: Any, now: Any, options: Any) -> list[str]:
        return [path for path in partitions if path.endswith(("0", "2"))]

    known = {(strategies.TTL_GROUP, "even"): even}
    monkeypatch.setattr(plug_ins, "_strategy", lambda group, name: known.get((group, name)))
    maker.upsert(1, "p0/a", "p1/a")
    days_later(maker, 5)
    maker.upsert(2, "p0/b")
    days_later(maker, 6)
    days = {"partition__ttl__strategy__days__retain": 10}

    def found(name: str, **more: Any) -> list[str]:
        return expired_partitions(
            maker.table.with_context(**maker.setting(partition__ttl__strategy__class=name, **more))
        )

    assert found("org.apache.hudi.table.action.ttl.strategy.KeepByTimeStrategy", **days) == ["p1"]
    assert found("org.apache.hudi.table.action.ttl.strategy.KeepByCreationTimeStrategy", **days) == ["p0", "p1"]
    assert found("even") == ["p0"]
    with pytest.raises(OptionError, match="there is no strategy Nope"):
        found("Nope", **days)
    assert ("ttl", "completed") in run(
        maker, maintain(maker.table.with_context(**maker.setting(partition__ttl__strategy__class="even")))
    )
    assert set(maker.rows()) == {"p1/a"}


def test_a_delta_commit_counts_as_a_write(mor_maker: Any) -> None:
    mor_maker.upsert(1, "p/a")
    days_later(mor_maker, 5)
    mor_maker.upsert(2, "p/a")
    days_later(mor_maker, 6)
    ttl = {"partition__ttl__strategy__days__retain": 10}
    assert expired_partitions(mor_maker.table.with_context(**mor_maker.setting(**ttl))) == []
    days_later(mor_maker, 5)
    assert expired_partitions(mor_maker.table.with_context(**mor_maker.setting(**ttl))) == ["p"]


def test_nothing_expires_until_a_time_is_set(maker: Any) -> None:
    maker.upsert(1, "p/a")
    days_later(maker, 5000)
    assert expired_partitions(maker.table.with_context(**maker.setting())) == []
    with pytest.raises(OptionError, match=r"days\.retain"):
        expire_partitions(maker.table.with_context(**maker.setting()))


def test_after_a_dropped_partition_time_travel_answers_until_the_clean(maker: Any) -> None:
    first = maker.upsert(1, "old/a")
    days_later(maker, 11)
    maker.upsert(2, "new/a")
    (step,) = after_commit(
        maker.table.with_context(
            **maker.setting(partition__ttl__inline=True, partition__ttl__strategy__days__retain=10)
        )
    )
    step.run()
    assert maker.rows() == {"new/a": 2}
    assert maker.rows(as_of=first) == {"old/a": 1}
    assert "commitTime" in parse_properties((maker.folder / "old" / ".hoodie_partition_metadata").read_bytes())
    maker.upsert(3, "new/a")
    maker.upsert(4, "new/a")
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert not [path for path in maker.files() if path.startswith("old/")]
