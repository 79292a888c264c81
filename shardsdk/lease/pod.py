"""What a process knows about where it runs: the defaults of shard name, namespace and instance.

In a pod, pass name, namespace and UID by the downward API:

    env:
      - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
      - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}

Names are checked for what can be a shard's, an election's and a namespace's; a namespace is never invented.
"""

from __future__ import annotations

import os
import random
import socket
import uuid

from shardsdk.errors import ConfigurationError
from shardsdk.kube.server import Access
from shardsdk.protocol.labels import LABEL_MAX_LENGTH, SHARDER_HOLDER
from shardsdk.protocol.names import LABEL_CHARACTERS, SUBDOMAIN_CHARACTERS, is_dns_label, is_dns_subdomain


def hostname() -> str:
    """The host's name; in a pod that is the pod's."""
    return socket.gethostname()


def shard_name() -> str:
    """What a shard is called unless it is told: like its host.  Raises: ConfigurationError."""
    name = hostname()
    try:
        return check_shard_name(name)
    except ConfigurationError as error:
        raise ConfigurationError(f"this host's name is no default for the shard's, so give it one: {error}") from error


def namespace() -> str | None:
    """The pod's namespace, if the downward API says; `None`: it does not."""
    return os.environ.get("POD_NAMESPACE") or None


def uid() -> str | None:
    """The pod's UID, if the downward API says; `None`: it does not.

    A container that restarts in its pod keeps the UID, and so goes on with the
    lease that it left.
    """
    return os.environ.get("POD_UID") or None


def make_uuid(rng: random.Random) -> str:
    """A random UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def lease_namespace(given: str | None, source: object, whose: str) -> str:
    """Where a Lease belongs: as given, else the pod's namespace, else the kubeconfig's.

    `whose` ends the sentence about what is missing.  Raises: ConfigurationError.
    """
    chosen = given or namespace() or (source.namespace if isinstance(source, Access) else "")
    if not chosen:
        raise ConfigurationError(
            f"nobody says in which namespace {whose}, or set POD_NAMESPACE (downward API, fieldRef metadata.namespace)"
        )
    return check_namespace(chosen)


def check_namespace(name: object) -> str:
    """Give `name` back if it can be a namespace's.  Raises: ConfigurationError."""
    if not isinstance(name, str) or not is_dns_label(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a namespace, in which a Lease belongs: use up to {LABEL_CHARACTERS}"
            " lower-case letters, digits and '-', beginning and ending with a letter or digit"
        )
    return name


def check_election_name(name: object) -> str:
    """Give `name` back if an election can be called so.  Raises: ConfigurationError."""
    if not isinstance(name, str) or not is_dns_subdomain(name):
        raise ConfigurationError(
            f"{name!r} cannot be an election's name, which is the name of its Lease: use up to {SUBDOMAIN_CHARACTERS}"
            " lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        )
    return name


def check_identity(identity: object) -> str:
    """Give `identity` back if a candidate can be told by it.  Raises: ConfigurationError."""
    if not isinstance(identity, str) or not identity:
        raise ConfigurationError(
            f"{identity!r} cannot be the identity of a leader election's candidate, which is a text that is not empty:"
            " leave it out for a unique one"
        )
    return identity


def check_shard_name(name: object) -> str:
    """Give `name` back if it can be a shard's.  Raises: ConfigurationError."""
    if name == SHARDER_HOLDER:
        raise ConfigurationError(f"{name!r} is how the sharder signs leases; give the shard another name")
    if not isinstance(name, str) or not is_dns_subdomain(name, LABEL_MAX_LENGTH):
        raise ConfigurationError(
            f"{name!r} cannot be a shard's name, which is the name of a Lease and the value of a label: use up to"
            f" {LABEL_MAX_LENGTH} lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        )
    return name
