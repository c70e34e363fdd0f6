"""Signatures of bundles: HMAC-SHA256 with a key that the signer and the checker share.

The standard library has it, and it needs no certificates. Whoever can check can also sign, so a key
file is a secret on both machines.
"""

import hashlib
import hmac
from pathlib import Path

from mgformer.errors import ConfigError

SHORTEST = 32
"""Bytes of the shortest key."""
PURPOSE = b"mgformer bundle\0"
"""Precedes what is signed, so that a signature made for something else is not one of a bundle."""


def read_key(path: Path) -> bytes:
    """Read a key file; all of its bytes are the key."""
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: the key cannot be read ({error.strerror}); check the path"
        ) from None
    check_key(key, str(path))
    return key


def check_key(key: bytes, source: str = "key") -> None:
    """Refuse a key that is short enough to be guessed."""
    if len(key) < SHORTEST:
        raise ConfigError(
            f"{source}: got a key of {len(key)} bytes, expected at least {SHORTEST}; make one with:"
            " openssl rand -hex 32"
        )


def signature_of(content: bytes, key: bytes) -> str:
    """Return the signature, in hexadecimal."""
    check_key(key)
    return hmac.new(key, PURPOSE + content, hashlib.sha256).hexdigest()


def is_signed(content: bytes, signature: object, key: bytes) -> bool:
    """Return whether the signature is that of the content; the time tells nothing about it."""
    given = signature.encode("utf-8", "replace") if isinstance(signature, str) else b""
    return hmac.compare_digest(signature_of(content, key).encode(), given)
