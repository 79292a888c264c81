"""Lines of the ports in examples/ports, and of what they are ports of, by one rule.

A line counts unless it is blank or nothing but a comment.  Counted is what a
developer writes by hand (types, controller, webhooks, manifests, imports), not
what tools generate or scaffold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from docsite.pages import ROOT


@dataclass(frozen=True, slots=True)
class Part:
    """Some of an original: what it holds, its lines that count, and the commit that they were counted at."""

    what: str
    lines: int
    commit: str


@dataclass(frozen=True, slots=True)
class Port:
    """A file in examples/ports, and the program that it is a port of."""

    name: str
    title: str
    repository: str
    parts: tuple[Part, ...]

    @property
    def lines(self) -> int:
        """The lines of the port that count; docstrings do."""
        text = (ROOT / "examples" / "ports" / f"{self.name}.py").read_text()
        return count(text)

    @property
    def original(self) -> int:
        """The lines of the original that count."""
        return sum(part.lines for part in self.parts)


PORTS: Final = (
    Port(
        "ephemeral_volume",
        "kopf's EphemeralVolumeClaim",
        "nolar/kopf, docs/walkthrough",
        (
            Part("ephemeral.py: creation, adoption", 21, "07cab46"),
            Part("ephemeral.py: updates", 14, "137e98c"),
            Part("ephemeral.py: labels by diff", 11, "0ee573d"),
            Part("pvc.yaml", 12, "308e7ff"),
            Part("crd.yaml", 28, "137e98c"),
        ),
    ),
    Port(
        "cronjob",
        "kubebuilder's CronJob",
        "kubernetes-sigs/kubebuilder, docs/book/src/cronjob-tutorial/testdata/project",
        (
            Part("cronjob_controller.go", 265, "61337b5"),
            Part("cronjob_types.go", 39, "019c185"),
            Part("cronjob_webhook.go", 120, "0343aa6"),
        ),
    ),
    Port(
        "webpage",
        "Java Operator SDK's WebPage",
        "operator-framework/java-operator-sdk, sample-operators/webpage, managed dependents",
        (
            Part("WebPageManagedDependentsReconciler.java", 36, "19fd26c"),
            Part("Utils.java, without what other variants use", 61, "06757d7"),
            Part("ConfigMapDependentResource.java", 33, "06757d7"),
            Part("DeploymentDependentResource.java", 39, "06757d7"),
            Part("ServiceDependentResource.java", 32, "06757d7"),
            Part("IngressDependentResource.java", 17, "06757d7"),
            Part("ExposedIngressCondition.java", 15, "06757d7"),
            Part("ErrorSimulationException.java", 6, "06757d7"),
            Part("WebPage.java", 13, "ba2dd39"),
            Part("WebPageSpec.java", 22, "d786e94"),
            Part("WebPageStatus.java", 39, "06757d7"),
            Part("deployment.yaml", 26, "1fc7f6e"),
            Part("service.yaml", 12, "b57111a"),
            Part("ingress.yaml", 17, "01db7d1"),
        ),
    ),
)


def count(text: str) -> int:
    """The lines of a Python file that are neither blank nor a comment."""
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())


def render_lines() -> str:
    """Each port next to its original."""
    head = ["| port | lines | original | lines |", "|---|---|---|---|"]
    rows = (f"| `examples/ports/{port.name}.py` | {port.lines} | {port.title} | {port.original} |" for port in PORTS)
    return "\n".join([*head, *rows])


def render_originals() -> str:
    """Of each original what was counted, and at which commit."""
    rows = ["| of | counted | commit | lines |", "|---|---|---|---|"]
    for port in PORTS:
        for number, part in enumerate(port.parts):
            rows.append(f"| {port.repository if number == 0 else ''} | {part.what} | {part.commit} | {part.lines} |")
    return "\n".join(rows)
