"""Make the folder `.venv` from the lock file, or say what the machine lacks.

Run by `make` with whatever `python3` there is, so this file stays readable to
old interpreters: its first act is to tell them that they are too old.  Of
several of that version on the PATH it takes the fastest: one that was compiled
without optimizations takes a seventh to two thirds more time.

    python3 .ci/environment.py [--as-is] .venv requirements-dev.txt
"""

import os
import subprocess
import sys

OLDEST = (3, 11)
#: An interpreter that is not so much faster is not worth a surprise.
WORTH = 1.1
#: What an interpreter says of itself: its version, how fast it is, and whether it can make virtual environments.
PROBE = """
import ensurepip, sys, time, venv

def loop():
    began = time.process_time()
    number, seen = 0, {}
    while number < 150000:
        seen[number & 63] = (number, str(number))
        number += 1
    return time.process_time() - began

print(*sys.version_info[:2], min(loop() for _ in range(5)))
"""


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


def fastest(mine):
    """The interpreter `mine`, or another of its version on the PATH that is clearly faster."""
    if os.environ.get("VIRTUAL_ENV"):  # somebody has chosen
        return mine
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    others = {os.path.join(folder, name) for folder in os.get_exec_path() if folder}
    times = {}
    for each in [mine, *sorted(others)]:
        try:
            said = subprocess.run([each, "-I", "-c", PROBE], capture_output=True, check=True, timeout=60).stdout.split()
        except (OSError, subprocess.SubprocessError):
            continue  # not there, or without what it takes
        if tuple(map(int, said[:2])) == sys.version_info[:2]:
            times[each] = float(said[2])
    best = min(times, key=times.get, default=mine)
    return best if times.get(mine, 0.0) > WORTH * times.get(best, 0.0) else mine


def main(folder, lock, chosen):
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
        interpreter = sys.executable if chosen else fastest(sys.executable)
        print(f"Making {folder} with {interpreter}", flush=True)
        subprocess.check_call([interpreter, "-m", "venv", "--clear", folder])
    print("Installing the locked dependencies", flush=True)
    subprocess.check_call([*pip, "--require-hashes", "--requirement", lock])
    subprocess.check_call([*pip, "--no-deps", "--no-build-isolation", "--editable", "."])


if __name__ == "__main__":
    try:
        main(*[each for each in sys.argv[1:] if each != "--as-is"], chosen="--as-is" in sys.argv)
    except subprocess.CalledProcessError as failure:
        sys.exit(f"error: {' '.join(failure.cmd)} failed; its output is above")
