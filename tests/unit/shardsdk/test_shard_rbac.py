"""`shardsdk rbac` prints what a shard may do: what rbac/shard.yaml says of the example, for any controller."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardsdk.cli import main
from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import ShardRole, shard_role
from shardsdk.version import VERSION
from tests.permissions import Permission, read_files, read_permissions

ROOT = Path(__file__).parents[3]
EXAMPLE = ("rbac", "--ring", "checksum", "--main", "secrets", "--controlled", "configmaps")


def documents(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(arguments) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_for_the_example_it_prints_the_repositorys_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert documents(*EXAMPLE, capsys=capsys) == read_files(ROOT / "rbac" / "shard.yaml")


def test_resources_of_several_groups_are_named_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        *("rbac", "--ring", "apps", "--name", "operator", "--namespace", "team", "--controlled-verbs", ""),
        *("--main", "deployments.apps,databases.example.com", "--main", "secrets", "--main-verbs", "get,list"),
        *("--controlled", "replicasets.apps", "--controlled", "pods"),
    )
    granted = read_permissions(documents(*arguments, capsys=capsys))
    assert granted.keys() == {"team/operator"}
    objects = {each for each in granted["team/operator"] if not each.namespace and not each.name}
    main_verbs, controlled_verbs = ("list", "watch", "patch", "get"), ("list", "watch")
    statuses = {Permission(f"{name}/status", "patch") for name in ("deployments.apps", "databases.example.com")}
    mains = ("deployments.apps", "databases.example.com", "secrets")
    finalizers = {Permission(f"{name}/finalizers", "update") for name in mains}
    events = {Permission("events", verb) for verb in ("create", "patch")}
    assert objects == statuses | finalizers | events | {
        Permission(name, verb)
        for names, verbs in (
            (mains, main_verbs),
            (("replicasets.apps", "pods"), controlled_verbs),
        )
        for name in names
        for verb in verbs
    }


def test_where_nothing_is_controlled_no_finalizers_are_granted(capsys: pytest.CaptureFixture[str]) -> None:
    granted = read_permissions(documents("rbac", "--ring", "alone", "--main", "secrets", capsys=capsys))
    assert {each.resource for each in granted["default/alone"] if each.verb == "update"} == set()


def test_a_controller_of_one_namespace_gets_nothing_outside_but_a_look_at_its_ring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = documents(*EXAMPLE, "--watch-namespace", "default", capsys=capsys)
    roles = ["Role", "RoleBinding", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert [each["kind"] for each in made] == ["ServiceAccount", *roles]
    names = [each["metadata"]["name"] for each in made if each["kind"] == "Role"]
    assert len(set(names)) == len(names), "one would overwrite the other"
    outside = {each for each in read_permissions(made)["default/checksum"] if each.namespace != "default"}
    assert outside == {Permission("clusterrings.sharding.timebertt.dev", "get", "", "checksum")}


@pytest.mark.parametrize("where", [(), ("--watch-namespace", "objects")], ids=["everywhere", "one namespace"])
def test_no_role_is_another_controllers(where: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """In the cluster or in the namespace of the objects: a binding of one name would be taken over in silence."""
    one, two = (
        {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in documents(*EXAMPLE, "-n", namespace, *where, capsys=capsys)
        }
        for namespace in ("one", "two")
    )
    assert not one & two


def test_names_that_yaml_would_take_for_something_else_stay_text(capsys: pytest.CaptureFixture[str]) -> None:
    made = documents("rbac", "--ring", "r", "--name", "1e3", "-n", "on", "--main", "null", capsys=capsys)
    assert made[0]["metadata"] == {"name": "1e3", "namespace": "on"}
    assert made[3]["rules"][0]["resources"] == ["null"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--main", "Secret"], "'Secret' is no resource; write the plural in lower case"),
        (["--main", "apps/v1/deployments"], "'apps/v1/deployments' is no resource"),
        (["--main", ","], "--main names no resource"),
        (["--main", "configmaps", "--controlled", "configmaps"], "configmaps is given as --main and as --controlled"),
        (["--main", "secrets", "--main-verbs", "read"], "--main-verbs: 'read' is no verb; there are get, list"),
        (["--main", "secrets", "--namespace", "Team"], "--namespace: 'Team' cannot be a name"),
        (["--main", "secrets", "--watch-namespace", ""], "--watch-namespace: '' cannot be a name"),
        (["--main", "secrets", "--ring", "a" * 64], "use 1 to 63"),
    ],
)
def test_wrong_input_is_one_line_that_says_what_to_write(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rbac", "--ring", "example", *arguments]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("shardsdk: ")
    assert says in line
    assert printed.out == ""


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "shardsdk", "version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"shardsdk \S+ \(Python \S+\)\n", done.stdout)


def test_where_ranges_are_assigned_a_shard_reads_who_has_which_and_patches_no_object_to_let_go_of_it() -> None:
    role = ShardRole("example", "example", "default", [GroupResource("", "secrets")], by_ranges=True)
    rules = [rule for made in shard_role(role) for rule in made.get("rules", ())]
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert {("leases", "list"), ("ringassignments", "get"), ("ringassignments", "watch")} <= granted
    assert {verb for resource, verb in granted if resource == "secrets"} == {"list", "watch"}
    [assignments] = [rule for rule in rules if rule["resources"] == ["ringassignments"]]
    assert assignments["resourceNames"] == ["example"]


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_the_command_says_its_version(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([asked]) == 0
    assert capsys.readouterr().out.startswith(f"shardsdk {VERSION} (Python 3.")
