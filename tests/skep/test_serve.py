"""`skep serve` and `skep sync watch`: what callers get, what metastores get, what is left after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from ended_process import outcome

from skep.metastore.syncing import open_queue
from skep.serve.run import HttpSettings, ServiceSettings, serve
from skep_catalog.client import Metastore
from skep_format.errors import InputError
from skep_format.options import Options
from skep_format.storage import open_storage
from skep_sync.sync import plan_sync
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore

TOKEN = "correct-horse-battery-staple"
NOBODY = "thrift://127.0.0.1:1"
WAIT = 60.0


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def table(lake_folder: Path, database: str) -> HudiTable:
    """A table that no metastore knows yet; its own database is the test's."""
    path = str(lake_folder / "orders")
    rows = pa.table({"id": [1, 2], "day": ["2026-01-01", "2026-01-02"]})
    spec = TableSpec(name="orders", database=database, schema=rows.schema, record_key=("id",), partition_by=("day",))
    create_table(open_storage(path), spec)
    LocalWriter(HudiTable.open(path)).upsert(rows)
    return HudiTable.open(path)


def callback(table: HudiTable, **changed: object) -> bytes:
    """As Hudi sends it."""
    last = table.timeline.last()
    assert last is not None
    given = {
        "commitTime": last.requested_time,
        "tableName": table.config.name,
        "basePath": table.storage.root,
        "hoodieWriteStat": [{"path": "day=1/x.parquet", "numWrites": 2}],
    }
    return json.dumps({**given, **changed}).encode()


Started = Callable[..., httpx.Client]


@pytest.fixture
def serving(metastore: Metastore, lake_folder: Path) -> Iterator[Started]:
    """Serves in this process; the client sends the token unless `token` is given."""
    with contextlib.ExitStack() as stack:

        def start(options: dict[str, str] | None = None, *, token: str | None = TOKEN, **http: object) -> httpx.Client:
            address: list[str] = []
            ready, ended = threading.Event(), threading.Event()

            def notify(url: str) -> None:
                address.append(url)
                ready.set()

            settings = ServiceSettings(
                allowed=(str(lake_folder),),
                http=replace(HttpSettings(port=0, token=TOKEN), **http),  # type: ignore[arg-type]
            )
            thread = threading.Thread(
                target=serve,
                args=(metastore, str(lake_folder), Options(options), settings, ended),
                kwargs={"ready": notify},
            )
            thread.start()
            stack.callback(thread.join, WAIT)
            stack.callback(ended.set)
            assert ready.wait(WAIT)
            headers = {} if token is None else {"HUDI-CALLBACK-KEY": token}
            return stack.enter_context(httpx.Client(base_url=address[0], headers=headers, timeout=30))

        yield start


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


