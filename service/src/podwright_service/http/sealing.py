"""Sealing: data of the service that a client carries between two requests, and can neither read nor change.

Sealed with XChaCha20-Poly1305 of libsodium. The first key seals, and each key opens, so that keys can be replaced.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from collections.abc import Sequence

import nacl.exceptions
import nacl.secret
from pydantic import SecretStr

_PURPOSE = b"podwright state 1"
"""Distinguishes what is sealed from everything else that the keys may be used for."""
_KEY_BYTES = 32


class Seal:
    """Encrypts data into texts, and decrypts them.

    Args:
        secrets: The keys, newest first; a key of this process and its children if there are none.
    """

    def __init__(self, secrets: Sequence[SecretStr]) -> None:
        keys = [_key_of(secret.get_secret_value()) for secret in secrets]
        self._boxes = [
            nacl.secret.Aead(key) for key in keys or [os.urandom(_KEY_BYTES)]
        ]

    def close(self, data: bytes) -> str:
        """Return the data as a text that only `open` can read."""
        sealed = self._boxes[0].encrypt(zlib.compress(data), _PURPOSE)
        return base64.urlsafe_b64encode(bytes(sealed)).decode()

    def open(self, text: str) -> bytes:
        """Return the data of a text that `close` returned.

        Raises:
            ValueError: It was changed, or sealed with another key.
        """
        try:
            sealed = base64.urlsafe_b64decode(text)
        except ValueError:
            sealed = b""
        # the decoder overlooks characters that are not of base64
        if base64.urlsafe_b64encode(sealed).decode() != text:
            raise ValueError("it is not as it was given")
        for box in self._boxes:
            try:
                return zlib.decompress(box.decrypt(sealed, _PURPOSE))
            except (nacl.exceptions.CryptoError, ValueError):
                continue
        raise ValueError("it was changed, or sealed with another key")


def _key_of(secret: str) -> bytes:
    return hashlib.blake2b(
        secret.encode(), digest_size=_KEY_BYTES, person=_PURPOSE[:16]
    ).digest()
