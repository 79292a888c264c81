"""Print what the image and the wheel are made of, as CycloneDX: from the lock file, and the same for the same lock.

    python .ci/sbom.py requirements.txt 0.1.0 > sbom.json

Components have the hashes that pip holds what it installs against, so that the list can be held against an image.
"""

import hashlib
import json
import re
import sys
import uuid
from pathlib import Path

#: A distribution with its marker and its hashes, over several lines.
ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE)


def component(entry):
    """One distribution; `scope` tells those that some platforms go without."""
    name = re.sub(r"[-_.]+", "-", entry["name"]).lower()
    purl = f"pkg:pypi/{name}@{entry['version']}"
    files = sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry["rest"]))
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": entry["version"],
        "purl": purl,
        "scope": "optional" if ";" in entry["rest"].split("\\")[0] else "required",
        "externalReferences": [
            {"type": "distribution", "url": purl, "hashes": [{"alg": "SHA-256", "content": each}]} for each in files
        ],
    }


def bom(lock, version):
    """The whole document; its serial number is made of the lock's content."""
    text = Path(lock).read_text()
    digest = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()
    own = f"pkg:pypi/controller-sharding@{version}"
    components = sorted((component(entry) for entry in ENTRY.finditer(text)), key=lambda each: each["bom-ref"])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "controller-sharding",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [{"name": "lock:sha256", "value": hashlib.sha256(text.encode()).hexdigest()}],
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in components]}],
    }


if __name__ == "__main__":
    print(json.dumps(bom(*sys.argv[1:]), indent=2, sort_keys=True))
