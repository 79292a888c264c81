"""The sharder's configuration: what may be said, how it is read, what is wrong with it.

Guarantees: a file written for the Go sharder v0.8 is accepted, and what has no
effect here is told (tests/unit/sharder/config/test_file.py).  Every problem in a file
is reported at once, each with its path and a remedy; an unknown field is a
problem.  A `SharderConfig` is frozen.

Does not guarantee: that what a file names exists.  Certificates, addresses and
namespaces are judged by those who use them.
"""

from __future__ import annotations

from sharder.config.fields import BindAddress
from sharder.config.file import API_VERSION, KIND, InvalidConfig, Loaded, load_config, parse_config
from sharder.config.reference import render_reference
from sharder.config.schema import (
    ClientConnection,
    HealthEndpoint,
    LeaderElection,
    MetricsEndpoint,
    ServiceReference,
    SharderConfig,
    SharderController,
    WebhookClientConfig,
    WebhookServer,
)

__all__ = [
    "API_VERSION",
    "KIND",
    "BindAddress",
    "ClientConnection",
    "HealthEndpoint",
    "InvalidConfig",
    "LeaderElection",
    "Loaded",
    "MetricsEndpoint",
    "ServiceReference",
    "SharderConfig",
    "SharderController",
    "WebhookClientConfig",
    "WebhookServer",
    "load_config",
    "parse_config",
    "render_reference",
]
