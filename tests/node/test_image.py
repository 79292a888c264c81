"""What is in the images, and how much of it is ours; and that `make image` builds them by a real builder."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tarfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from localcluster.binaries import say
from localcluster.images import TARGETS, Image, builder
from tests.node.clusters import PATIENCE_SECONDS
from tests.node.conftest import IMAGE

#: Below the base there are interpreter and libraries of the distribution; ours is what the Dockerfile adds.
PACKAGES: Final = "opt/sharder/lib/python3.11/site-packages"
#: Measured: 83 MB, of which cryptography, uvloop and aiohttp are 38. A package too many, or the kubernetes package's
#: generated models (35 MB), show here.
MOST_BYTES: Final = 95_000_000
EXAMPLES_BYTES: Final = 1_000_000
#: Debian's root with Python and certificates. Measured: 119 MB.
BASE_BYTES: Final = 135_000_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(4 * PATIENCE_SECONDS),
    pytest.mark.skipif(
        bool(IMAGE), reason="not tested: size, content and building of images; IMAGE was built elsewhere"
    ),
]


@dataclass(frozen=True, slots=True)
class Layer:
    """Files of one layer, with their sizes."""

    files: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.files.values())

    def below(self, folder: str) -> Counter[str]:
        """Bytes by what is directly below a folder."""
        found: Counter[str] = Counter()
        for path, size in self.files.items():
            if path.startswith(f"{folder}/"):
                found[path.removeprefix(f"{folder}/").split("/")[0]] += size
        return found


def read_layers(archive: Path) -> list[Layer]:
    """The layers of a docker archive, the base first."""
    layers = []
    with tarfile.open(archive) as image:
        manifest = image.extractfile("manifest.json")
        assert manifest is not None
        [described] = json.load(manifest)
        for name in described["Layers"]:
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                files = {each.name.removeprefix("./"): each.size for each in layer if each.isfile()}
            if files:
                layers.append(Layer(files))
    return layers


def test_they_hold_what_runs_and_little_else(images: Mapping[str, Image]) -> None:
    base, ours = read_layers(images["sharder"].archive)
    *below, examples = read_layers(images["examples"].archive)

    packages = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in ours.below(PACKAGES).most_common(8))
    say(f"image: base {base.size / 1e6:.0f} MB, ours {ours.size / 1e6:.0f} MB; largest packages: {packages}")
    assert ours.size < MOST_BYTES
    assert base.size < BASE_BYTES
    assert [layer.files for layer in below] == [base.files, ours.files], "both images share all but the examples"
    assert examples.size < EXAMPLES_BYTES
    assert {path.split("/")[0] for path in ours.files} == {"opt"}
    assert {path.split("/")[:2][-1] for path in examples.files} == {"examples"}


def test_neither_has_the_tools_of_the_build(images: Mapping[str, Image]) -> None:
    base, ours = read_layers(images["sharder"].archive)

    assert {"sharder", "shardsdk", "cryptography", "uvicorn"} <= ours.below(PACKAGES).keys()
    assert not {"pip", "setuptools", "pytest", "tests", "localcluster"} & ours.below(PACKAGES).keys()
    assert not {"pip", "setuptools"} & base.below("usr/lib/python3/dist-packages").keys()
    assert {"sharder", "python3"} <= ours.below("opt/sharder/bin").keys() | links_of(images["sharder"].archive)
    assert not [path for path in (*base.files, *ours.files) if path.endswith(("/gcc", "/pip3", "/git"))]


def links_of(archive: Path) -> set[str]:
    """Names of symbolic links below opt/sharder/bin."""
    found = set()
    with tarfile.open(archive) as image:
        for name in image.getnames():
            if name.endswith(".tar"):
                with tarfile.open(fileobj=image.extractfile(name)) as layer:
                    found |= {Path(each.name).name for each in layer if "opt/sharder/bin" in each.name}
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_make_image_builds_it(images: Mapping[str, Image], target: str) -> None:
    """By buildah, on a base made here: nothing is pulled. Built anew, its layers are those of the image above."""
    command, arguments = builder()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    make = ["make", "image", f"TARGET={target}", "VERSION=made-by-make"]
    make += [f"BUILDER={shlex.join(command)}", f"ARGS={shlex.join([*arguments, '--no-cache'])}"]
    done = subprocess.run(make, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    inspect = [*command, "inspect", "--type", "image", f"localhost/{TARGETS[target]}:made-by-make"]
    built = json.loads(subprocess.run(inspect, stdout=subprocess.PIPE, text=True, check=True).stdout)["OCIv1"]
    assert built["config"]["User"] == "65532:65532"
    assert built["rootfs"]["diff_ids"] == diff_ids(images[target].archive)


def diff_ids(archive: Path) -> list[str]:
    """The layers of an image, by their content."""
    with tarfile.open(archive) as image:
        manifest = image.extractfile("manifest.json")
        assert manifest is not None
        [described] = json.load(manifest)
        config = image.extractfile(described["Config"])
        assert config is not None
        found: list[str] = json.load(config)["rootfs"]["diff_ids"]
        return found
