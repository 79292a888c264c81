"""Values that turn on each of the chart's options."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from shardsdk.serving.x509 import make_authority

_CA: Final = make_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem

#: A ring of Secrets that control ConfigMaps.
RING: Final[dict[str, Any]] = {
    "rings": {
        "checksum": {
            "resources": [
                {
                    "group": "",
                    "resource": "secrets",
                    "controlledResources": [{"group": "", "resource": "configmaps"}],
                }
            ]
        }
    }
}

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "defaults": {},
    "a ring": RING,
    "one replica": {"replicas": 1},
    "webhook off": {"config": {"webhook": {"enabled": False}}},
    "certManager": {"certificates": {"source": "certManager"}},
    "secret": {
        "certificates": {
            "source": "secret",
            "secret": {"name": "my-tls", "caBundle": base64.b64encode(_CA).decode()},
        }
    },
    "no hooks": {"crds": {"upgrade": False}, "uninstall": {"cleanup": False}},
    "crds go": {"crds": {"keep": False}},
    "no rbac": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False},
        "crds": {"upgrade": False},
        "uninstall": {"cleanup": False},
    },
    "no viewer": {"rbac": {"viewer": {"create": False}}},
    "viewers": {"rbac": {"viewer": {"aggregateToView": True}}},
    "no budget": {"podDisruptionBudget": {"enabled": False}},
    "no flow schema": {"priorityAndFairness": {"enabled": False}},
    "monitoring": {
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "disabled": ["SharderDown"]},
            "dashboard": {"enabled": True, "annotations": {"folder": "Controllers"}},
        }
    },
    "secure metrics": {
        "config": {"metrics": {"secure": True}},
        "metrics": {"serviceMonitor": {"enabled": True}},
    },
    "network policy": {
        "networkPolicy": {
            "enabled": True,
            "webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
            "apiServer": {"ports": [443, 6443], "cidrs": ["10.0.0.1/32"]},
        }
    },
    "admission policy": {
        **RING,
        "admissionPolicy": {
            "enabled": True,
            "resources": [{"group": "apps", "resource": "deployments"}],
            "shards": [{"namespace": "default", "serviceAccount": "checksum"}],
            "exempt": {"users": ["alice"], "groups": ["system:masters"]},
        },
    },
    "pods": {
        "image": {"repository": "registry.example.com/sharder", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [],
        "serviceAccount": {"annotations": {"note": "c"}},
        "service": {"annotations": {"note": "d"}},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
    },
}
