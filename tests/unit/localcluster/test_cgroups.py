"""A node's control groups, on folders that look like the kernel's: version 1, version 2, and what is missing there."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcluster import LocalClusterError
from localcluster.cgroups import make_groups

#: What a kubelet asks its root group for.
ASKED_FOR = ["cpu", "cpuset", "hugetlb", "memory", "pids"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Files of version 2: a group with processes hands nothing down, unless it is the machine's root."""

    top: Path
    is_root: bool = False

    def write(self, path: Path, text: str) -> None:
        if path.name == "cgroup.subtree_control":
            if not self.is_root and (path.parent / "cgroup.procs").read_text():
                raise OSError(errno.EBUSY, "Device or resource busy")
            with path.open("a") as file:
                file.write(f" {text.removeprefix('+')}")
            return
        if text == "666":
            raise OSError(errno.ESRCH, "No such process")
        here = self.top / "cgroup.procs"
        here.write_text("".join(f"{each}\n" for each in here.read_text().split() if each not in (text, "666")))
        with path.open("a") as file:
            file.write(f"{text}\n")


def version_2(top: Path, controllers: str = "cpuset cpu io memory hugetlb pids rdma", handed: str = "cpu") -> Path:
    (top / "cgroup.controllers").write_text(f"{controllers}\n")
    (top / "cgroup.subtree_control").write_text(handed)
    (top / "cgroup.procs").write_text("1\n666\n17\n")
    return top


def version_1(top: Path, *hierarchies: str) -> Path:
    for each in hierarchies:
        (top / each).mkdir()
    return top


def test_of_version_1_there_is_one_in_each_hierarchy_and_the_note_names_them(tmp_path: Path) -> None:
    top = version_1(tmp_path, "cpu,cpuacct", "cpuset", "memory", "unified")
    (top / "cpu").symlink_to(top / "cpu,cpuacct")

    make_groups("node", tmp_path / "note", top=top)

    made = sorted(tmp_path.glob("*/node"))
    assert [path.parent.name for path in made if not path.parent.is_symlink()] == [
        "cpu,cpuacct", "cpuset", "memory", "unified",
    ]  # fmt: skip
    assert sorted((tmp_path / "note").read_text().splitlines()) == sorted(
        str(path) for path in made if not path.parent.is_symlink()
    )


def test_a_controller_that_kubelets_need_not_have_may_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = version_1(tmp_path, "cpu", "cpuacct", "cpuset", "memory", "devices")
    mkdir = Path.mkdir

    def refuse(path: Path) -> None:
        if path.parent.name == closed:
            raise OSError(errno.EROFS, "Read-only file system")
        mkdir(path)

    monkeypatch.setattr(Path, "mkdir", refuse)
    closed = "devices"
    make_groups("node", tmp_path / "note", top=top)
    closed = "memory"
    with pytest.raises(LocalClusterError, match=r"memory/another: Read-only file system; in a container.*privileges"):
        make_groups("another", tmp_path / "note", top=top)


@pytest.mark.parametrize(("controllers", "missing"), [("cpu pids", "memory"), ("memory", "cpu, pids")])
def test_of_version_2_what_is_missing_is_named(tmp_path: Path, controllers: str, missing: str) -> None:
    with pytest.raises(LocalClusterError, match=f"controllers {missing}, which are not in .*IMAGE="):
        make_groups("node", tmp_path / "note", top=version_2(tmp_path, controllers))


def test_of_version_1_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="controllers cpuacct, memory, which are not in"):
        make_groups("node", tmp_path / "note", top=version_1(tmp_path, "cpu", "cpuset"))
    with pytest.raises(LocalClusterError, match="controllers cpu, cpuacct, cpuset, memory"):
        make_groups("node", tmp_path / "note", top=tmp_path / "absent")


def test_of_version_2_the_root_hands_down_what_a_kubelet_asks_for(tmp_path: Path) -> None:
    top = version_2(tmp_path)

    make_groups("node", tmp_path / "note", top=top, write=Kernel(top, is_root=True).write)

    assert (top / "node").is_dir()
    assert (tmp_path / "note").read_text() == f"{top / 'node'}\n"
    assert sorted((top / "cgroup.subtree_control").read_text().split()) == ASKED_FOR
    assert (top / "cgroup.procs").read_text() == "1\n666\n17\n", "nothing moves on the machine itself"


def test_a_containers_own_group_makes_room_first(tmp_path: Path) -> None:
    top = version_2(tmp_path)

    make_groups("node", tmp_path / "note", top=top, write=Kernel(top).write)

    assert sorted((top / "cgroup.subtree_control").read_text().split()) == ASKED_FOR
    assert (top / "init" / "cgroup.procs").read_text().split() == ["1", "17"]


def test_where_nothing_can_be_handed_down_it_says_so(tmp_path: Path) -> None:
    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.raises(LocalClusterError, match=r"controller cpuset cannot be handed down .*Read-only.*privileges"):
        make_groups("node", tmp_path / "note", top=version_2(tmp_path), write=refuse)
    assert not (tmp_path / "node").exists()
