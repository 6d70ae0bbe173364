"""S3 and AWS Glue on loopback (moto's server), empty folders in it, and counts of calls and requests, for any test."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from counting_storage import Calls, Requests, count_class

from skep_format.storage import HdfsStorage, LocalStorage, ObjectStorage, Storage, open_storage

if TYPE_CHECKING:
    from skep_catalog.glue.client import GlueCatalog

_REQUESTS = Requests()


@pytest.fixture
def storage_calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls of every storage of this process from now on; of one below another, only the outer one's."""
    calls = Calls()
    for kind in (LocalStorage, ObjectStorage, HdfsStorage):
        count_class(kind, calls, monkeypatch.setattr)
    return calls


@pytest.fixture
def s3_requests(s3_options: dict[str, str]) -> Requests:
    """The requests to the server of `s3_options`, from now on."""
    _REQUESTS.clear()
    return _REQUESTS


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """How to reach the server, by Hadoop's names."""
    from moto.server import DomainDispatcherApplication, ThreadedMotoServer

    answer, one_at_a_time = DomainDispatcherApplication.__call__, threading.Lock()

    def answer_alone(self: Any, environ: Any, respond: Any) -> Any:
        # moto looks whether an object is there, then writes it: between the two another conditional create may pass
        with one_at_a_time:
            _REQUESTS.add(environ)
            return answer(self, environ, respond)

    patch = pytest.MonkeyPatch()
    patch.setattr(DomainDispatcherApplication, "__call__", answer_alone)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line a request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "fs.s3a.endpoint": f"http://{host}:{port}",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }
    server.stop()
    patch.undo()


@pytest.fixture
def glue_options(s3_options: dict[str, str]) -> dict[str, str]:
    """How to reach AWS Glue on the same server, by Hudi's names; its address is `glue://us-east-1`."""
    return {
        "hoodie.aws.glue.endpoint": s3_options["fs.s3a.endpoint"],
        "hoodie.aws.access.key": "key",
        "hoodie.aws.secret.key": "secret",
    }


@pytest.fixture
def glue(glue_options: dict[str, str]) -> Iterator[GlueCatalog]:
    """A client of AWS Glue there."""
    from skep_catalog.glue.client import GlueCatalog

    with GlueCatalog.connect("glue://us-east-1", glue_options) as client:
        yield client


@pytest.fixture
def glue_database(glue: GlueCatalog) -> Iterator[str]:
    """A name for a database of Glue that a sync or a test makes; it is dropped with its tables."""
    name = f"db_{uuid.uuid4().hex[:10]}"
    yield name
    if name in glue.databases():
        glue.drop_database(name, cascade=True)


@pytest.fixture
def s3_folder(s3_options: dict[str, str]) -> Callable[[], Storage]:
    """Makes a bucket, and returns storage below a folder of it."""
    import boto3

    def make() -> Storage:
        bucket = f"b{uuid.uuid4().hex}"
        client = boto3.client(
            "s3",
            endpoint_url=s3_options["fs.s3a.endpoint"],
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=bucket)
        return open_storage(f"s3a://{bucket}/lake/table/", s3_options)

    return make
