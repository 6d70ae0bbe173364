"""The examples of README.md and docs/ run unchanged, and the list of public names is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import skep
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?P<kind>python|console)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ALL_TABLES = re.compile(r"^\$ skep .*--(all|pending)\b", re.MULTILINE)


def blocks(page: Path, kind: str) -> list[str]:
    return [found["code"] for found in BLOCK.finditer(page.read_text(encoding="utf-8")) if found["kind"] == kind]


def with_examples() -> list[Path]:
    return [page for page in PAGES if blocks(page, "python") or "$ " in "".join(blocks(page, "console"))]


@pytest.fixture(scope="module")
def shared_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMetastore]:
    """Only for pages with commands that are given to all tables."""
    with EmbeddedMetastore.start_or_join(tmp_path_factory.mktemp("warehouse")) as server:
        yield server


@contextmanager
def left_as_it_was(server: EmbeddedMetastore) -> Iterator[None]:
    """Drops the databases and the tables that a page makes: no page finds those of another one."""
    with Metastore.connect(server.uri) as client:
        databases, tables = set(client.databases()), set(client.tables("default"))
    yield
    with Metastore.connect(server.uri) as client:
        for database in set(client.databases()) - databases:
            client.drop_database(database, cascade=True)
        for table in set(client.tables("default")) - tables:
            client.drop_table("default", table)


@pytest.mark.metastore
@pytest.mark.spark
@pytest.mark.engine("spark")
@pytest.mark.parametrize("page", with_examples(), ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The Python blocks as one program, then the console lines that begin with `$ `, all in one empty folder.

    The settings name a metastore that runs, but for the page about metastores: that saves starting twenty.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "no-settings"),
        "HOME": str(tmp_path),
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_LAUNCHER_OPTS']} -Dspark.sql.warehouse.dir={tmp_path}/tables",
    }
    folder = tmp_path / "work"
    folder.mkdir()
    with ExitStack() as stack:
        if page.stem == "glue":
            glue = request.getfixturevalue("glue_options")
            environment["AWS_ENDPOINT_URL"] = glue["hoodie.aws.glue.endpoint"]
            environment |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
            environment |= {"AWS_DEFAULT_REGION": "us-east-1"}
        elif page.stem != "metastore":
            of_all = ALL_TABLES.search(page.read_text(encoding="utf-8"))
            server = request.getfixturevalue("shared_metastore" if of_all else "metastore_server")
            stack.enter_context(left_as_it_was(server))
            environment["SKEP__METASTORE"] = server.uri
        run_page(page, folder, environment)


def run_page(page: Path, folder: Path, environment: dict[str, str]) -> None:
    if code := "\n".join(blocks(page, "python")):
        run([sys.executable, "-c", code], folder, environment)
    for line in "".join(blocks(page, "console")).splitlines():
        if line.startswith("$ "):
            run(["bash", "-c", line[2:]], folder, environment)


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, f"{command[-1]}\n{answer.stdout}\n{answer.stderr}"


def test_the_page_of_names_is_complete() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
    assert named == set(skep.__all__)
    for name in skep.__all__:
        assert getattr(skep, name) is not None


def test_the_page_of_names_shows_methods_that_exist() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for kind in ("Lake", "Table", "Rows", "SqlResult", "WriteResult"):
        (row,) = re.findall(rf"^\| `{kind}` \|(.*)\|$", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row.partition(":")[2] or row):
            cls = getattr(skep, kind)
            known = set(dir(cls)) | set(getattr(cls, "__dataclass_fields__", ()))
            assert name in known | {"metastore", "schema"}, f"{kind}.{name}"


def test_skeps_own_options_are_all_reported_once() -> None:
    import skep.flows.streams  # noqa: F401 - registers what streams, syncs and metastores read
    from skep_format.options import REGISTRY

    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    own = [option.key for option in REGISTRY if option.key.startswith("skep.")]
    assert sorted(own) == sorted(re.findall(r"^\| `(skep\.[\w.]+)`", text, re.MULTILINE))


def test_tests_that_pages_name_are_there() -> None:
    named = {found for page in PAGES for found in re.findall(r"`(tests/[\w/]+\.py(?:::\w+)*)`", page.read_text())}
    assert named
    for name in named:
        file, *parts = name.split("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        for part in parts:
            assert re.search(rf"^\s*(def|class) {part}\b", text, re.MULTILINE), name
