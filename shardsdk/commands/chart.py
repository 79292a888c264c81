"""`shardsdk manifests --helm DIR`: the same manifests as a chart, with what differs between clusters as its values.

Values are put in by marks that the manifests carry, so that a chart is what `manifests` prints and nothing else:

    imagePullPolicy: '@@value .Values.pull'         imagePullPolicy: {{ .Values.pull }}
    replicas: '@@given .Values.replicas'            the same, and nothing at all when it is "", but for 0
    resources: '@@yaml .Values.resources'           resources:
                                                      {{- toYaml .Values.resources | nindent 12 }}
    nodeSelector: '@@with .Values.nodeSelector'     the same, and nothing at all when it is empty
    - '@@items .Values.env'                         further entries of a list
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from shardsdk.admission.certmanager import Issuer, render_certificate
from shardsdk.commands.manifests import SHARDER_VERBS, Deployed
from shardsdk.commands.rendering import render, render_scalar
from shardsdk.commands.workload import RESOURCES, workload
from shardsdk.errors import ConfigurationError

_MARK: Final = re.compile(
    r"^(?P<indent> *)(?P<first>- )?(?:(?P<key>\w+): )?'?@@(?P<how>\w+) (?P<value>[.\w]+)'?\n", re.MULTILINE
)
_IMAGE: Final = re.compile(r"(?P<repository>[^@]+?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?")

#: Whether a value is a number, also 0.
_GIVEN: Final = 'or {0} (eq (toString {0}) "0")'

#: The whole name of an image, of its values. Of a tag that YAML has read as a number nobody knows how it was written.
_IMAGE_VALUE: Final = (
    '{{ if kindIs "float64" .Values.image.tag }}{{ fail "image.tag is a number; put it in quotes" }}{{ end }}'
    "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag }}{{ end }}"
)

_CHART: Final = """\
apiVersion: v2
name: {name}
description: The operator {name}
type: application
version: {version}
appVersion: {app_version}
kubeVersion: ">=1.30.0-0"
"""
_VALUES: Final = """\
# How many pods: {what}. Empty (""): as many as there are, where an autoscaler sets their number.
replicas: {replicas}

image:
  repository: {repository}
  tag: {tag}
  # As in sha256:…; wins over the tag.
  digest: {digest}
  pullPolicy: IfNotPresent
imagePullSecrets: []

# For the image's entry point.
args: {args}
# Besides POD_NAMESPACE, POD_NAME and POD_UID.
env: []
resources:
  requests: {{cpu: {cpu}, memory: {requested}}}
  limits: {{memory: {limit}}}

serviceAccount:
  annotations: {{}}
podAnnotations: {{}}
nodeSelector: {{}}
tolerations: []
affinity: {{}}
priorityClassName: ""
"""
_SHARDER: Final = """
# Whom the ring's role is for: the sharder's ServiceAccount.
sharder:
  namespace: {0}
  serviceAccount: {1}
"""
_CERTIFICATES: Final = """
# Of cert-manager, who signs the certificate of the webhooks: {{kind: …, name: …, group: …}}.
# {own} is made with the release, and is for this operator alone.
issuerRef: {issuer}
"""
_NOTES: Final = """\
{kind} {{{{ .Release.Namespace }}}}/{name} has \
{{{{ if {given} }}}}{{{{ .Values.replicas }}}} replicas{{{{ else }}}}\
as many replicas as its autoscaler says{{{{ end }}}}.

  kubectl -n {{{{ .Release.Namespace }}}} rollout status {lower}/{name}

Helm installs definitions of custom resources once and never changes them; bring them up to date by

  kubectl apply --server-side -f crds
