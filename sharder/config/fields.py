"""The kinds of values that a configuration file holds.

Each turns one value of a file into what the code works with, or says what is
wrong and what to write instead.  As in Go, a value that is null or empty means
the default.  Nothing is converted quietly: `"100"` is no number, `15` no duration.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainValidator, Strict, ValidationInfo
from pydantic_core import PydanticCustomError, PydanticUseDefault

from sharder.config.durations import parse_duration, render_duration
from sharder.core.problems import Problem, quoted
from sharder.core.selectors import LabelSelector, parse_selector
from shardsdk.protocol.names import before_port, is_dns_label, is_dns_subdomain

#: Bytes in a name of a namespace or Service, and of most other objects.
#: Source: Kubernetes, "Object Names and IDs".
_QUALIFIED_NAME: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
#: Host and port, as Go's `net.Listen` takes them; an IPv6 address stands in brackets.
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
MAX_PORT: Final = 65_535


def refuse(message: str, remedy: str) -> PydanticCustomError:
    """The error for one value that cannot be used."""
    return refuse_all([Problem("", message, remedy)])


def refuse_all(problems: list[Problem]) -> PydanticCustomError:
    """The error for one value with several faults; their paths are relative to the value."""
    return PydanticCustomError("refused", "refused", {"problems": tuple(problems)})


def _empty_is_default(value: object) -> object:
    # Go cannot tell an empty string or null from a field left out.
    if value is None or value == "":
        raise PydanticUseDefault
    return value


def _null_is_default(value: object) -> object:
    if value is None:
        raise PydanticUseDefault
    return value


OrDefault = BeforeValidator(_null_is_default)
Text = Annotated[str, Strict(), BeforeValidator(_empty_is_default)]
Switch = Annotated[bool, Strict(), OrDefault]
Count = Annotated[int, Strict(), OrDefault]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False), OrDefault]


# -- durations -------------------------------------------------------------


def duration(minimum: float | None = None) -> PlainValidator:
    """Reads a Go duration into seconds; refuses less than `minimum` (`None`: negative ones are fine too)."""

    def parse(value: object, info: ValidationInfo) -> float:
        seconds = _seconds(_empty_is_default(value), from_file=info.context is not None)
        if minimum is not None and seconds < minimum:
            raise refuse(f"{quoted(value)} is too short", f"use at least {render_duration(minimum)!r}")
        return seconds

    return PlainValidator(parse)


def duration_or_default(minimum: float, *, whole: bool = False) -> PlainValidator:
    """Like `duration`, but zero means the default, as in Go's leader election settings; `whole`: in seconds."""

    def parse(value: object, info: ValidationInfo) -> float:
        seconds = _seconds(_empty_is_default(value), from_file=info.context is not None)
        if seconds == 0:
            raise PydanticUseDefault
        if seconds < minimum:
            raise refuse(f"{quoted(value)} is too short", f"use at least {render_duration(minimum)!r}")
        if whole and seconds % 1:
            raise refuse(f"{quoted(value)} has parts of a second, which a Lease cannot say", "use whole seconds")
        return seconds

    return PlainValidator(parse)


def _seconds(value: object, *, from_file: bool) -> float:
    if not from_file and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    remedy = 'write a number with its unit in quotes, such as "15s" or "1m30s"'
    if not isinstance(value, str):
        raise refuse(f"{quoted(value)} is not a duration", remedy)
    try:
        return parse_duration(value)
    except ValueError as error:
        raise refuse(str(error), remedy) from None


# -- addresses -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BindAddress:
    """Where to listen; `host` empty means every interface, port 0 any free one.

    `enabled` is false for the address `0`, which turns the server off.
    """

    host: str = ""
    port: int = 0
    enabled: bool = True

    def __str__(self) -> str:
        if not self.enabled:
            return "0"
        return f"{before_port(self.host)}:{self.port}"


def _parse_address(value: object) -> BindAddress:
    value = _empty_is_default(value)
    if isinstance(value, BindAddress):
        return value
    remedy = 'write ":8080", "127.0.0.1:8080" or "[::1]:8080" in quotes, or "0" to turn it off'
    if not isinstance(value, str):
        raise refuse(f"{quoted(value)} is not an address", remedy)
    if value == "0":
        return BindAddress(enabled=False)
    match = _ADDRESS.fullmatch(value)
    if match is None:
        raise refuse(f"{quoted(value)} is not an address", remedy)
    if int(match["port"]) > MAX_PORT:
        raise refuse(f"{quoted(value)} has no such port", f"use a port up to {MAX_PORT}")
    if match["host"] and _HOST.fullmatch(match["host"]) is None:
        raise refuse(f"{quoted(value)} is not an address", remedy)
    return BindAddress(match["six"] or match["host"] or "", int(match["port"]))


