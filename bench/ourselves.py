"""`python -m bench.ourselves KUBECONFIG CERTDIR PORT`: our sharder, started as `--sharder` of the bench starts any.

The example of a command that can be measured: it writes the configuration that its sharder takes, and becomes it.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from localcluster.ports import LOOPBACK


def configuration(certificates: Path, port: int) -> dict[str, Any]:
    """Our configuration for a webhook on `port`, with the certificate in a folder; timings are the defaults."""
    bundle = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    return {
        "apiVersion": "config.sharding.timebertt.dev/v1alpha1",
        "kind": "SharderConfig",
        "health": {"bindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "server": {"host": LOOPBACK, "port": port, "certDir": str(certificates)},
            "config": {"clientConfig": {"url": f"https://{LOOPBACK}:{port}", "caBundle": bundle}},
        },
    }


def main() -> None:
    """Become the sharder."""
    kubeconfig, certificates, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    path = certificates / "sharder.yaml"
    path.write_text(yaml.safe_dump(configuration(certificates, port)))
    argv = [sys.executable, "-m", "sharder", "--config", str(path), "--kubeconfig", kubeconfig]
    os.execv(sys.executable, argv)


if __name__ == "__main__":
    main()
