"""When self-made certificates are due, and what replaces them.

Says, of what the Secret holds, what it should hold now.  The same content and
the same moment always give the same judgement, so replicas agree without talking.

A new authority is first only trusted: it joins the bundle, and the serving
certificate stays with the outgoing one.  Only after `bundle_spread` does the
new one sign, when every webhook configuration has long had both.  The
outgoing key is dropped the moment its successor exists; its certificate stays
in the bundle until it expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.serving import x509 as authority
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.x509 import BACKDATE, Issued
from shardsdk.serving.x509_certificate import Certificate

#: The entries of the Secret; those of the pair are called as in Secrets of type kubernetes.io/tls.
BUNDLE_KEY: Final = "ca.crt"
AUTHORITY_KEY_KEY: Final = "ca.key"
CERTIFICATE_KEY: Final = "tls.crt"
PRIVATE_KEY_KEY: Final = "tls.key"

#: More authorities than this are never in one bundle; the oldest goes first.
AUTHORITIES_MAX: Final = 4
#: Replicas with different configuration add each other's names up to this many.
NAMES_MAX: Final = 64

_AGED: Final = "the serving certificate is due for renewal"


@dataclass(frozen=True, slots=True)
class Stored:
    """The Secret's content: trusted authorities (newest first), the newest one's key, the serving pair."""

    authorities: tuple[Certificate, ...]
    authority_key: bytes = field(repr=False)
    serving: Issued

    @property
    def newest(self) -> Issued:
        """The authority that signs next."""
        return Issued(self.authorities[0], self.authority_key)

    @property
    def bundle(self) -> bytes:
        """What webhook configurations must trust."""
        return b"".join(certificate.pem for certificate in self.authorities)


@dataclass(frozen=True, slots=True)
class Renewal:
    """What the Secret should hold instead, and why."""

    stored: Stored
    reason: str


def parse_stored(data: Mapping[str, bytes]) -> Stored:
    """Read a Secret's decoded data.

    Raises: ConfigurationError saying which entry is missing or wrong.
    """
    for key in (BUNDLE_KEY, AUTHORITY_KEY_KEY, CERTIFICATE_KEY, PRIVATE_KEY_KEY):
        if not data.get(key):
            raise ConfigurationError(f"{key} is missing")
    authorities = authority.parse_certificates(data[BUNDLE_KEY])
    serving = authority.parse_certificates(data[CERTIFICATE_KEY])[0]
    if not authority.fits(authorities[0], authority.parse_key(data[AUTHORITY_KEY_KEY])):
        raise ConfigurationError(f"{AUTHORITY_KEY_KEY} is not the key of the first certificate in {BUNDLE_KEY}")
    if not authority.may_sign(authorities[0]):
        raise ConfigurationError(f"the first certificate in {BUNDLE_KEY} is none that may sign others")
    if not authority.fits(serving, authority.parse_key(data[PRIVATE_KEY_KEY])):
        raise ConfigurationError(f"{PRIVATE_KEY_KEY} is not the key of {CERTIFICATE_KEY}")
    if not any(serving.signed_by(certificate) for certificate in authorities):
        raise ConfigurationError(f"{CERTIFICATE_KEY} is not signed by any certificate in {BUNDLE_KEY}")
    return Stored(authorities, data[AUTHORITY_KEY_KEY], Issued(serving, data[PRIVATE_KEY_KEY]))


def render_stored(stored: Stored) -> dict[str, bytes]:
    """The Secret's data, not yet base64."""
    return {
        BUNDLE_KEY: stored.bundle,
        AUTHORITY_KEY_KEY: stored.authority_key,
        CERTIFICATE_KEY: stored.serving.certificate.pem,
        PRIVATE_KEY_KEY: stored.serving.key,
    }


def make_stored(names: ServingNames, now: datetime, lifetimes: Lifetimes) -> Stored:
    """Everything anew, for a Secret that is not there or cannot be used."""
    newest = authority.make_authority(now, lifetimes.authority, names.subject)
    serving = authority.issue(newest, names, now, lifetimes.serving)
    return Stored((newest.certificate,), newest.key, serving)


def plan_renewal(stored: Stored, names: ServingNames, now: datetime, lifetimes: Lifetimes) -> Renewal | None:
    """What must change now so that `names` stay served; `None`: nothing.

    Called after each change again: one step at a time.
    """
    newest = stored.newest
    if not newest.certificate.valid_at(now):
        return Renewal(make_stored(names, now, lifetimes), "the authority is not valid now")
    if now >= _aged_at(newest.certificate, lifetimes):
        return Renewal(_add_authority(stored, names, now, lifetimes), "the authority is due for renewal")
    reason = _why_due(stored, names, now, lifetimes)
    if reason is None:
        return None
    served = names if reason == _AGED else _merged(stored, names)
    serving = authority.issue(newest, served, now, lifetimes.serving)
    return Renewal(Stored(_still_valid(stored, now), stored.authority_key, serving), reason)


def next_due(stored: Stored, lifetimes: Lifetimes, now: datetime) -> datetime:
    """The moment before which `plan_renewal` has nothing to do if it has nothing to do now."""
    newest, serving = stored.authorities[0], stored.serving.certificate
    moments = [
        moment for each in (newest, serving) for moment in (each.begins_at, _aged_at(each, lifetimes), each.expires_at)
    ]
    moments.append(_made_at(newest) + lifetimes.bundle_spread)
    return min((moment for moment in moments if moment > now), default=newest.expires_at)


def _made_at(certificate: Certificate) -> datetime:
    return certificate.begins_at + BACKDATE


def _aged_at(certificate: Certificate, lifetimes: Lifetimes) -> datetime:
    made_at = _made_at(certificate)
    return made_at + (certificate.expires_at - made_at) * lifetimes.renew_at


def _why_due(stored: Stored, names: ServingNames, now: datetime, lifetimes: Lifetimes) -> str | None:
    """Why the newest authority has to sign a serving certificate now; `None`: it need not."""
    serving = stored.serving.certificate
    newest = stored.authorities[0]
    if not serving.valid_at(now):
        return "the serving certificate is not valid now"
    if not _names(serving).covers(names):
        return "the serving certificate lacks a name that the API server calls"
    if len(stored.authorities) > 1 and now < _made_at(newest) + lifetimes.bundle_spread:
        return None
    if not serving.signed_by(newest):
        return "the new authority has been trusted long enough to sign"
    if now >= _aged_at(serving, lifetimes):
        return _AGED
    return None


def _add_authority(stored: Stored, names: ServingNames, now: datetime, lifetimes: Lifetimes) -> Stored:
    """A new authority in the bundle, and a last serving certificate of the outgoing one."""
    newest = authority.make_authority(now, lifetimes.authority, names.subject)
    serving = authority.issue(stored.newest, _merged(stored, names), now, lifetimes.serving)
    trusted = (newest.certificate, *_still_valid(stored, now))[:AUTHORITIES_MAX]
    return Stored(trusted, newest.key, serving)


def _still_valid(stored: Stored, now: datetime) -> tuple[Certificate, ...]:
    return tuple(certificate for certificate in stored.authorities if certificate.valid_at(now))


def _merged(stored: Stored, names: ServingNames) -> ServingNames:
    """The wanted names and the present ones: during an update old and new replicas want different ones."""
    merged = names | _names(stored.serving.certificate)
    return merged if len(merged) <= NAMES_MAX else names


def _names(certificate: Certificate) -> ServingNames:
    return ServingNames(certificate.dns_names, certificate.addresses)
