"""Ask at the server's TLS port whether a machine may connect, and explain a refusal.

A machine knocks before it joins the network: one TLS connection that belongs to no name there, so
that it disturbs nobody. Python's own handshake gives the reason of a refusal, which NVFlare hides.
"""

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from fedmmf.errors import FedMMFError
from fedmmf.transports.contract import Credentials

KNOCK = "knock/1"  # ALPN, which is in the clear: what a connection that only asks speaks
# In TLS 1.3 a client hears of its refused certificate only where it reads before it writes
GREETING = b"\n"
MAX_KNOCK_BYTES = 4096  # of a question, and of its answer
_SECONDS = 5.0
# By OpenSSL's X509_V_ERR_ code: what is wrong with a certificate that was checked here
_INVALID = {
    9: "is not valid yet",
    10: "has expired",
    **dict.fromkeys((18, 19, 20, 21), "was not signed by the authority of this federation"),
    23: "was revoked",
}
_BY_THE_CLOCK = (9, 10)
_OTHER_AUTHORITY = "it was not signed by the authority that the other side knows (authority.pem)"
_UNCLEAR = "it is malformed, or not valid yet by the other side's clock"
# By OpenSSL's reason: what the other side says of our certificate
_ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired, or the other side's clock is wrong",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it was revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": _UNCLEAR,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _UNCLEAR,
    "TLSV1_ALERT_UNKNOWN_CA": _OTHER_AUTHORITY,
    "TLSV1_ALERT_DECRYPT_ERROR": _OTHER_AUTHORITY,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none was shown",
}
_SPOKEN = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "HTTP_REQUEST": "it speaks HTTP, not TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS below 1.2",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks only versions of TLS below 1.2",
}


class RefusedError(FedMMFError):
    """A machine is not let into the network, or cannot reach it; the text says why."""


def knock(url: str, credentials: Credentials, names: tuple[str, str], question: bytes) -> bytes:
    """Ask the server something without joining its network.

    Args:
        url: where the server listens for sites.
        credentials: of this machine.
        names: of this machine, and the one in the server's certificate.
        question: at most `MAX_KNOCK_BYTES`.

    Returns:
        What the server answers; empty where its version answers no knocks.

    Raises:
        RefusedError: nobody listens there, one side refuses the other's certificate, or the server
            hangs up without an answer.
    """
    parts = urlsplit(url)
    context = _context(credentials)
    try:
        with (
            socket.create_connection((parts.hostname, parts.port), _SECONDS) as plain,
            # Our own name, so that a server that refuses the certificate can say whose it was.
            context.wrap_socket(plain, server_hostname=names[0]) as secure,
        ):
            _require_name(secure, names[1])
            if secure.selected_alpn_protocol() != KNOCK:
                return b""
            secure.recv(len(GREETING))
            secure.sendall(question + b"\n")
            answer = _read_all(secure)
    except OSError as error:
        raise RefusedError(f"the server at {url}: {words_of(error)}") from None
    if not answer:  # it is starting, or has failed: nobody knows whether the place is free
        raise RefusedError(f"the server at {url}: it hung up without an answer")
    return answer


def _context(credentials: Credentials) -> ssl.SSLContext:
    """The same demands as NVFlare has; the names in certificates are compared by us."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.set_alpn_protocols([KNOCK])
    certificate, key = credentials.certificate, credentials.key
    _load(credentials.authority, lambda: context.load_verify_locations(credentials.authority))
    _load(certificate, lambda: context.load_cert_chain(certificate, key))
    return context


def _load(path: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise RefusedError(
            f"{path} cannot be used: {reason}. The federation's keeper can hand it out again, with "
            "the key that belongs to it"
        ) from None


def require_own(certificate: Path, name: str) -> None:
    """Refuse to start with somebody else's certificate: the server would take us for them."""
    try:
        subject = load_pem_x509_certificate(certificate.read_bytes()).subject
    except (OSError, ValueError) as error:
        raise RefusedError(f"{certificate} cannot be read as a certificate: {error}") from None
    found = [str(part.value) for part in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if found != [name]:
        raise RefusedError(
            f"{certificate} is the certificate of {', '.join(found) or 'nobody'}, not of {name}. "
            "The federation's keeper has handed out the right one, with its key"
        )


def _require_name(secure: ssl.SSLSocket, expected: str) -> None:
    found = common_name(secure)
    if found != expected:
        raise RefusedError(
            f"who answers shows a certificate of {found!r}; the server's is of {expected!r}. Check "
            "network.host and network.port"
        )


def common_name(secure: ssl.SSLSocket) -> str:
    """The name in the other side's certificate, which was checked."""
    subject = (secure.getpeercert() or {}).get("subject", ())
    pairs = [pair for group in subject if isinstance(group, tuple) for pair in group]
    return next((str(pair[1]) for pair in pairs if pair[0] == "commonName"), "")


def _read_all(secure: ssl.SSLSocket) -> bytes:
    """What the other side says until it hangs up."""
    parts: list[bytes] = []
    while sum(map(len, parts)) <= MAX_KNOCK_BYTES and (part := secure.recv(MAX_KNOCK_BYTES)):
        parts.append(part)
    return b"".join(parts)


def words_of(error: BaseException) -> str:
    """Why a TLS connection failed, for people; of the other side, without its name."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error)
    if isinstance(error, TimeoutError):
        return f"it did not answer within {_SECONDS:g} s"
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason or error.strerror or error)
        if reason in _ALERTS:
            return f"it refuses the certificate of this machine: {_ALERTS[reason]}"
        return _SPOKEN.get(reason, f"the handshake failed ({reason})")
    return f"no connection ({getattr(error, 'strerror', None) or error})"


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    words = _INVALID.get(error.verify_code, f"is not accepted ({error.verify_message})")
    if error.verify_code in _BY_THE_CLOCK:
        clock = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        words += f", if the clock of this machine is right: it says {clock}"
    return f"its certificate {words}"
