"""The pods of the hooks' Jobs: where they run, and what they are marked with.  They have to run, and to end."""

from __future__ import annotations

from tests.chart.helm import Helm, find, select


def test_hook_pods_are_placed_and_marked_as_replicas_are(helm: Helm) -> None:
    nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]}]
        }
    }
    placed = {"priorityClassName": "system-cluster-critical", "affinity": {"nodeAffinity": nodes}}
    documents = helm.render({**placed, "podLabels": {"team": "a"}, "podAnnotations": {"inject": "false"}})
    pods = [each["spec"]["template"] for each in documents if each["kind"] in ("Deployment", "Job")]

    assert len(pods) == 3
    for pod in pods:
        assert placed.items() <= pod["spec"].items()
        assert pod["metadata"]["labels"]["team"] == "a"
        assert pod["metadata"]["annotations"]["inject"] == "false"


def test_what_keeps_replicas_apart_keeps_no_hook_from_a_node(helm: Helm) -> None:
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
    documents = helm.render({"affinity": {"podAntiAffinity": apart}})

    assert find(documents, "Deployment")["spec"]["template"]["spec"]["affinity"] == {"podAntiAffinity": apart}
    for job in select(documents, "Job"):
        assert "affinity" not in job["spec"]["template"]["spec"]


def test_hook_pods_have_marks_of_their_own(helm: Helm) -> None:
    common = {"podLabels": {"inject": "true", "team": "a"}, "podAnnotations": {"inject": "true", "note": "b"}}
    own = {"podLabels": {"inject": "false"}, "podAnnotations": {"inject": "false"}}
    documents = helm.render({**common, "hooks": own})

    for job in select(documents, "Job"):
        metadata = job["spec"]["template"]["metadata"]
        assert {"inject": "false", "team": "a"}.items() <= metadata["labels"].items()
        assert metadata["annotations"] == {"inject": "false", "note": "b"}
    assert find(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]["inject"] == "true"
