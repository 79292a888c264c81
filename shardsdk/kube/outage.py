"""How long an API server has not answered, told once a minute for as long as that goes on.

Whoever asks tells what came of it once, and again when it changes, so an outage that lasts would be silent.  Probes
do not tell it either: no restart ends it, and replicas that are all not ready serve nobody when it ends.
"""

from __future__ import annotations

import ssl
from typing import Final

import aiohttp
from yarl import URL

from shardsdk.kube.clock import Clock
from shardsdk.kube.server import Access
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: How often it is told.
TELL_SECONDS: Final = 60.0
#: Failures that are further apart are of two outages, or of none: in between nobody has asked.  A request takes half a
#: minute at most, and so does the pause before it is tried again.
IDLE_SECONDS: Final = 120.0

#: That nobody is known who vouches for a certificate.
#: Source: OpenSSL, X509_V_ERR_: DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED_CERT_IN_CHAIN,
#: UNABLE_TO_GET_ISSUER_CERT_LOCALLY, UNABLE_TO_VERIFY_LEAF_SIGNATURE.
_NOBODY_VOUCHES: Final = frozenset({18, 19, 20, 21})


class Outage:
    """Of the API server at `host`, as one client finds it."""

    __slots__ = ("_clock", "_failed_at", "_host", "_since", "_told_at")

    def __init__(self, host: str, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        #: When the first request failed of this outage; `None`: there is none.
        self._since: float | None = None
        self._failed_at = 0.0
        self._told_at = 0.0

    def answered(self) -> None:
        """It has, whatever it said."""
        if self._since is not None and self._told_at > self._since:
            seconds = self._clock.monotonic() - self._since
            log.info("The API server %s answers again, after %.0f s", self._host, seconds)
        self._since = None

    def failed(self, error: Exception | str) -> None:
        """A request had no answer."""
        now = self._clock.monotonic()
        if self._since is None or now - self._failed_at > IDLE_SECONDS:
            self._since = self._told_at = now
        elif now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            log.warning("The API server %s has not answered for %.0f s: %s", self._host, now - self._since, error)
        self._failed_at = now


def remedy_of(error: Exception, access: Access) -> str:
    """What to do, where that is known, to be said after the error."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code in _NOBODY_VOUCHES:
            server = URL(access.host)
            if (error.host, error.port) == (server.raw_host, server.port):
                return f"; the CA in {access.origin} did not sign its certificate: put the API server's CA there"
            proxy = f"the proxy {error.host}:{error.port}"  # one is asked for its certificate as the API server is
            return f"; the CA in {access.origin} did not sign the certificate of {proxy}: add that one's CA there"
    return ""