class TestCallbacks:
    def test_a_callback_is_queued_and_the_metastore_updated(
        self, serving: Started, table: HudiTable, metastore: Metastore, database: str
    ) -> None:
        client = serving()
        answer = client.post("/callback", content=callback(table))
        assert (answer.status_code, answer.json()) == (202, {"queued": ["main"]})
        until(lambda: metastore.find_table(database, "orders"))
        until(lambda: client.get("/pending").json() == [])
        assert not plan_sync(table, metastore, database, "orders")
        text = client.get("/metrics").text
        assert 'skep_callbacks_total{result="queued",source="http"} 1.0' in text
        assert 'skep_syncs_total{result="changed",target="main"} 1.0' in text

    def test_a_bearer_token_is_taken_too(self, serving: Started, table: HudiTable) -> None:
        client = serving(token=None)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert client.post("/callback", content=callback(table), headers=headers).status_code == 202

    @pytest.mark.parametrize("key", [None, "", "hudi_write_commit_http_callback", TOKEN + "x", "ü"])
    def test_without_the_token_nothing_is_reported_or_done(
        self, serving: Started, table: HudiTable, lake_folder: Path, key: str | None
    ) -> None:
        client = serving(token=None)
        headers = {} if key is None else {"HUDI-CALLBACK-KEY": key.encode()}
        refused = client.post("/callback", content=callback(table), headers=headers)  # type: ignore[arg-type]
        assert refused.status_code == 401
        assert TOKEN not in refused.text
        for page in ("/metrics", "/pending"):
            assert client.get(page, headers=headers).status_code == 401  # type: ignore[arg-type]
        assert client.get("/healthz").json() == {"status": "ok"}
        queue = open_queue({}, str(lake_folder))
        assert queue is not None
        assert queue.pending() == []

    @pytest.mark.parametrize(
        "path",
        ["/etc", "{lake}/../other", "{lake}/%2e%2e/other", "s3://lake/orders", "{lake}/orders/.hoodie/metadata"],
    )
    def test_paths_elsewhere_are_forbidden(
        self, serving: Started, table: HudiTable, lake_folder: Path, path: str
    ) -> None:
        client = serving()
        answer = client.post("/callback", content=callback(table, basePath=path.format(lake=lake_folder)))
        assert answer.status_code == 403
        assert client.get("/pending").json() == []

    def test_what_is_no_callback_is_refused(self, serving: Started) -> None:
        client = serving(body_bytes=1000)
        assert client.post("/callback", content=b"{").status_code == 400
        assert client.post("/callback", content=b"[" * 999).status_code == 400
        assert client.post("/callback", content=b" " * 1001).status_code == 413
        chunks = (b" " * 100 for _ in range(11))
        assert client.post("/callback", content=chunks).status_code == 413, "without a length, too"
        assert client.get("/callback").status_code == 405
        assert client.get("/").status_code == 404
        text = client.get("/metrics").text
        assert 'skep_callbacks_total{result="too_large",source="http"} 2.0' in text

    def test_a_queue_that_can_not_be_written_is_reported_to_the_caller(
        self, serving: Started, table: HudiTable, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("no folder")
        client = serving({"skep.sync.queue": str(tmp_path / "file")})
        assert client.post("/callback", content=callback(table)).status_code == 503

    def test_failures_are_reported(self, serving: Started, table: HudiTable) -> None:
        client = serving({"skep.sync.targets": "dr", "skep.sync.target.dr.uris": NOBODY})
        client.post("/callback", content=callback(table))
        until(lambda: [one["attempts"] for one in client.get("/pending").json()] >= [1])
        (left,) = client.get("/pending").json()
        assert left["target"] == "dr"
        assert "no metastore answers" in left["error"]
        text = client.get("/metrics").text
        assert 'skep_pending_tables{target="dr"} 1.0' in text
        assert 'skep_failing_attempts{table="orders",target="dr"}' in text


def test_what_is_due_is_done_after_a_commit(
    table: HudiTable, metastore: Metastore, lake_folder: Path, tmp_path: Path
) -> None:
    """Four commits, of which the cleaner keeps one."""
    for _ in range(4):
        LocalWriter(table.reload()).upsert(pa.table({"id": [1], "day": ["2026-01-01"]}))
    options = ("--set", "hoodie.cleaner.commits.retained=1")
    words = ("serve", "--port", "0", "-w", str(lake_folder), "-m", metastore.uri, "--maintain", *options)
    with command(*words, SKEP_SERVE_TOKEN=TOKEN) as process:
        url = address_of(process)
        headers = {"HUDI-CALLBACK-KEY": TOKEN}
        assert httpx.post(f"{url}/callback", content=callback(table), headers=headers).status_code == 202
        until(lambda: list(Path(table.storage.root, ".hoodie").glob("*.clean")))
        process.send_signal(signal.SIGTERM)
        _, errors = outcome(process)
        assert (process.returncode, errors) == (0, "")


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (HttpSettings(host="0.0.0.0"), "without a token"),
            (HttpSettings(token="short"), "16 characters"),
            (HttpSettings(token="hudi_write_commit_http_callback"), "default"),
        ],
    )
    def test_an_open_door_is_refused(self, settings: HttpSettings, message: str) -> None:
        with pytest.raises(InputError, match=message):
            settings.check()

    def test_a_taken_port_is_reported(self, serving: Started, metastore: Metastore, lake_folder: Path) -> None:
        client = serving()
        http = HttpSettings(port=client.base_url.port or 0, token=TOKEN)
        settings = ServiceSettings(allowed=("/",), http=http)
        with pytest.raises(InputError, match="can't listen on 127"):
            serve(metastore, str(lake_folder), Options(), settings, threading.Event())

    def test_tls(self, serving: Started, tmp_path: Path) -> None:
        certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        self_signed(certificate, key)
        plain = serving(certificate=str(certificate), key=str(key))
        assert plain.base_url.scheme == "https"
        trusting = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(verify=trusting, base_url=plain.base_url) as client:
            assert client.get("/healthz").status_code == 200


def self_signed(certificate: Path, key: Path) -> None:
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    made = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(made, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    certificate.write_bytes(signed.public_bytes(pem))
    key.write_bytes(made.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


@contextlib.contextmanager
def command(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`skep` in a process of its own; killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from skep.cli.main import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.startswith("http"), process.stderr and process.stderr.read()
    return line


def test_killed_after_it_answered_the_next_start_syncs(
    table: HudiTable, metastore: Metastore, database: str, lake_folder: Path
) -> None:
    """The first one has a metastore that is down; it is killed with the callback in its queue."""
    words = ("serve", "--port", "0", "-w", str(lake_folder), "--allow", str(lake_folder))
    headers = {"HUDI-CALLBACK-KEY": TOKEN}
    with command(*words, "-m", NOBODY, SKEP_SERVE_TOKEN=TOKEN) as first:
        url = address_of(first)
        assert httpx.post(f"{url}/callback", content=callback(table), headers=headers).status_code == 202
        first.send_signal(signal.SIGKILL)
    assert metastore.find_table(database, "orders") is None
    with command(*words, "-m", metastore.uri, SKEP_SERVE_TOKEN=TOKEN) as second:
        address_of(second)
        until(lambda: metastore.find_table(database, "orders"))
        second.send_signal(signal.SIGTERM)
        _, errors = outcome(second)
        assert second.returncode == 0, errors


def test_the_command_asks_for_a_token(lake_folder: Path) -> None:
    with command("serve", "-w", str(lake_folder), "-m", NOBODY, SKEP_SERVE_TOKEN="") as process:
        _, errors = outcome(process)
        assert process.returncode == 2
        assert "--token-file" in errors


def test_watch_syncs_what_is_committed_until_it_is_asked_to_end(
    table: HudiTable, metastore: Metastore, database: str, lake_folder: Path
) -> None:
    words = ("sync", "watch", table.storage.root, "-m", metastore.uri, "-w", str(lake_folder))
    with command(*words, "--interval", "0.2", "-o", "json") as process:
        until(lambda: metastore.find_table(database, "orders"))
        rows = pa.table({"id": [3], "day": ["2026-01-03"]})
        LocalWriter(table.reload()).upsert(rows)
        until(lambda: len(metastore.partition_names(database, "orders")) == 3)
        process.send_signal(signal.SIGINT)
        out, errors = outcome(process)
        assert process.returncode == 0, errors
    first, second = map(json.loads, out.splitlines())
    assert first["applied"] == {"tables created": 1, "partitions added": 2, "tables altered": 1}
    assert second["applied"] == {"partitions added": 1, "tables altered": 1}
