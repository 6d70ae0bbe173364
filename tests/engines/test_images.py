"""What the images are made by, without a docker: templates, start scripts, the compose file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from engine_images import DEFAULTS, IMAGES, INSIDE, start_script, tag
from engine_services import HERE, SERVICES, Parts, command_of, fill, setup_of, values_of

from skep.serve.run import HttpSettings

PARTS = Parts((INSIDE / "lib" / "000-a.jar", INSIDE / "lib" / "001-classes"), INSIDE / "home")


@pytest.mark.parametrize("name", SERVICES)
def test_every_name_in_settings_and_commands_has_a_value(name: str) -> None:
    service = SERVICES[name]
    values = values_of(service, {**DEFAULTS, "PORT": "1"})
    templates = [path.read_text() for path in (HERE / "conf" / service.settings).rglob("*") if path.is_file()]
    commands = [*command_of(service, PARTS, Path("/conf")), *(setup_of(service, PARTS, Path("/conf")) or [])]
    for text in (*templates, *commands):
        assert not re.search(r"@[A-Z_]+@", fill(text, values))


@pytest.mark.parametrize("name", SERVICES)
def test_start_scripts_are_shell_and_take_the_environment(name: str, tmp_path: Path) -> None:
    script = (
        start_script(SERVICES[name], PARTS).replace("exec java", "exec printf '%s\\n'").replace("  java ", "  true ")
    )
    settings = HERE / "conf" / SERVICES[name].settings
    script = script.replace("/tmp/service", str(tmp_path / "service")).replace(f"{INSIDE}/conf/.", f"{settings}/.")
    ran = subprocess.run(
        ["sh", "-c", script],
        env={"PATH": "/usr/bin:/bin", "HOME": "/root", "FOLDER": str(tmp_path / "mine"), "PORT": "4711"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "@" not in ran.stdout
    words = ran.stdout.splitlines()
    assert SERVICES[name].main in words
    assert ("4711" in words) == ("@PORT@" in SERVICES[name].arguments)
    filled = [path.read_text() for path in (tmp_path / "service" / "conf").rglob("*") if path.is_file()]
    assert filled
    plugins = re.findall(r"plugin\.dir=(.*)", "\n".join([ran.stdout, *filled]))
    assert plugins == [str(INSIDE / "home" / "plugin")] * (name.partition("-")[0] in ("presto", "trino"))


def test_the_compose_file_names_images_that_can_be_built() -> None:
    compose = yaml.safe_load((HERE / "compose.yaml").read_text())
    wanted = {service["image"].partition(":")[::2] for service in compose["services"].values()}
    built = {tag(name).partition(":")[::2] for name in IMAGES}
    assert {(image, version or "latest") for image, version in wanted} <= built
    for service in compose["services"].values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert set(service.get("depends_on", ())) <= set(compose["services"])


def test_the_compose_files_token_is_one_that_skep_serve_takes() -> None:
    service = yaml.safe_load((HERE / "compose.yaml").read_text())["services"]["skep"]
    default = re.fullmatch(r"\$\{SKEP_SERVE_TOKEN:-(.+)\}", service["environment"]["SKEP_SERVE_TOKEN"])
    assert default is not None
    HttpSettings(host="0.0.0.0", token=default[1]).check()
