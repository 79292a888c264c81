from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shardsdk.errors import ConfigurationError
from shardsdk.serving import x509 as authority
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.renewal import (
    NAMES_MAX,
    Stored,
    make_stored,
    next_due,
    parse_stored,
    plan_renewal,
    render_stored,
)
from shardsdk.serving.x509_certificate import wrap
from tests.unit.shardsdk.serving.manual_clock import START

DAY = timedelta(days=1)
LIFETIMES = Lifetimes()
NAMES = ServingNames.of(["sharder.sharding-system.svc", "127.0.0.1", "[::1]"])


def settle(stored: Stored, after: timedelta, names: ServingNames = NAMES) -> Stored:
    renewal = plan_renewal(stored, names, START + after, LIFETIMES)
    return stored if renewal is None else renewal.stored


def test_hosts_are_sorted_into_names_and_addresses() -> None:
    assert NAMES.dns == {"sharder.sharding-system.svc"}
    assert NAMES.addresses == {"127.0.0.1", "::1"}


def test_a_host_that_no_certificate_can_carry_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="punycode"):
        ServingNames.of(["schärder.example"])


def test_content_survives_the_secret() -> None:
    stored = make_stored(NAMES, START, LIFETIMES)
    again = parse_stored(render_stored(stored))
    assert again == stored
    assert again.serving.certificate.dns_names == NAMES.dns
    assert again.serving.certificate.addresses == NAMES.addresses


def test_nothing_is_due_while_everything_is_young() -> None:
    stored = make_stored(NAMES, START, LIFETIMES)
    assert plan_renewal(stored, NAMES, START + 59 * DAY, LIFETIMES) is None


def test_the_serving_certificate_is_renewed_at_two_thirds_by_the_same_authority() -> None:
    stored = make_stored(NAMES, START, LIFETIMES)
    renewed = settle(stored, 61 * DAY)
    assert renewed.bundle == stored.bundle
    assert renewed.serving != stored.serving
    assert renewed.serving.certificate.expires_at == START + 151 * DAY


@pytest.mark.parametrize("seconds", [1000, 1001, 1002])
def test_a_certificate_is_due_at_the_very_moment_that_was_named(seconds: int) -> None:
    lifetimes = Lifetimes(serving=timedelta(seconds=seconds))
    stored = make_stored(NAMES, START, lifetimes)
    due = next_due(stored, lifetimes, START)
    assert plan_renewal(stored, NAMES, due - timedelta(microseconds=1), lifetimes) is None
    assert plan_renewal(stored, NAMES, due, lifetimes) is not None


def test_a_missing_name_is_added_to_those_that_another_replica_wants() -> None:
    stored = make_stored(ServingNames.of(["old.example"]), START, LIFETIMES)
    renewed = settle(stored, DAY, ServingNames.of(["new.example"]))
    assert renewed.serving.certificate.dns_names == {"old.example", "new.example"}


def test_names_nobody_wants_any_more_go_with_the_next_regular_renewal() -> None:
    stored = make_stored(ServingNames.of(["old.example", "new.example"]), START, LIFETIMES)
    renewed = settle(stored, 61 * DAY, ServingNames.of(["new.example"]))
    assert renewed.serving.certificate.dns_names == {"new.example"}


def test_names_do_not_pile_up_without_end() -> None:
    many = ServingNames.of(f"{index}.example" for index in range(NAMES_MAX))
    renewed = settle(make_stored(many, START, LIFETIMES), DAY, ServingNames.of(["new.example"]))
    assert renewed.serving.certificate.dns_names == {"new.example"}


def test_a_new_authority_is_trusted_long_before_it_signs() -> None:
    stored = make_stored(NAMES, START, LIFETIMES)
    rotated = settle(stored, 250 * DAY)
    old, new = stored.authorities[0], rotated.authorities[0]
    assert rotated.authorities == (new, old)
    assert rotated.serving.certificate.signed_by(old)
    assert rotated.serving.certificate.valid_at(START + 300 * DAY)
    assert plan_renewal(rotated, NAMES, START + 250.9 * DAY, LIFETIMES) is None
    switched = settle(rotated, 251.1 * DAY)
    assert switched.serving.certificate.signed_by(new)
    assert switched.authorities == (new, old)


