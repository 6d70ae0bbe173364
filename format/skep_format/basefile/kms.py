"""KMS clients for Parquet's encryption: one for tests, with its keys in the options, and AWS's key service."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from typing import Any, Final

import pyarrow.parquet.encryption as pe

from skep_format.basefile.encryption import KEY_LIST, NEW_KEY_LIST
from skep_format.errors import OptionError, needs

_NONCE_BYTES: Final = 12


class InMemoryKms(pe.KmsClient):
    """Java's `InMemoryKMS`, for tests only: master keys are in the options, and wrap with AES-GCM.

    Keys of `parquet.encryption.new.key.list` wrap in place of those of the list.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        given = config.custom_kms_conf
        self._keys = _parsed(KEY_LIST.parse(given.get(KEY_LIST.key, "")), KEY_LIST.key)
        newer = _parsed(NEW_KEY_LIST.parse(given.get(NEW_KEY_LIST.key, "")), NEW_KEY_LIST.key)
        self._newest = newer or self._keys

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """The key of a file, wrapped."""
        nonce = os.urandom(_NONCE_BYTES)
        cipher = _cipher(self._newest[master_key_identifier])
        return base64.b64encode(nonce + cipher.encrypt(nonce, key_bytes, master_key_identifier.encode()))

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """The key of a file."""
        data, name = base64.b64decode(wrapped_key), master_key_identifier
        key: bytes = _cipher(self._keys[name]).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())
        return key


def _cipher(key: bytes) -> Any:
    with needs("encryption", "the in-memory KMS needs the package %s"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key)


def _parsed(entries: Iterable[str], option: str) -> dict[str, bytes]:
    keys = {}
    for entry in entries:
        name, colon, text = entry.partition(":")
        try:
            keys[name.strip()] = base64.b64decode(text.strip(), validate=True)
        except ValueError:
            colon = ""
        if not colon:
            raise OptionError(f"option {option}: an entry is not name:base64", option=option, expected="name:base64")
    return keys


class AwsKms(pe.KmsClient):
    """AWS's Key Management Service by boto3, which finds credentials and region as usual.

    A master key is a key's id, ARN or alias; `parquet.encryption.kms.instance.url` is another endpoint.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        with needs("dynamodb", "AWS's key service needs the package %s"):
            import boto3
        url = config.kms_instance_url
        self._client = boto3.client("kms", endpoint_url=url if url not in ("", "DEFAULT") else None)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """The key of a file, encrypted by the service."""
        answer = self._client.encrypt(KeyId=master_key_identifier, Plaintext=key_bytes)
        return base64.b64encode(answer["CiphertextBlob"])

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """The key of a file, decrypted by the service."""
        blob = base64.b64decode(wrapped_key)
        plain: bytes = self._client.decrypt(KeyId=master_key_identifier, CiphertextBlob=blob)["Plaintext"]
        return plain
