"""Where a setting's value comes from: flag, environment, project, user, default; profiles; secrets; variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.base.config import Loaded, load
from skep_format.errors import OptionError


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "project" / "inner").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "skep").mkdir(parents=True)


def loaded(tmp_path: Path, flags: dict[str, object] | None = None, profile: str | None = None) -> Loaded:
    return load(flags, profile=profile, folder=tmp_path / "project" / "inner", home=tmp_path / "home")


def project(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "project" / "skep.toml"
    path.write_text(text)
    return path


def user(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "home" / ".config" / "skep" / "skep.toml"
    path.write_text(text)
    return path


def test_the_stronger_layer_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def database() -> str:
        return loaded(tmp_path).settings.database

    assert database() == "default"
    user(tmp_path, 'database = "of_user"')
    assert database() == "of_user"
    project(tmp_path, 'database = "of_project"')
    assert database() == "of_project"
    monkeypatch.setenv("SKEP__DATABASE", "of_environment")
    assert database() == "of_environment"
    assert loaded(tmp_path, {"database": "of_flag", "metastore": None}).settings.database == "of_flag"


def test_every_value_shows_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project(tmp_path, 'database = "sales"\n[options]\n"hoodie.index.type" = "SIMPLE"\nhoodie.x = 3\n')
    monkeypatch.setenv("SKEP__OPTIONS", '{"hoodie.x": "4"}')
    rows = loaded(tmp_path, {"output": "json"}).origins()
    origins = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert origins["database"] == ("sales", str(file))
    assert origins["options.hoodie.index.type"] == ("SIMPLE", str(file))
    assert origins["options.hoodie.x"] == ("4", "environment")
    assert origins["output"] == ("json", "flag")
    assert origins["warehouse"] == ("skep-warehouse", "default")


def test_a_profile_replaces_values_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'metastore = "thrift://a:1"\ndatabase = "d"\n[profiles.prod]\nmetastore = "thrift://b:2"\n'
    file = project(tmp_path, text)
    assert loaded(tmp_path).settings.metastore == "thrift://a:1"
    prod = loaded(tmp_path, profile="prod")
    assert (prod.settings.metastore, prod.settings.database) == ("thrift://b:2", "d")
    assert prod.origins()[0]["origin"] == f"{file} [profiles.prod]"
    monkeypatch.setenv("SKEP__PROFILE", "prod")
    assert loaded(tmp_path).settings.metastore == "thrift://b:2"
    with pytest.raises(OptionError, match="no file has a profile test; there are: prod"):
        loaded(tmp_path, profile="test")


def test_the_file_may_choose_the_profile(tmp_path: Path) -> None:
    project(tmp_path, 'profile = "dev"\n[profiles.dev]\ndatabase = "d"\n')
    assert loaded(tmp_path).profile == "dev"
    assert loaded(tmp_path).settings.database == "d"


def test_pyproject_serves_as_the_projects_file(tmp_path: Path) -> None:
    (tmp_path / "project" / "pyproject.toml").write_text('[tool.skep]\ndatabase = "p"\n')
    assert loaded(tmp_path).settings.database == "p"


def test_a_relative_warehouse_counts_from_its_file(tmp_path: Path) -> None:
    project(tmp_path, 'warehouse = "lake"')
    assert loaded(tmp_path).settings.warehouse == str(tmp_path / "project" / "lake")
    project(tmp_path, 'warehouse = "s3://bucket/lake"')
    assert loaded(tmp_path).settings.warehouse == "s3://bucket/lake"


def test_variables_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, 'metastore = "thrift://${HMS}:${HMS_PORT:-9083}"')
    monkeypatch.setenv("HMS", "lake")
    assert loaded(tmp_path).settings.metastore == "thrift://lake:9083"
    monkeypatch.delenv("HMS")
    with pytest.raises(OptionError, match="metastore needs the environment variable HMS") as error:
        loaded(tmp_path)
    assert error.value.fields["option"] == "metastore"


def test_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    project(tmp_path, '[options]\n"fs.s3a.secret.key" = "${SECRET}"\n')
    found = loaded(tmp_path)
    assert found.settings.options == {"fs.s3a.secret.key": "hunter2"}
    assert "hunter2" not in str(found.origins())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('warehous = "x"', "unknown setting warehous\n  hint: did you mean warehouse?"),
        ("database = [1, 2]", "database is a text, not [1, 2]"),
        ('options = "x"', "options is names and values, not 'x'"),
        ("database =", "can't be read"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(tmp_path: Path, text: str, message: str) -> None:
    file = project(tmp_path, text)
    with pytest.raises(OptionError) as error:
        loaded(tmp_path)
    assert str(file) in str(error.value)
    assert message in str(error.value)


def test_a_wrong_environment_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP__WAREHOUS", "x")
    with pytest.raises(OptionError, match="environment: unknown setting warehous"):
        loaded(tmp_path)


@pytest.mark.parametrize("text", ["hoodie.x=1", "[1]", '"x"'])
def test_options_of_the_environment_are_a_json_object(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("SKEP__OPTIONS", text)
    with pytest.raises(OptionError, match="SKEP__OPTIONS is no JSON object of names and values") as error:
        loaded(tmp_path)
    assert error.value.fields["found"] == text


def test_the_metastore_of_hudis_sync_is_the_metastore_where_none_is_named(tmp_path: Path) -> None:
    project(tmp_path, '[options]\n"hoodie.datasource.hive_sync.metastore.uris" = "thrift://hms:9083"\n')
    found = loaded(tmp_path)
    assert found.settings.metastore == "thrift://hms:9083"
    assert [shown["origin"] for shown in found.origins() if shown["key"] == "metastore"] == ["options"]
    project(tmp_path, 'metastore = "thrift://own:9083"\n[options]\n"hive.metastore.uris" = "thrift://hms:9083"\n')
    assert loaded(tmp_path).settings.metastore == "thrift://own:9083"
