"""The project's images, built where no registry can be reached.

The base is made from Debian's packages, once, and kept with all of buildah's
layers in the user's cache; the Dockerfile does the rest.  Takes root, Debian
and `make node-deps`.

Refuses: to know where packages come from.  What the machine's pip is told
(certificates, index) the build is told too, and it stays in the build's stage.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster.binaries import cache_home, say
from localcluster.build import Say
from localcluster.drafts import delete_tree, draft_folder, one_at_a_time
from localcluster.errors import BinariesMissing, LocalClusterError
from localcluster.node_programs import PATH
from shardsdk.version import VERSION

ROOT: Final = Path(__file__).resolve().parent.parent
#: Of Debian; its Python is 3.11.
_SUITE: Final = "bookworm"
_PACKAGES: Final = ("ca-certificates", "python3", "python3-pip", "python3-venv")
#: What only the build needs: of those packages, and of what they bring along.
_BUILD_ONLY: Final = (
    "python3-pip", "python3-venv", "python3.11-venv", "python3-pip-whl", "python3-setuptools-whl", "python3-setuptools",
    "python3-wheel", "python3-pkg-resources", "python3-distutils", "python3-lib2to3",
)  # fmt: skip
#: What only people and package managers read.
_LEFT_OUT: Final = (
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./usr/share/doc/*",
    "./usr/share/locale/*",
    "./dev/*",
)
#: The base, layers of two images, and room to work.  Source: measured, 1.2 GiB.
_NEEDED_BYTES: Final = 3 << 30
_TOOLS: Final = ("buildah", "debootstrap", "tar")
#: Archives go when nobody has used them for so long; another checkout's may be on its way into a node.
_KEEP_SECONDS: Final = 3600.0
#: Downloads of some hundred packages.
_BASE_ATTEMPTS: Final = 3
#: Where the build finds the machine's certificates.
_CERTIFICATES: Final = "/run/certificates.crt"
#: One time for all files, and for every commit, so that the same layers are the same.
_OF_ONE_TIME: Final = ("--timestamp", "0")
#: Target in the Dockerfile -> name of the image.
TARGETS: Final = {"sharder": "controller-sharding", "examples": "controller-sharding-examples"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image, and the archive that it is in."""

    repository: str
    tag: str
    archive: Path

    @property
    def reference(self) -> str:
        """As a pod names it."""
        return f"{self.repository}:{self.tag}"

    @property
    def released(self) -> str:
        """The name that `make image` gives and that the charts have by default."""
        return f"{self.repository.removeprefix('localhost/')}:{VERSION}"


def build_images(environment: Mapping[str, str] | None = None, *, tell: Say = say) -> dict[str, Image]:
    """Build every image of `TARGETS` from the checkout; of two builds at once, one waits.

    Raises: BinariesMissing (what to install), LocalClusterError (what failed).
    """
    environment = os.environ if environment is None else environment
    folder = _own_folder(environment)
    with one_at_a_time(folder / "lock", tell):
        buildah = _Buildah.of(folder, environment)
        arguments = _arguments(buildah, tell)
        return {target: _build(buildah, arguments, target, name, tell) for target, name in TARGETS.items()}


def builder(environment: Mapping[str, str] | None = None, *, tell: Say = say) -> tuple[list[str], list[str]]:
    """What `make image` takes where no registry can be reached: its BUILDER, and its ARGS.

    Raises: as `build_images`.
    """
    environment = os.environ if environment is None else environment
    folder = _own_folder(environment)
    with one_at_a_time(folder / "lock", tell):
        buildah = _Buildah.of(folder, environment)
        return list(buildah.command), [*_OF_ONE_TIME, *_arguments(buildah, tell)]


def _own_folder(environment: Mapping[str, str]) -> Path:
    """Where images are built.  Raises: BinariesMissing."""
    _check_tools()
    folder = cache_home(environment) / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _arguments(buildah: _Buildah, tell: Say) -> list[str]:
    """Arguments of every build here, for bases that are there then."""
    build_base = _make_base(buildah, tell)
    bases = {"BASE": _make_runtime(buildah, build_base), "BUILD_BASE": build_base}
    said = [part for name, image in bases.items() for part in ("--build-arg", f"{name}={image}")]
    return ["--isolation", "chroot", "--layers", *said, *_trust(buildah.environment)]


