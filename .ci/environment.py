"""Make the folder `.venv` from the lock file, or say what the machine lacks.

Run by `make` with whatever `python3` there is, so this file stays readable to
old interpreters: its first act is to tell them that they are too old.

    python3 .ci/environment.py .venv requirements-dev.txt
"""

import os
import subprocess
import sys

OLDEST = (3, 11)


def problem():
    """What this interpreter lacks, with the remedy; empty when nothing."""
    this = f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}"
    if sys.version_info < OLDEST:
        return f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, {this}."
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return (
            f"{this}, but lacks the standard module {error.name}, which makes virtual environments.\n"
            "On Debian and Ubuntu it is a package of its own: apt-get install python3-venv"
        )
    return ""


def main(folder, lock):
    """Create `folder` where it is missing or broken, then install what `lock` names, by hash."""
    complaint = problem()
    if complaint:
        sys.exit(f"error: {complaint}\nOr point make to another Python: make PYTHON=/path/to/python3.12")
    python = os.path.join(folder, "bin", "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile"]
    try:
        if subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL):
            raise OSError("broken")
    except OSError:
        print(f"Making {folder} with {sys.executable}", flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", folder])
    print("Installing the locked dependencies", flush=True)
    subprocess.check_call([*pip, "--require-hashes", "--requirement", lock])
    subprocess.check_call([*pip, "--no-deps", "--no-build-isolation", "--editable", "."])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as failure:
        sys.exit(f"error: {' '.join(failure.cmd)} failed; its output is above")
