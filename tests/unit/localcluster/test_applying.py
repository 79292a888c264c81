"""What is read from files and folders, and what of it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster.applying import read_manifests
from localcluster.errors import LocalClusterError


def manifest(name: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n"


def names(*files: Path, text: str | None = None) -> list[str]:
    return [each["metadata"]["name"] for each in read_manifests(files, text)]


def test_files_then_the_text_each_with_all_its_documents(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(f"---\n{manifest('b')}---\n{manifest('c')}---\n")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}')
    assert names(tmp_path / "b.yaml", tmp_path / "a.json", text=manifest("d")) == ["b", "c", "a", "d"]


def test_of_a_folder_the_manifests_in_order(tmp_path: Path) -> None:
    for name in ("2.yml", "1.yaml", "README.md"):
        (tmp_path / name).write_text(manifest(name) if name != "README.md" else "# no manifest")
    assert names(tmp_path) == ["1.yaml", "2.yml"]


def test_a_list_is_what_it_lists() -> None:
    items = "".join(f"- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n" for name in ("a", "b"))
    assert names(text=f"apiVersion: v1\nkind: List\nitems:\n{items}") == ["a", "b"]


@pytest.mark.parametrize(
    "text", ["just words", "- 1", "kind: ConfigMap\nmetadata: {name: a}", "apiVersion: v1\nkind: X"]
)
def test_what_is_no_object_is_refused_with_where_it_was(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(f"{manifest('fine')}---\n{text}")
    with pytest.raises(LocalClusterError, match=r"broken\.yaml: document 2 is no object"):
        names(file)
