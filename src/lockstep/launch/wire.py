"""Authenticated connections between the machines of a run: JSON messages, after both ends proved to know a secret.

Nothing received is ever unpickled or executed. A peer without the secret is rejected after one message of bounded size.
There is no encryption: an attacker who can read or change packets in transit is not kept out (docs/cluster.md).
"""

import hashlib
import hmac
import json
import secrets
import socket
import struct
from typing import Any

HANDSHAKE_SECONDS = 5.0
"""Seconds within which the peer must authenticate."""

# A message is its length (four bytes, big-endian), then JSON. Limits are in bytes, checked before the body is read.
_LENGTH = struct.Struct(">I")
_HANDSHAKE_LIMIT = 1024
_MESSAGE_LIMIT = 1 << 20
_NONCE_BYTES = 32


class UntrustedPeer(Exception):
    """The peer does not know the secret, or does not speak this protocol; the message follows "the peer"."""


def prove(secret: str, *parts: str) -> str:
    """An HMAC that proves knowledge of the secret, valid for these parts only."""
    # JSON keeps the parts apart: joined as plain strings, ("ab", "c") and ("a", "bc") would have the same proof.
    text = json.dumps(parts).encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def proves(proof: Any, secret: str, *parts: str) -> bool:
    """Whether a proof is valid; compared in constant time, so timing reveals nothing."""
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(), prove(secret, *parts).encode())


class Connection:
    """One end of a connection; messages are JSON objects."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        # Messages are small and each waits for an answer: Nagle's algorithm would only delay them.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; OSError if the peer is gone."""
        body = json.dumps(message).encode()
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, timeout: float | None, limit: int = _MESSAGE_LIMIT) -> dict[str, Any]:
        """The next message; OSError (TimeoutError included) if none arrives, UntrustedPeer if it is malformed."""
        self._socket.settimeout(timeout)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > limit:
            raise UntrustedPeer(f"announced a message of {length:,} bytes")
        try:
            message = json.loads(self._read(length))
        except (ValueError, RecursionError) as error:
            raise UntrustedPeer("sent something that is not JSON") from error
        if not isinstance(message, dict):
            raise UntrustedPeer("sent something that is not a JSON object")
        return message

    def _read(self, size: int) -> bytes:
        # The timeout applies to each recv, so a peer that sends slowly takes longer; it blocks its own thread only.
        parts, missing = [], size
        while missing:
            part = self._socket.recv(min(missing, 65536))
            if not part:
                raise ConnectionError("closed by the other end")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def accept(opened: socket.socket, secret: str) -> Connection:
    """The server's handshake: the client proves itself first, then the server; UntrustedPeer if the client cannot."""
    # Proofs cover both random nonces, so a recorded one is useless later, and the role, so that a client's proof cannot
    # be sent back to it as the server's.
    connection, challenge = Connection(opened), secrets.token_hex(_NONCE_BYTES)
    connection.send({"lockstep": 1, "challenge": challenge})
    answer = connection.receive(HANDSHAKE_SECONDS, _HANDSHAKE_LIMIT)
    nonce = answer.get("nonce")
    if not isinstance(nonce, str) or not proves(answer.get("proof"), secret, "client", challenge, nonce):
        raise UntrustedPeer("does not know this run's secret")
    connection.send({"proof": prove(secret, "server", challenge, nonce)})
    return connection


def connect(address: str, port: int, secret: str, timeout: float = HANDSHAKE_SECONDS) -> Connection:
    """The client's handshake; OSError if nobody answers, UntrustedPeer if the server does not know the secret."""
    opened = socket.create_connection((address, port), timeout=timeout)
    try:
        connection, nonce = Connection(opened), secrets.token_hex(_NONCE_BYTES)
        challenge = connection.receive(timeout, _HANDSHAKE_LIMIT).get("challenge")
        if not isinstance(challenge, str):
            raise UntrustedPeer("does not speak Lockstep's protocol")
        connection.send({"nonce": nonce, "proof": prove(secret, "client", challenge, nonce)})
        try:
            proof = connection.receive(timeout, _HANDSHAKE_LIMIT).get("proof")
        except ConnectionError as error:
            # The server hangs up on a wrong proof, without a message.
            raise UntrustedPeer("does not accept this run's secret") from error
        if not proves(proof, secret, "server", challenge, nonce):
            raise UntrustedPeer("does not know this run's secret")
    except BaseException:
        opened.close()
        raise
    return connection
