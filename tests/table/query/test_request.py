"""What a read asks for: Hudi's keys, times as people write them, and what does not go together."""

from __future__ import annotations

import pickle

import pytest

from skep_format.errors import InputError, OptionError
from skep_format.options import Options
from skep_table.query.options import QueryType
from skep_table.query.request import ReadRequest, instant_text


def test_hudis_read_keys() -> None:
    incremental = ReadRequest.of(
        Options(
            {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": "20260101000000000",
                "hoodie.datasource.read.end.instanttime": "20260102000000000",
                "hoodie.datasource.read.incr.path.glob": "/2026/*",
            }
        )
    )
    assert incremental.query is QueryType.INCREMENTAL
    assert (incremental.since, incremental.until) == ("20260101000000000", "20260102000000000")
    assert incremental.path_glob == "/2026/*"
    assert ReadRequest.of(Options({"hoodie.datasource.view.type": "read_optimized"})).query is QueryType.READ_OPTIMIZED
    cdc = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
    assert ReadRequest.of(Options(cdc)).query is QueryType.CDC
    assert ReadRequest.of(Options(cdc)).since is None  # from the beginning
    assert ReadRequest.of(Options({"as.of.instant": "2026-01-01"})).as_of == "2026-01-01"


def test_arguments_win_over_keys() -> None:
    request = ReadRequest.of(Options({"hoodie.datasource.query.type": "incremental"}), query="snapshot", since=None)
    assert request.query is QueryType.SNAPSHOT


def test_unknown_query_type() -> None:
    with pytest.raises(OptionError, match=r"hoodie\.datasource\.query\.type"):
        ReadRequest.of(Options({"hoodie.datasource.query.type": "newest"}))
    with pytest.raises(InputError, match="unknown query"):
        ReadRequest(query="newest")


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": "incremental", "as_of": "2026-01-01"},
        {"since": "000"},
        {"until": "2026-01-01"},
        {"path_glob": "*"},
        {"limit": -1},
        {"columns": ("a", "a")},
    ],
)
def test_what_does_not_go_together(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        ReadRequest(**wrong)  # type: ignore[arg-type]


def test_requests_travel() -> None:
    request = ReadRequest(query="cdc", since="000", columns=("op",))
    assert pickle.loads(pickle.dumps(request)) == request


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("20261121020358015", "20261121020358015"),
        ("20261121020358", "20261121020358"),
        ("00000000000001", "00000000000001"),
        ("000", "000"),
        ("earliest", "000"),
        ("2026-11-21", "20261121000000000"),
        ("2026-11-21 02:03:58", "20261121020358000"),
        ("2026-11-21 02:03:58.015", "20261121020358015"),
        ("2026-11-21T02:03:58.015Z", "20261121020358015"),
        ("2026-11-21T03:03:58.015+01:00", "20261121020358015"),
    ],
)
def test_times_as_people_write_them(text: str, instant: str) -> None:
    assert instant_text(text, "UTC") == instant


@pytest.mark.parametrize("text", ["", "yesterday", "2026", "20261121", "2026-13-01", "20261121-020358"])
def test_no_time(text: str) -> None:
    with pytest.raises(InputError, match="is no time"):
        instant_text(text, "UTC")
