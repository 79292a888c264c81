"""Serves admission webhooks over TLS, with certificates that look after themselves.

The machinery that the sharder's webhook and an operator's webhooks have in
common: who is asked and what is answered is theirs.

Guarantees:

- A certificate is changed without a failed handshake or request, for callers
  that name no server too (tests/unit/shardsdk/serving/test_server.py; by a real API server:
  tests/integration/test_webhook_admission.py).
- An orderly stop answers every request that has begun (same file).
- Replicas share one authority; a new one is trusted for a day before anything
  it signed is served (tests/unit/shardsdk/serving/test_renewal.py).
- Bodies, and the time that each may take, have named maxima; so have
  connections, and those over it get a 503.

Needs what `pip install controller-sharding[webhooks]` brings; nothing else of
the SDK does (`require_webhooks`).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from shardsdk.errors import ConfigurationError

#: What the extra brings, by the names that are imported.
_BROUGHT: Final = ("cryptography", "httptools", "uvicorn")


def require_webhooks() -> None:
    """Make sure that the extra `webhooks` is installed.

    Raises: ConfigurationError that says how to install it.
    """
    absent = [name for name in _BROUGHT if find_spec(name) is None]
    if absent:
        raise ConfigurationError(
            f"webhooks need {' and '.join(absent)}, not installed here: pip install controller-sharding[webhooks]"
        )
