"""An S3 server on loopback (moto's) and empty folders in it, for any test."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator

import pytest

from skep_table.storage import Storage, open_storage


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """How to reach the server, by Hadoop's names."""
    from moto.server import ThreadedMotoServer

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


@pytest.fixture
def s3_folder(s3_options: dict[str, str]) -> Callable[[], Storage]:
    """Makes a bucket, and answers storage below a folder of it."""
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
