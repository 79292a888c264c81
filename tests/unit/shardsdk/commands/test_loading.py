"""A command finds the program in a file or a module, or says what is wrong with it, and at which line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsdk.commands.loading import load
from shardsdk.commands.run import Options, _load
from shardsdk.errors import ConfigurationError
from shardsdk.process.process import ExitCode

MANAGER = "from shardsdk import Manager\nmanager = Manager('sites')\n"


@pytest.fixture(autouse=True)
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files are looked for in a directory of their own; what they import is forgotten."""
    monkeypatch.chdir(tmp_path)
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


def complaint(source: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(source)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_file_and_its_neighbours_are_found() -> None:
    write("app/kinds.py", "RING = 'sites'\n")
    write("app/sites.py", "from kinds import RING\nfrom shardsdk import Manager\nmine = Manager(RING)\n")
    found = load("app/sites.py")
    assert (found.name, found.variable) == ("sites", "mine")


def test_a_module_is_found_from_the_current_directory() -> None:
    write("package/__init__.py", "")
    write("package/sites.py", MANAGER)
    assert load("package.sites").name == "sites"
    assert load("package.sites:manager").variable == "manager"


def test_the_main_part_of_a_file_is_not_run() -> None:
    write("sites.py", MANAGER + "if __name__ == '__main__':\n    raise SystemExit('it runs')\n")
    assert load("sites.py").name == "sites"


@pytest.mark.parametrize("runs", ["operator.run()", "operator.manager().run()"])
def test_a_file_that_runs_while_it_is_loaded_is_refused(runs: str) -> None:
    """It would be the process, in whatever cluster the kubeconfig names, and no option of the command would count."""
    text = (
        "from shardsdk import Operator\nfrom shardsdk.kinds import Secret\noperator = Operator('sites')\n"
        f"operator.reconcile(Secret)(lambda ctx: None)\n{runs}\n"
    )
    write("sites.py", text)
    write("package/__init__.py", "")
    write("package/sites.py", text)
    remedy = 'is only loaded here, and runs what it has: write `if __name__ == "__main__":` above that'
    assert complaint("sites.py").endswith(f"sites.py, line 5: sites.py {remedy}: `{runs}`")
    assert complaint("package.sites").endswith(f"sites.py, line 5: package.sites {remedy}: `{runs}`")


def test_a_file_that_awaits_its_manager_while_it_is_loaded_does_not_run(caplog: pytest.LogCaptureFixture) -> None:
    write("sites.py", f"{MANAGER}import asyncio\ncode = asyncio.run(manager.run_async())\n")
    load("sites.py")
    assert sys.modules["sites"].code is ExitCode.CONFIGURATION
    assert "sites.py is only loaded here, and runs what it has" in caplog.text


def test_one_of_several_is_named() -> None:
    write("sites.py", MANAGER + "other = Manager('pages')\nsame = other\n")
    assert complaint("sites.py") == ("sites.py has several: name one: sites.py:manager, sites.py:other, sites.py:same")
    assert load("sites.py:other").name == "pages"


def test_two_names_of_one_are_one() -> None:
    write("sites.py", MANAGER + "same = manager\n")
    assert load("sites.py").variable == "manager"


@pytest.mark.parametrize(
    ("source", "text", "says"),
    [
        ("sites.py", "x = 1\n", r"sites.py has no Operator: .* `operator = Operator\(\"sites\"\)`"),
        ("sites.py", "def f(:\n    pass\n", r"sites.py, line 1: invalid syntax: `def f\(:`"),
        ("sites.py", "x = 1\n\nnothing()\n", r"sites.py, line 3: NameError: name 'nothing' .*: `nothing\(\)`"),
        ("sites.py", "import nothing_of_the_kind\n", r"sites.py, line 1: ModuleNotFoundError: No module named"),
        ("sites.py:other", MANAGER, r"sites.py: 'other' is not there; name one: sites.py:manager"),
        ("sites.py:x", "x = 1\n", r"sites.py: 'x' is of type int, not an Operator .*; and nothing in there is"),
        ("sites", "import nothing_of_the_kind\n", r"sites.py, line 1: ModuleNotFoundError: No module named"),
        (
            "sites.py",
            "from shardsdk.protocol.labels import parse_ring_name\n\nparse_ring_name('')\n",
            r"sites.py, line 3: ring name '' has 0 characters; .*: `parse_ring_name\(''\)`",
        ),
        (
            "sites.py",
            "from shardsdk import Manager, Resource, controller_for\nclass Thing: ...\n"
            "controller_for(Resource('', 'v1', 'configmaps', 'ConfigMap'), Thing)\n",
            r"sites.py, line 3: Thing, the model of configmaps, .*: `controller_for\(",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said_with_its_line(source: str, text: str, says: str) -> None:
    write("sites.py", text)
    assert re.search(says, complaint(source))


@pytest.mark.parametrize("module", ["operator", "types", "logging"])
def test_a_file_that_would_hide_a_module_of_pythons_is_not_run(module: str) -> None:
    before = sys.modules[module]
    write(f"{module}.py", MANAGER)
    assert complaint(f"{module}.py").startswith(f"{module}.py would hide what Python calls {module}: rename it")
    assert sys.modules[module] is before
    assert str(Path.cwd()) not in sys.path


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("nowhere.py", "there is no file nowhere.py; the current directory is /"),
        ("nowhere", "there is no module 'nowhere', nor a file of that name"),
        ("nowhere.deep:x", "there is no module 'nowhere.deep', nor a file of that name"),
        (".", ". is no file of Python"),
        ("README.md", "README.md is no file of Python"),
        ("folder/nowhere", "folder/nowhere is no file of Python"),
    ],
)
def test_what_is_not_there_is_said(source: str, says: str) -> None:
    write("README.md", "")
    assert complaint(source).startswith(says)


def test_a_file_that_failed_leaves_no_half_of_a_module_behind() -> None:
    write("sites.py", "x = 1\nnothing()\n")
    complaint("sites.py")
    write("sites.py", MANAGER)
    assert load("sites.py").name == "sites"


def test_a_manager_that_names_its_addresses_has_those_that_are_given() -> None:
    write(
        "sites.py", "from shardsdk import Manager\nmine = Manager('sites', health_address=':1', metrics_address=':2')\n"
    )
    program = load("sites.py")
    assert program.manager_with({"health_address": ":3"}).addresses == (":3", ":2")
    assert program.manager_with({"metrics_address": ":4"}).addresses == (":3", ":4")


def test_what_is_said_about_a_shard_is_refused_where_none_is() -> None:
    text = (
        "from shardsdk import Operator\nfrom shardsdk.kinds import Secret\noperator = Operator('sites'{})\n"
        "operator.reconcile(Secret)(lambda ctx: None)\n"
    )
    write("alone.py", text.format(""))
    with pytest.raises(
        ConfigurationError, match=r"alone\.py is not sharded: leave out --shard and --restart-grace, or"
    ):
        _load(Options("alone.py", shard="one", restart_grace=0))
    write("shared.py", text.format(", sharded=True"))
    _, manager = _load(Options("shared.py", shard="one", restart_grace=0))
    assert manager.shard == "one"


def test_an_address_for_webhooks_is_refused_where_there_are_none() -> None:
    text = (
        "from shardsdk import Operator\nfrom shardsdk.kinds import Secret\noperator = Operator('sites')\n"
        "operator.{}(Secret)(lambda given: None)\n"
    )
    write("without.py", text.format("reconcile"))
    with pytest.raises(ConfigurationError, match=r"without\.py has no webhooks: leave out --webhooks, or write"):
        _load(Options("without.py", webhooks="127.0.0.1"))
    write("having.py", text.replace("(Secret)(", "(Secret, name='check')(").format("validate"))
    _load(Options("having.py", webhooks="127.0.0.1"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("election='x'", "election='x' is none: write Election"),
        ("namespace=5", "namespace=5 is no text"),
        ("watch_namespace=5", "5 cannot be the name of a namespace"),
    ],
)
def test_a_manager_that_is_told_what_cannot_be_is_said_before_anything_is_asked_for(settings: str, says: str) -> None:
    write("mistaken.py", f"from shardsdk import Manager\nmanager = Manager({settings})\n")
    with pytest.raises(ConfigurationError, match=says):
        _load(Options("mistaken.py"))
