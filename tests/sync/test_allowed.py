"""Whose tables a service may touch: paths below its base paths, however a caller writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep_format.errors import InputError
from skep_sync.following.allowed import AllowedPaths, PathNotAllowedError

ALLOWED = AllowedPaths(["s3://lake/wh", "gs://bucket", "hdfs://nn:8020/data/"])


@pytest.mark.parametrize(
    "path",
    [
        "s3://lake/wh/db/t",
        "s3a://lake/wh/db/t",
        "s3n://lake/wh/db/t/",
        "S3A://lake/wh/t",
        "s3://lake/wh",
        "gs://bucket/any/table",
        "hdfs://nn:8020/data/t",
        "s3://lake/wh/day=2026 01/ü",
    ],
)
def test_tables_below_are_allowed(path: str) -> None:
    assert ALLOWED.check(path) == path.rstrip("/")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "s3://lake",
        "s3://lake/whatever/t",
        "s3://lake/other/t",
        "s3://Lake/wh/t",
        "s3://other/wh/t",
        "gs://lake/wh/t",
        "hdfs://nn:9000/data/t",
        "hdfs://other/data/t",
        "/wh/t",
        "wh/t",
        "s3:lake/wh/t",
        "s3://lake/wh/../other/t",
        "s3://lake/wh/./t",
        "s3://lake/wh//t",
        "s3://lake/wh/..",
        "s3://lake/wh/%2e%2e/other/t",
        "s3://lake/wh/%2E./other",
        "s3://lake/wh/%252e%252e/other",
        "s3://lake/wh/a%2f..%2fother",
        "s3://lake/wh/..%5cother",
        "s3://lake/wh/t?versionId=1",
        "s3://lake/wh/t#x",
        "s3://lake\\@evil/wh/t",
        "s3://user@lake/wh/t",
        "s3://lake/wh/t\x00",
        "s3://lake/wh/t\n",
        "s3://lake/wh/*",
        "s3://lake/wh/t/.hoodie/metadata",
        "s3://lake/wh/" + "x" * 5000,
        "file://host/wh/t",
    ],
)
def test_anything_else_is_refused(path: str) -> None:
    with pytest.raises(PathNotAllowedError):
        ALLOWED.check(path)


class TestLocalFolders:
    def test_links_are_followed_before_they_are_judged(self, tmp_path: Path) -> None:
        inside, outside = tmp_path / "inside", tmp_path / "outside"
        (inside / "t").mkdir(parents=True)
        outside.mkdir()
        (inside / "way-out").symlink_to(outside)
        (tmp_path / "also-inside").symlink_to(inside)
        allowed = AllowedPaths([str(inside)])
        assert allowed.check(f"file:{inside}/t")
        assert allowed.check(f"file://{inside}/t/")
        assert allowed.check(str(tmp_path / "also-inside" / "t"))
        with pytest.raises(PathNotAllowedError):
            allowed.check(str(inside / "way-out" / "t"))
        with pytest.raises(PathNotAllowedError):
            allowed.check(str(tmp_path / "inside-out"))

    def test_a_relative_base_path_counts_from_the_working_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert AllowedPaths(["wh"]).check(str(tmp_path / "wh" / "t"))


def test_no_base_path_is_no_permission() -> None:
    with pytest.raises(InputError, match="no base path"):
        AllowedPaths([])
