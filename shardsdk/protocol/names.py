"""What Kubernetes lets a name be.  Source: Kubernetes, "Object Names and IDs".

>>> is_dns_label("team-a"), is_dns_label("team.a"), is_dns_subdomain("team.a")
(True, False, True)
>>> is_path_segment("system:node"), is_path_segment("..")
(True, False)
>>> before_port("::1"), before_port("example.com")
('[::1]', 'example.com')
"""

from __future__ import annotations

import re
from typing import Final

LABEL_CHARACTERS: Final = 63
SUBDOMAIN_CHARACTERS: Final = 253

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def is_dns_label(text: str, most: int = LABEL_CHARACTERS) -> bool:
    """Whether a namespace or a Service can be called so, in up to `most` characters."""
    return len(text) <= most and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str, most: int = SUBDOMAIN_CHARACTERS) -> bool:
    """Whether most other objects, and API groups, can be called so, in up to `most` characters."""
    return len(text) <= most and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_path_segment(text: str) -> bool:
    """Whether any object can be called so, as roles may be: what a URL can have between two slashes."""
    return text not in ("", ".", "..") and "/" not in text and "%" not in text


def pointer_part(name: str) -> str:
    """A name as a part of a JSON pointer.  Source: RFC 6901, section 3."""
    return name.replace("~", "~0").replace("/", "~1")


def before_port(host: str) -> str:
    """A host as it stands before `:port`, in a URL or an address: in brackets when it is an IPv6 address."""
    return f"[{host}]" if ":" in host else host


def cut(text: str, most: int, *, end: int, mark: str) -> str:
    """`text`, of which its last `end` characters and what comes before `mark` are `most` where it is longer than that.

    >>> cut("abcdefghij", 5, end=2, mark="...")
    'abc...ij'
    """
    return text if len(text) <= most else f"{text[: most - end]}{mark}{text[-end:]}"


def shown_name(name: str) -> str:
    """A name in a sentence: its beginning where it is longer than a subdomain, as only those of Roles and the like are.

    >>> len(shown_name("a" * 100_000))
    256
    """
    return name if len(name) <= SUBDOMAIN_CHARACTERS else f"{name[:SUBDOMAIN_CHARACTERS]}..."
