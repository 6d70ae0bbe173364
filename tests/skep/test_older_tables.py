"""Tables of versions before 6 at the front door: shown, read, refused to writers, upgraded by commands and writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep_format.errors import TableMismatchError, TableVersionError
from skep_table.table import HudiTable

ROWS = pa.table(
    {
        "id": ["a", "z"],
        "name": ["A", "Z"],
        "qty": pa.array([1, 2], pa.int32()),
        "price": [0.5, 1.5],
        "day": ["2021-03-01", "2021-03-02"],
        "ts": [99, 99],
    }
)
KNOWN = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "day"}
UNSTATED = ("recordkey.fields", "partition.fields", "keygenerator.class")


@pytest.fixture
def older(older_golden: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A table of one's own; of version 1 with what it does not state."""

    def copy(case: str, version: int | None = None) -> Path:
        path = tmp_path / case
        shutil.copytree(older_golden / case / "table", path)
        if version is not None:
            settings = path / ".hoodie/hoodie.properties"
            kept = [line for line in settings.read_text().splitlines() if not any(key in line for key in UNSTATED)]
            text = "\n".join(kept)
            settings.write_text(text.replace("hoodie.table.version=2", f"hoodie.table.version={version}"))
        return path

    return copy


def ran(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, [*arguments, "--output", "jsonl"])
    return found.exit_code, found.output + (found.stderr if found.stderr_bytes else "")


def test_commands_show_read_and_upgrade(older: Callable[..., Path]) -> None:
    path = str(older("v2_mor", 1))
    assert '"fact": "table version", "value": "1"' in ran("show", path)[1].replace('":"', '": "').replace(',"', ', "')
    assert ran("read", path)[1].count("\n") == 4
    code, output = ran("upgrade", path, "--to", "6")
    assert code != 0
    assert "which columns identify a row" in output
    options = [text for key, value in KNOWN.items() for text in ("--option", f"{key}={value}")]
    assert '"set"' in ran("upgrade", path, "--to", "6", "--plan", *options)[1]
    assert ran("upgrade", path, "--to", "6", *options)[0] == 0
    assert HudiTable.open(path).config.version == 6


@pytest.mark.parametrize("to", [6, 9])
def test_a_write_upgrades_with_what_its_options_state(older: Callable[..., Path], to: int) -> None:
    path = older("v2_cow", 1)
    write = skep.write(ROWS).options(**KNOWN)
    with pytest.raises(TableVersionError, match="has version 1, which is read"):
        write.mode("append").save(str(path))
    upgrading = {"hoodie.write.auto.upgrade": "true", "hoodie.write.table.version": str(to)}
    write.options(**upgrading).mode("append").save(str(path))
    table = skep.open_table(str(path))
    assert (table.hudi.config.version, table.read().count()) == (to, 5)


def test_what_an_older_table_states_is_not_contradicted(older: Callable[..., Path]) -> None:
    path = older("v2_cow")
    given = {"hoodie.datasource.write.recordkey.field": "name", "hoodie.write.auto.upgrade": "true"}
    with pytest.raises(TableMismatchError, match="recordkey"):
        skep.write(ROWS).options(**given).mode("append").save(str(path))
    assert HudiTable.open(path).config.version == 2


def test_checks_of_an_older_table_find_nothing(older: Callable[..., Path]) -> None:
    for case in ("v2_mor_long", "v5_cow_long"):
        code, output = ran("fsck", str(older(case)))
        assert (code, output.strip()) == (0, "")