def test_the_outgoing_authority_cannot_sign_any_more_and_leaves_when_it_has_expired() -> None:
    rotated = settle(make_stored(NAMES, START, LIFETIMES), 250 * DAY)
    assert authority.fits(rotated.authorities[0], authority.parse_key(rotated.authority_key))
    later = settle(settle(rotated, 252 * DAY), 370 * DAY)
    assert len(later.authorities) == 1


def test_at_every_moment_of_five_years_the_serving_certificate_is_valid_and_trusted() -> None:
    stored = make_stored(NAMES, START, LIFETIMES)
    trusted_since = {stored.authorities[0]: START}
    for hours in range(0, 5 * 365 * 24, 7):
        now = START + timedelta(hours=hours)
        renewal = plan_renewal(stored, NAMES, now, LIFETIMES)
        stored = stored if renewal is None else renewal.stored
        for known in stored.authorities:
            trusted_since.setdefault(known, now)
        signer = next(known for known in stored.authorities if stored.serving.certificate.signed_by(known))
        assert stored.serving.certificate.valid_at(now)
        assert signer.valid_at(now)
        assert trusted_since[signer] == START or now - trusted_since[signer] >= LIFETIMES.bundle_spread
        assert len(stored.authorities) <= 2


@pytest.mark.parametrize("key", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"])
def test_broken_content_is_named(key: str, content: bytes) -> None:
    data = render_stored(make_stored(NAMES, START, LIFETIMES)) | {key: content}
    with pytest.raises(ConfigurationError):
        parse_stored(data)


@pytest.mark.parametrize("keys", [("ca.key",), ("tls.key",), ("ca.crt", "ca.key"), ("tls.crt", "tls.key")])
def test_parts_that_do_not_belong_together_are_refused(keys: tuple[str, ...]) -> None:
    other = render_stored(make_stored(NAMES, START, LIFETIMES))
    data = render_stored(make_stored(NAMES, START, LIFETIMES)) | {key: other[key] for key in keys}
    with pytest.raises(ConfigurationError, match=r"not (the key|signed)"):
        parse_stored(data)


@pytest.mark.parametrize("after", [-2 * DAY, 400 * DAY])
def test_an_authority_that_is_not_valid_now_is_replaced_with_all_it_signed(after: timedelta) -> None:
    stored = make_stored(NAMES, START, LIFETIMES)
    fresh = settle(stored, after)
    assert fresh.authorities[0].valid_at(START + after)
    assert fresh.serving.certificate.signed_by(fresh.authorities[0])
    assert stored.authorities[0] not in fresh.authorities


def test_keys_never_show_in_a_repr() -> None:
    assert "PRIVATE" not in repr(make_stored(NAMES, START, LIFETIMES))


def foreign(*extensions: x509.ExtensionType) -> Stored:
    """What somebody put into the Secret: an authority of their own, with these extensions, and what it signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody's CA")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(START - DAY)
        .not_valid_after(START + 3000 * DAY)
    )
    for each in extensions:
        builder = builder.add_extension(each, critical=True)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    issuer = authority.Issued(wrap(builder.sign(key, hashes.SHA256())), pem)
    return Stored((issuer.certificate,), pem, authority.issue(issuer, NAMES, START, DAY))


AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)
SIGNS_NOTHING = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=False,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def test_an_authority_without_an_identifier_of_its_key_goes_on_signing() -> None:
    stored = parse_stored(render_stored(foreign(AUTHORITY)))
    renewal = plan_renewal(stored, ServingNames.of(["new.example"]), START, LIFETIMES)
    assert renewal is not None
    assert renewal.stored.serving.certificate.signed_by(stored.authorities[0])
    ours = make_stored(NAMES, START, LIFETIMES)
    issued, by = ours.serving.certificate.parsed, ours.authorities[0].parsed
    told = issued.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = by.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert told.key_identifier == own.digest


@pytest.mark.parametrize(
    "extensions",
    [(), (x509.BasicConstraints(ca=False, path_length=None),), (AUTHORITY, SIGNS_NOTHING)],
    ids=["says nothing", "is none", "signs nothing"],
)
def test_an_authority_whose_signatures_nobody_trusts_is_refused(extensions: tuple[x509.ExtensionType, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"the first certificate in ca\.crt is none that may sign"):
        parse_stored(render_stored(foreign(*extensions)))
