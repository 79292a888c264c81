"""Only webhooks need what the extra brings."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = "import sys; sys.modules.update(dict.fromkeys(['cryptography', 'httptools', 'uvicorn']));"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, check=False)
    return done.stdout.strip() + done.stderr.strip()


def test_without_the_extra_the_error_says_how_to_install_it() -> None:
    said = run(
        "from shardsdk.errors import ConfigurationError; from shardsdk.serving import require_webhooks\n"
        "try: require_webhooks()\n"
        "except ConfigurationError as error: print(error)"
    )
    assert said == (
        "webhooks need cryptography and httptools and uvicorn, not installed here:"
        " pip install controller-sharding[webhooks]"
    )


def test_with_the_extra_there_is_nothing_to_say() -> None:
    code = "from shardsdk.serving import require_webhooks; require_webhooks(); print('served')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "served"


def test_the_rest_of_the_sdk_does_without_it() -> None:
    modules = "shardsdk, shardsdk.cli, shardsdk.testing, shardsdk.types, shardsdk.serving, shardsdk.serving.body"
    assert run(f"import {modules}; print('imported')") == "imported"