def build_folder(
    folder: Path, name: str, environment: Mapping[str, str] | None = None, *, tell: Say = say
) -> tuple[str, Path]:
    """Build the Dockerfile of a folder, on one of the project's images if it likes; its full name and archive.

    The project's images are those that `build_images` made last; they are made when they are not there.  The Dockerfile
    is given what the project's own is: BASE, BUILD_BASE, and PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT as they are here.
    Raises: BinariesMissing (what to install), LocalClusterError (what failed).
    """
    environment = os.environ if environment is None else environment
    full = full_name(name)
    own = _own_folder(environment)
    if not (folder / "Dockerfile").exists():
        raise LocalClusterError(f"there is no Dockerfile in {folder}")
    if not all(_Buildah.of(own, environment).has(f"localhost/{each}:{VERSION}") for each in TARGETS.values()):
        build_images(environment, tell=tell)
    with one_at_a_time(own / "lock", tell):
        buildah = _Buildah.of(own, environment)
        tell(f"localcluster: building the image {name}")
        bud = ("bud", "--quiet", *_arguments(buildah, tell))
        identity = buildah.run(*bud, "--tag", full, str(folder.resolve()))
        archive = own / f"{full.replace('/', '_').replace(':', '_')}.tar"
        _forget(archive, "*_*.tar")  # with a registry's slash in each name, unlike the project's
        archive.unlink(missing_ok=True)
        buildah.run("push", "--quiet", identity.splitlines()[-1], f"docker-archive:{archive}:{full}")
    return full, archive


def full_name(name: str) -> str:
    """The name that a node takes for an image's `repository:tag`: with a registry.  Raises: LocalClusterError."""
    repository, _, tag = name.rpartition(":")
    if not repository or "/" in tag:
        raise LocalClusterError(f"the image {name!r} has no tag: write repository:tag")
    first, _, rest = repository.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{'' if rest else 'library/'}{name}"


def _check_tools() -> None:
    """Raises: BinariesMissing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=PATH) is None]
    if missing or os.geteuid() != 0:
        raise BinariesMissing(f"building images takes root and {', '.join(missing or _TOOLS)}: make node-deps")


@dataclass(frozen=True, slots=True)
class _Buildah:
    """buildah with storage of its own."""

    folder: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @staticmethod
    def of(folder: Path, environment: Mapping[str, str]) -> _Buildah:
        program = shutil.which("buildah", path=PATH) or "buildah"
        own = {**environment, "PATH": PATH}
        for driver in ("overlay", "vfs"):
            roots = ("--root", str(folder / driver), "--runroot", str(folder / f"{driver}-run"))
            command = (program, "--storage-driver", driver, *roots)
            if subprocess.run([*command, "info"], env=own, capture_output=True, check=False).returncode == 0:
                return _Buildah(folder, command, own)
        raise LocalClusterError(f"buildah works in {folder} with neither overlay nor vfs; try `{program} info`")

    def run(self, *arguments: str) -> str:
        """Returns its standard output.  Raises: LocalClusterError with the end of what it said."""
        done = subprocess.run(
            [*self.command, *arguments], env=self.environment, cwd=ROOT, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = "\n    ".join((done.stdout + done.stderr).splitlines()[-15:])
            raise LocalClusterError(f"buildah {' '.join(arguments[:2])} failed ({done.returncode}):\n    {said}")
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        """Whether it has that image."""
        inspect = [*self.command, "inspect", "--type", "image", image]
        return subprocess.run(inspect, env=self.environment, capture_output=True, check=False).returncode == 0


def _make_base(buildah: _Buildah, tell: Say) -> str:
    """The name of the base image; made when it is not there yet."""
    digest = hashlib.sha256(repr((_SUITE, _PACKAGES, _LEFT_OUT)).encode()).hexdigest()[:8]
    image = f"localhost/controller-sharding-base:{_SUITE}-{digest}"
    if buildah.has(image):
        return image
    free = shutil.disk_usage(buildah.folder).free
    if free < _NEEDED_BYTES:
        raise LocalClusterError(
            f"building images needs {_NEEDED_BYTES >> 30} GiB of disk, {free / (1 << 30):.1f} GiB are free in"
            f" {buildah.folder}; make room, or set XDG_CACHE_HOME to another disk"
        )
    tell(f"localcluster: making a base image from Debian {_SUITE}'s packages, once; this takes some minutes")
    with draft_folder(buildah.folder, ".base-") as draft:
        _bootstrap(draft, buildah, tell)
        left_out = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        packed = str(draft / "root.tar")
        _run(["tar", "-C", str(draft / "root"), *left_out, "-cf", packed, "."], draft / "log", buildah)
        container = buildah.run("from", "scratch")
        try:
            buildah.run("add", "--quiet", container, packed, "/")
            buildah.run("commit", "--quiet", container, image)
        finally:
            buildah.run("rm", container)
    return image


def _make_runtime(buildah: _Buildah, build_base: str) -> str:
    """The name of the base without what only builds need, in one layer; made when it is not there yet."""
    digest = hashlib.sha256(repr((build_base, _BUILD_ONLY)).encode()).hexdigest()[:8]
    image = f"localhost/controller-sharding-runtime:{_SUITE}-{digest}"
    if buildah.has(image):
        return image
    container = buildah.run("from", build_base)
    try:
        remove = f"dpkg --purge {' '.join(_BUILD_ONLY)} && rm -rf /usr/share/man/* /var/log/*"
        buildah.run("run", "--isolation", "chroot", container, "--", "sh", "-c", remove)
        buildah.run("commit", "--quiet", "--squash", container, image)
    finally:
        buildah.run("rm", container)
    return image


def _bootstrap(draft: Path, buildah: _Buildah, tell: Say) -> None:
    """Make Debian's root in `draft`; what was downloaded is kept for the next attempt."""
    packages = draft / "packages"
    packages.mkdir()
    options = ["--variant=minbase", f"--include={','.join(_PACKAGES)}", f"--cache-dir={packages}"]
    for attempt in range(1, _BASE_ATTEMPTS + 1):
        try:
            _run(["debootstrap", *options, _SUITE, str(draft / "root")], draft / "log", buildah)
            return
        except LocalClusterError as error:
            if attempt == _BASE_ATTEMPTS:
                raise
            tell(f"localcluster: {error}\nlocalcluster: trying again")
            delete_tree(draft / "root")