def _parse_host(value: object) -> str:
    text = _text(value)
    if _HOST.fullmatch(text) is None and not _is_ipv6(text):
        raise refuse(f"{quoted(text)} is neither an address nor a host name", 'write "127.0.0.1", "::1" or a name')
    return text


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


Address = Annotated[BindAddress, PlainValidator(_parse_address)]
Host = Annotated[str, PlainValidator(_parse_host)]


# -- names -----------------------------------------------------------------


def _text(value: object) -> str:
    value = _empty_is_default(value)
    if not isinstance(value, str):
        raise refuse(f"{quoted(value)} is not a string", "write it in quotes")
    return value


def _named(fits: Callable[[str], bool], what: str) -> PlainValidator:
    def parse(value: object) -> str:
        text = _text(value)
        if not fits(text):
            raise refuse(f"{quoted(text)} cannot be {what}", "use lower-case letters, digits and '-'")
        return text

    return PlainValidator(parse)


Namespace = Annotated[str, _named(is_dns_label, "the name of a namespace")]
ServiceName = Annotated[str, _named(is_dns_label, "the name of a Service")]
ObjectName = Annotated[str, _named(is_dns_subdomain, "the name of an object")]


def one_of(*allowed: str) -> PlainValidator:
    """Accepts these words and nothing else."""

    def parse(value: object) -> str:
        text = _text(value)
        if text not in allowed:
            raise refuse(f"{quoted(text)} is not supported", f"write {' or '.join(map(repr, allowed))}")
        return text

    return PlainValidator(parse)


def _parse_annotations(value: object) -> dict[str, str]:
    value = _null_is_default(value)
    if not isinstance(value, dict):
        raise refuse("is not a mapping", "write `name: value` on lines of their own")
    problems: list[Problem] = []
    for name, text in value.items():
        path = f"[{quoted(name)}]"
        if not isinstance(name, str) or _QUALIFIED_NAME.fullmatch(name) is None:
            problems.append(Problem(path, "cannot be the name of an annotation", "write `prefix/name` or `name`"))
        if not isinstance(text, str):
            problems.append(Problem(path, f"{quoted(text)} is not a string", "write it in quotes"))
    if problems:
        raise refuse_all(problems)
    return dict(value)


Annotations = Annotated[dict[str, str], PlainValidator(_parse_annotations)]


# -- what a webhook configuration holds ------------------------------------


def _parse_url(value: object) -> str | None:
    if value is None or value == "":
        return None
    text = _text(value)
    remedy = "write https://HOST[:PORT][/PATH], without user, query and fragment"
    try:
        parts = urlsplit(text)
        valid = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise refuse(f"{quoted(text)} is not a URL", remedy) from None
    if not valid or parts.query or parts.fragment or "@" in parts.netloc or any(c.isspace() for c in text):
        raise refuse(f"{quoted(text)} is not a URL that the API server calls", remedy)
    return text


def _parse_ca_bundle(value: object) -> bytes | None:
    if value is None or value == "":
        return None
    remedy = "write the base64 of a PEM file with one or more CA certificates (base64 -w0 ca.crt)"
    if isinstance(value, bytes):
        pem = value
    elif isinstance(value, str):
        try:
            pem = base64.b64decode("".join(value.split()), validate=True)
        except binascii.Error:
            raise refuse("is not base64", remedy) from None
    else:
        raise refuse(f"{quoted(value)} is not a string", remedy)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise refuse("holds no readable CA certificate", remedy) from None
    return pem


def _parse_path(value: object) -> str | None:
    if value is None or value == "":
        return None
    text = _text(value)
    if re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", text) is None or not text.startswith("/"):
        raise refuse(f"{quoted(text)} is not a path", "start it with '/', without query and '//'")
    return text


def _parse_namespace_selector(value: object) -> LabelSelector | None:
    if value is None or isinstance(value, LabelSelector):
        return value
    selector, problems = parse_selector(value, "")
    if problems:
        raise refuse_all(list(problems))
    return selector


Url = Annotated[str | None, PlainValidator(_parse_url)]
CaBundle = Annotated[bytes | None, PlainValidator(_parse_ca_bundle)]
UrlPath = Annotated[str | None, PlainValidator(_parse_path)]
NamespaceSelector = Annotated[LabelSelector | None, PlainValidator(_parse_namespace_selector)]
