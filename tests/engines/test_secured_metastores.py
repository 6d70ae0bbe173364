"""Metastores that ask who calls: one with Kerberos, one that speaks TLS itself. Left to ./dev test --all.

The first needs a KDC (Debian: krb5-kdc, krb5-admin-server, krb5-user) and skep-hudi[kerberos], the second openssl.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme
from engine_launch import ProcessLauncher, Running, free_port, new_folder

from skep_catalog.client import Metastore
from skep_catalog.embedded import _OPENED_PACKAGES, _hive_site
from skep_catalog.java import find_java
from skep_catalog.settings import ConnectionSettings, Kerberos, Tls
from skep_catalog.spark import find_spark
from skep_format.distribution import install_command
from skep_format.errors import AuthenticationError, MetastoreUnreachableError

pytestmark = [pytest.mark.slow, pytest.mark.may_skip, pytest.mark.engine("metastore-secured")]

REALM = "SKEP.TEST"
SETTINGS = "<property><name>{}</name><value>{}</value></property>"


def start(
    processes: ProcessLauncher,
    scratch: Path,
    name: str,
    more: Mapping[str, str],
    how: ConnectionSettings,
    java_options: tuple[str, ...] = (),
) -> Running:
    """A metastore 2.3.9 of pyspark's jars with further settings."""
    folder = new_folder(scratch, name)
    extra = "".join(SETTINGS.format(*setting) for setting in more.items())
    site = _hive_site(folder / "warehouse").replace("</configuration>", f"{extra}</configuration>")
    (folder / "hive-site.xml").write_text(site)
    kerberos = SETTINGS.format("hadoop.security.authentication", "kerberos") if how.kerberos else ""
    (folder / "core-site.xml").write_text(f"<configuration>{kerberos}</configuration>")
    spark, port = find_spark(), free_port()
    command = [
        str(find_java(spark.version).executable),
        "-Xmx512m",
        *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
        *("--add-opens=java.sql/java.sql=ALL-UNNAMED", f"-Dderby.system.home={folder}"),
        *java_options,
        *("-cp", f"{folder}{os.pathsep}{spark.jars}/*", "org.apache.hadoop.hive.metastore.HiveMetaStore"),
        *("-p", str(port)),
    ]

    def ready(port: int) -> None:
        with Metastore.connect(f"thrift://localhost:{port}", how, attempts=1) as client:
            client.databases()

    return processes.run(name, command, port, ready, folder, {})


@pytest.fixture
def ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A KDC with a principal for the metastore and one for the caller, who has a ticket. Gives the KDC's folder."""
    sbin = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    programs = {name: shutil.which(name, path=sbin) for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")}
    if missing := [name for name, found in programs.items() if found is None]:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    for package in ("kerberos", "puresasl"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed: {install_command('kerberos')}")
    port = free_port()
    (tmp_path / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n"
        f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n[domain_realm]\n localhost = {REALM}\n"
    )
    (tmp_path / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
        f"[realms]\n {REALM} = {{\n  database_name = {tmp_path}/principal\n  key_stash_file = {tmp_path}/stash\n }}\n"
    )
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5_KDC_PROFILE", str(tmp_path / "kdc.conf"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")

    def run(name: str, *arguments: str) -> None:
        subprocess.run([programs[name], *arguments], check=True, capture_output=True, cwd=tmp_path)

    run("kdb5_util", "create", "-s", "-r", REALM, "-P", "pw")
    for principal in ("hive/localhost", "alice"):
        keytab = tmp_path / f"{principal.partition('/')[0]}.keytab"
        run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} {principal}")
    kdc = subprocess.Popen([str(programs["krb5kdc"]), "-r", REALM, "-n", "-P", str(tmp_path / "pid")], cwd=tmp_path)
    try:
        for _ in range(50):
            try:
                run("kinit", "-kt", str(tmp_path / "alice.keytab"), "alice")
                break
            except subprocess.CalledProcessError:
                if kdc.poll() is not None:
                    raise
        yield tmp_path
    finally:
        kdc.kill()
        kdc.wait()


def test_kerberos(ticket: Path, processes: ProcessLauncher, scratch: Path) -> None:
    how = ConnectionSettings(timeout=20, kerberos=Kerberos(f"hive/_HOST@{REALM}"))
    settings = {
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.keytab.file": str(ticket / "hive.keytab"),
        "hive.metastore.kerberos.principal": f"hive/localhost@{REALM}",
    }
    options = (
        f"-Djava.security.krb5.conf={ticket}/krb5.conf",
        "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    )
    running = start(processes, scratch, "metastore-kerberos", settings, how, options)
    uri = f"thrift://localhost:{running.port}"
    try:
        with Metastore.connect(uri, how) as client:
            for _ in range(3):
                assert "default" in client.databases()
        with pytest.raises(MetastoreUnreachableError):
            Metastore.connect(uri, ConnectionSettings(timeout=10, attempts=1)).databases()
        (ticket / "tickets").unlink()
        with pytest.raises(AuthenticationError, match=f"Kerberos with {uri} failed") as error:
            Metastore.connect(uri, how).databases()
        assert "kinit" in str(error.value.hint)
    finally:
        running.stop()


def test_tls_of_the_metastore_itself(processes: ProcessLauncher, scratch: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    export = ["openssl", "pkcs12", "-export", "-in", "server.pem", "-out", "server.p12", "-passout", "pass:secret"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True)
    settings = {
        "hive.metastore.use.SSL": "true",
        "hive.metastore.keystore.path": str(tmp_path / "server.p12"),
        "hive.metastore.keystore.password": "secret",
    }
    how = ConnectionSettings(timeout=20, tls=Tls(str(tmp_path / "ca.pem")))
    running = start(processes, scratch, "metastore-tls", settings, how)
    try:
        with Metastore.connect(f"thrift://localhost:{running.port}", how) as client:
            for _ in range(3):
                assert "default" in client.databases()
        with pytest.raises(AuthenticationError, match="not valid for"):
            Metastore.connect(f"thrift://127.0.0.1:{running.port}", how).databases()
    finally:
        running.stop()