def _build(buildah: _Buildah, arguments: Sequence[str], target: str, name: str, tell: Say) -> Image:
    """Build one target; its tag tells its content, so that a node never runs an old one by mistake."""
    tell(f"localcluster: building the image {name}")
    # The second is for whoever builds on it.
    names = [f"--tag=localhost/{name}:{tag}" for tag in ("latest", VERSION)]
    # Quiet: the last line is the image's id then.
    bud = ["bud", "--quiet", "--target", target, *_OF_ONE_TIME, *arguments, "--build-arg", f"VERSION={VERSION}"]
    identity = buildah.run(*bud, *names, ".").splitlines()[-1]
    tag = identity.removeprefix("sha256:")[:12]
    archive = buildah.folder / f"{name}-{tag}.tar"
    _forget(archive, f"{name}-{'?' * 12}.tar")
    if archive.exists():
        archive.touch()
    else:
        draft = archive.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        buildah.run("push", "--quiet", identity, f"docker-archive:{draft}:localhost/{name}:{tag}")
        draft.rename(archive)
    return Image(f"localhost/{name}", tag, archive)


def _forget(archive: Path, others: str) -> None:
    """Delete the archives of that pattern that nobody uses any more."""
    for old in archive.parent.glob(others):
        if old != archive and time.time() - old.stat().st_mtime > _KEEP_SECONDS:
            old.unlink()


def _trust(environment: Mapping[str, str]) -> list[str]:
    """Arguments by which pip in the build goes where the machine's pip goes, and trusts whom that trusts."""
    arguments = []
    for setting in ("index-url", "find-links", "cert"):
        value = _pip_setting(setting, environment)
        if setting == "cert":
            value = value or environment.get("REQUESTS_CA_BUNDLE") or environment.get("SSL_CERT_FILE") or ""
        if not value:
            continue
        inside = value
        if Path(value).is_absolute() and Path(value).exists():
            inside = _CERTIFICATES if setting == "cert" else f"/run/{setting}"
            arguments += ["--volume", f"{value}:{inside}:ro"]
        elif Path(value).is_absolute():
            continue
        arguments += ["--build-arg", f"PIP_{setting.upper().replace('-', '_')}={inside}"]
    return arguments


def _pip_setting(name: str, environment: Mapping[str, str]) -> str:
    """As the environment or pip's own files have it; empty when neither has."""
    value = environment.get(f"PIP_{name.upper().replace('-', '_')}", "")
    if value:
        return value
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(argv: Sequence[str], log: Path, buildah: _Buildah) -> None:
    """Run a program with its output in a file.  Raises: LocalClusterError with the end of that."""
    with log.open("ab") as output:
        done = subprocess.run(
            argv, env=buildah.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    if done.returncode:
        said = "\n    ".join(log.read_text(errors="replace").splitlines()[-15:])
        raise LocalClusterError(f"{argv[0]} failed ({done.returncode}):\n    {said}")
