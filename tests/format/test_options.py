"""Options: the errors of wrong values, and which unknown keys are warned of."""

from __future__ import annotations

import builtins
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

import skep.handles.by_path  # noqa: F401 - with it all packages register their options
import skep_sync.options
import skep_writer  # noqa: F401
from skep_format.errors import OptionError
from skep_format.options import REGISTRY, Option, Options, Registry, Status, UnknownOptionWarning, at_least, boolean

NO_VALUE = "@no value@"


def checked(*keys: str) -> list[str]:
    """The warnings of one check."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Options(dict.fromkeys(keys, "1")).check()
    return [str(warning.message) for warning in caught if warning.category is UnknownOptionWarning]


@pytest.mark.parametrize(
    ("parse", "default", "expected_message"),
    [
        (int, 1, "is not a whole number"),
        (float, 1.0, "is not a number"),
        (at_least(2), 2, "is not a whole number"),
        (boolean, True, "is not true or false"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_in_plain_words(
    parse: Callable[[str], object], default: object, expected_message: str
) -> None:
    key = f"skep.test.{expected_message.replace(' ', '.')}.{default}"
    known = Option(key, parse, default)  # not registered: other tests go through the registry
    with pytest.raises(OptionError) as error:
        Options({key: "abc"}).value(known)
    assert str(error.value) == f"option {key}: 'abc' {expected_message}"


@pytest.mark.parametrize(
    "known", [each for each in REGISTRY if each.status is Status.SUPPORTED], ids=lambda known: known.key
)
def test_no_option_answers_in_pythons_words(known: object) -> None:
    assert isinstance(known, type(skep_sync.options.ENABLE))
    try:
        Options({known.key: NO_VALUE}).value(known)
    except OptionError as error:
        _, _, expected = str(error).partition(f"'{NO_VALUE}' is not ")
        assert expected
        for word in (NO_VALUE, "invalid", "literal", "could not", "convert", "parse_", "<"):
            assert word not in expected


def test_an_unknown_option_is_warned_of_once() -> None:
    assert len(checked("hoodie.test.nobody.knows.one")) == 1
    assert checked("hoodie.test.nobody.knows.one") == []
    assert len(checked("hoodie.test.nobody.knows.one", "hoodie.test.nobody.knows.other")) == 1


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("hoodie.datasource.write.recordkey.feild", "hoodie.datasource.write.recordkey.field"),
        ("hoodie.datasource.write.partitionpath.feild", "hoodie.datasource.write.partitionpath.field"),
        ("hoodie.parquet.small.file.limits", "hoodie.parquet.small.file.limit"),
        ("hoodie.datasource.write.colour", None),
        ("hoodie.datasource.write.streaming.thing", None),
        ("hoodie.metadata.nobody.knows", None),
        ("skep.nothing", None),
    ],
)
def test_only_what_is_near_is_suggested(key: str, meant: str | None) -> None:
    (warning,) = checked(key)
    assert warning == f"unknown option {key}" + (f"; did you mean {meant}?" if meant else "")


@pytest.mark.parametrize("key", ["batchid", "hodie.parquet.small.file.limit", "skp.write.lossy.casts"])
def test_an_option_that_nobody_reads_is_warned_of(key: str) -> None:
    with pytest.warns(UnknownOptionWarning, match=f"unknown option {key}"):
        Options({key: "1"}).check()


@pytest.mark.parametrize("key", ["fs.s3a.endpoint", "aws_region", "spark.hadoop.fs.s3a.endpoint", "bootstrap.servers"])
def test_options_of_others_are_theirs(key: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options({key: "1"}).check()


def test_a_thread_waits_for_options_that_another_is_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on, registry = threading.Event(), threading.Event(), Registry()
    late = Option("hoodie.late", str, "")

    def imported() -> None:
        began.set()
        assert go_on.wait(60)
        registry.add(late)

    monkeypatch.setattr(builtins, "imported_by_test", imported, raising=False)
    (tmp_path / "late_options.py").write_text("imported_by_test()")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.add_later("late_options")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(registry.find, "hoodie.late")
        assert began.wait(60)
        second = pool.submit(registry.find, "hoodie.late")
        second_ended = wait([second], 0.2).done
        go_on.set()
        assert (first.result(), second.result()) == (late, late)
    assert not second_ended
