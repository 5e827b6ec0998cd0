"""Authenticated connections between the machines of a run: JSON messages, after both ends proved to know a secret.

Nothing that arrives is ever unpickled or run. Whoever does not know the secret is turned away after one message of a
bounded size; whoever can read or change packets on the way is not kept out (docs/cluster.md).
"""

import hashlib
import hmac
import json
import secrets
import socket
import struct
from typing import Any

HANDSHAKE_SECONDS = 5.0
"""Seconds in which the other end must have proved itself."""

_LENGTH = struct.Struct(">I")
_GREETING_LIMIT = 1024
_MESSAGE_LIMIT = 1 << 20
_NONCE_BYTES = 32


class Stranger(Exception):
    """The other end does not know the secret, or does not speak this protocol."""


def prove(secret: str, *parts: str) -> str:
    """A proof to know the secret that is good for these parts only."""
    text = json.dumps(parts).encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def proves(proof: Any, secret: str, *parts: str) -> bool:
    """Whether a proof is right; takes the same time wherever it is wrong."""
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(), prove(secret, *parts).encode())


class Connection:
    """One end of a connection; messages are JSON objects."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; OSError where the other end is gone."""
        body = json.dumps(message).encode()
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, timeout: float | None, limit: int = _MESSAGE_LIMIT) -> dict[str, Any]:
        """The next message; OSError (TimeoutError among them) where none comes, Stranger where it is none."""
        self._socket.settimeout(timeout)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > limit:
            raise Stranger(f"announced a message of {length:,} bytes")
        try:
            message = json.loads(self._read(length))
        except (ValueError, RecursionError) as error:
            raise Stranger("sent something that is not JSON") from error
        if not isinstance(message, dict):
            raise Stranger("sent something that is not a JSON object")
        return message

    def _read(self, size: int) -> bytes:
        # The caller's timeout is for each piece: a peer that sends byte by byte holds only its own thread.
        parts, missing = [], size
        while missing:
            part = self._socket.recv(min(missing, 65536))
            if not part:
                raise ConnectionError("closed by the other end")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close it; the other end notices."""
        self._socket.close()


def accept(opened: socket.socket, secret: str) -> Connection:
    """The server's end: let the client prove itself first, then prove ourselves; Stranger where it cannot."""
    connection, challenge = Connection(opened), secrets.token_hex(_NONCE_BYTES)
    connection.send({"lockstep": 1, "challenge": challenge})
    answer = connection.receive(HANDSHAKE_SECONDS, _GREETING_LIMIT)
    nonce = answer.get("nonce")
    if not isinstance(nonce, str) or not proves(answer.get("proof"), secret, "client", challenge, nonce):
        raise Stranger("does not know this run's secret")
    connection.send({"proof": prove(secret, "server", challenge, nonce)})
    return connection


def connect(address: str, port: int, secret: str, timeout: float = HANDSHAKE_SECONDS) -> Connection:
    """The client's end; OSError where nobody answers, Stranger where what answers does not know the secret."""
    opened = socket.create_connection((address, port), timeout=timeout)
    try:
        connection, nonce = Connection(opened), secrets.token_hex(_NONCE_BYTES)
        challenge = connection.receive(timeout, _GREETING_LIMIT).get("challenge")
        if not isinstance(challenge, str):
            raise Stranger("does not speak Lockstep's protocol")
        connection.send({"nonce": nonce, "proof": prove(secret, "client", challenge, nonce)})
        try:
            proof = connection.receive(timeout, _GREETING_LIMIT).get("proof")
        except ConnectionError as error:
            raise Stranger("does not accept this run's secret") from error
        if not proves(proof, secret, "server", challenge, nonce):
            raise Stranger("does not know this run's secret")
    except BaseException:
        opened.close()
        raise
    return connection