"""


#: Further rules of the sharder's role: for what the ring lists no more, and still has labelled.
_PLACED: Final = """\
{{- /* What the ring lists no more keeps its labels until the sharder has taken them off. This grants nothing new. */}}
{{- if .Capabilities.APIVersions.Has "VERSION/KIND" }}
{{- $listed := list LISTED }}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "ROLE" }}
{{- range $each := dig "status" "placedResources" list (lookup "VERSION" "KIND" "" "RING") }}
{{- $group := default "" $each.group }}
{{- range $rule := default list (get $role "rules") }}
{{- $granted := and (has $group (default list $rule.apiGroups)) (has $each.resource (default list $rule.resources)) }}
{{- if and $granted (not (has (list $group $each.resource) $listed)) }}
{{- $listed = append $listed (list $group $each.resource) }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ $each.resource | quote }}]
  verbs: [VERBS]
{{- end }}
{{- end }}
{{- end }}
{{- end }}
"""


#: Begins what is written into `crds` and `templates`: a file there that does not is somebody else's.
_WRITTEN: Final = "# Written by `shardsdk manifests --helm`.\n"


@dataclass(frozen=True, slots=True)
class Chart:
    """The files of a chart, by their paths in it; an empty one is what this operator does not need."""

    files: Mapping[str, str]

    def write(self, folder: Path) -> list[str]:
        """Write the files, over those that are there; the chart's own version stays.

        Returns: lines on what was there, perhaps of an earlier operator, and is not of this one.

        Raises: ConfigurationError when the folder holds something else: no chart, that of another operator, or one
        with a file of somebody's own where one of these belongs. Nothing is written then.
        """
        files = dict(self.files)
        if (version := self._version_in(folder)) is not None:
            files["Chart.yaml"] = re.sub(r"(?m)^version: .*$", f"version: {version}", files["Chart.yaml"])
        for path in folder.glob("crds/*.yaml"):
            if _is_ours(path):
                files.setdefault(f"crds/{path.name}", "")
        said = []
        for name, text in files.items():
            path = folder / name
            if text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            elif path.exists() and _is_ours(path):
                path.unlink()
                said.append(f"removed {path}: the operator has no need of it any more")
            elif path.exists():
                said.append(f"{path} stays, but is not of this operator any more; is it yours? Delete it if not")
        return said

    def _version_in(self, folder: Path) -> str | None:
        """The version of this chart that is in `folder`; `None`: there is none yet.  Raises: ConfigurationError."""
        about = folder / "Chart.yaml"
        if not about.exists():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise ConfigurationError(
                    f"{folder} is there and holds no chart; name another folder, or empty this one"
                )
            return None
        name, found = yaml.safe_load(self.files["Chart.yaml"])["name"], _read_about(about)
        if found.get("name") != name:
            raise ConfigurationError(
                f"{folder} is there and holds the chart {found.get('name')!r}, not {name!r}; name another folder"
            )
        paths = [folder / file for file, text in self.files.items() if text.startswith(_WRITTEN)]
        if unknown := [str(path) for path in paths if path.exists() and not _is_ours(path)]:
            raise ConfigurationError(
                f"{', '.join(unknown)} would be written over, and does not begin with the line by which `shardsdk"
                " manifests --helm` knows its own: move what is yours, delete what an older version of it has written,"
                " or name another folder"
            )
        return str(found.get("version", "0.1.0"))


def _read_about(about: Path) -> dict[str, Any]:
    """What a Chart.yaml says; nothing, where it is none."""
    try:
        said = yaml.safe_load(about.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        said = None
    return said if isinstance(said, dict) else {}


def _is_ours(path: Path) -> bool:
    return path.read_bytes().startswith(_WRITTEN.encode())


def chart_of(whole: Deployed) -> Chart:
    """A chart with what `whole` consists of.  Raises: ConfigurationError for an image that nobody could pull."""
    image = _IMAGE.fullmatch(whole.pods.image)
    if image is None or not (image["tag"] or image["digest"]):
        raise ConfigurationError(
            f"--image {whole.pods.image!r} names no tag: say which one, as in"
            f" registry.example.com/{whole.pods.name}:1.0.0"
        )
    opened = replace(
        whole,
        sharder=("{{ .Values.sharder.namespace }}", "{{ .Values.sharder.serviceAccount }}"),
        pods=replace(
            whole.pods,
            namespace="{{ .Release.Namespace }}",
            replicas="@@given .Values.replicas",
            image=_IMAGE_VALUE,
            args=[],
        ),
    )
    access = opened.access()
    access[0]["metadata"]["annotations"] = "@@with .Values.serviceAccount.annotations"
    pods = workload(opened.pods)
    files = {
        "Chart.yaml": _about(whole, image),
        "values.yaml": _values(whole, image),
        "templates/NOTES.txt": _notes(whole),
        "templates/rbac.yaml": _template(access),
        "templates/workload.yaml": _template(_opened(each) for each in pods),
        "templates/ring.yaml": _ring(opened),
        "templates/certificates.yaml": _certificates(opened) if whole.issuer is not None else "",
        "templates/webhooks.yaml": _template(opened.admission()),
    }
    for each in whole.definitions:
        files[f"crds/{each['metadata']['name']}.yaml"] = render([each])
    return Chart(
        {
            name: _WRITTEN + text if text and "/" in name and name.endswith(".yaml") else text
            for name, text in files.items()
        }
    )


def _certificates(opened: Deployed) -> str:
    """The Certificate, and what signs it unless a cluster has something else."""
    own = _template(opened.authority())
    request = render_certificate(opened.pods.name, opened.pods.namespace, "@@yaml .Values.issuerRef")
    only = f'{{{{- if eq .Values.issuerRef.name "{Issuer.of_its_own(opened.pods.name).name}" }}}}'
    return f"{only}\n{own}---\n{{{{- end }}}}\n{_template([request])}"


def _ring(opened: Deployed) -> str:
    """The ring, and what the sharder may do with its objects, also with those that it lists no more."""
    if not (labelled := opened.labelled()):
        return _template(opened.sharding())
    ring, role, binding = opened.sharding()
    text = _PLACED
    for name, value in {
        "VERSION": ring["apiVersion"],
        "KIND": ring["kind"],
        "RING": ring["metadata"]["name"],
        "ROLE": role["metadata"]["name"],
        "LISTED": " ".join(f'(list "{each.group}" "{each.resource}")' for each in sorted(labelled)),
        "VERBS": ", ".join(SHARDER_VERBS),
    }.items():
        text = text.replace(name, value)
    return f"{_template([ring, role])}{text}---\n{_template([binding])}"


def _about(whole: Deployed, image: re.Match[str]) -> str:
    version = image["tag"] or "latest"
    return _CHART.format(name=whole.pods.name, version="0.1.0", app_version=render_scalar(version))


def _values(whole: Deployed, image: re.Match[str]) -> str:
    text = _VALUES.format(
        what="each is a shard" if whole.pods.sharded else "one leads, the others wait",
        replicas=whole.pods.replicas,
        args=render_scalar(list(whole.pods.args)),
        cpu=RESOURCES["requests"]["cpu"],
        requested=RESOURCES["requests"]["memory"],
        limit=RESOURCES["limits"]["memory"],
        **{name: render_scalar(image[name] or "") for name in ("repository", "tag", "digest")},
    )
    if whole.ring is not None and whole.hash_by is None:
        text += _SHARDER.format(*whole.sharder)
    if whole.issuer is not None:
        own = Issuer.of_its_own(whole.pods.name).name
        text += _CERTIFICATES.format(own=own, issuer=render_scalar(whole.issuer.reference()))
    return text


def _notes(whole: Deployed) -> str:
    kind = "StatefulSet" if whole.pods.stateful else "Deployment"
    return _NOTES.format(kind=kind, lower=kind.lower(), name=whole.pods.name, given=_GIVEN.format(".Values.replicas"))


def _opened(manifest: dict[str, Any]) -> dict[str, Any]:
    """A workload's manifest with marks where a cluster may want something of its own."""
    if manifest["kind"] not in ("Deployment", "StatefulSet"):
        return manifest
    template = manifest["spec"]["template"]
    template["metadata"]["annotations"] = "@@with .Values.podAnnotations"
    for name in ("imagePullSecrets", "priorityClassName", "nodeSelector", "tolerations", "affinity"):
        template["spec"][name] = f"@@with .Values.{name}"
    container = template["spec"]["containers"][0]
    container["imagePullPolicy"] = "@@value .Values.image.pullPolicy"
    container["args"] = "@@with .Values.args"
    container["env"].append("@@items .Values.env")
    container["resources"] = "@@yaml .Values.resources"
    return manifest


def _template(manifests: Iterable[Mapping[str, Any]]) -> str:
    return _MARK.sub(_fill, render(manifests))


def _fill(mark: re.Match[str]) -> str:
    """What stands in a template for a marked line."""
    indent, key, value = mark["indent"], mark["key"], mark["value"]
    within = len(indent) + 2
    match mark["how"]:
        case "value":
            return f"{indent}{key}: {{{{ {value} }}}}\n"
        case "given":
            shown = f"{indent}{key}: {{{{ {value} }}}}\n"
            return f"{indent}{{{{- if {_GIVEN.format(value)} }}}}\n{shown}{indent}{{{{- end }}}}\n"
        case "yaml":
            return f"{indent}{key}:\n{' ' * within}{{{{- toYaml {value} | nindent {within} }}}}\n"
        case "with":
            body = f"{indent}{key}:\n{' ' * within}{{{{- toYaml . | nindent {within} }}}}\n"
            return f"{indent}{{{{- with {value} }}}}\n{body}{indent}{{{{- end }}}}\n"
        case _:
            body = f"{indent}{{{{- toYaml . | nindent {len(indent)} }}}}\n"
            return f"{indent}{{{{- with {value} }}}}\n{body}{indent}{{{{- end }}}}\n"
