"""The command `shardsdk`: what an author of a sharded controller asks for at a prompt.

    shardsdk rbac --ring example --main secrets --controlled configmaps | kubectl apply -f -

Wrong input is one line on stderr, and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.output import printing, writing
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE, parse_ring_name
from shardsdk.protocol.names import LABEL_CHARACTERS, SUBDOMAIN_CHARACTERS, is_dns_label, is_dns_subdomain
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import BY_LABELS, BY_RANGES, HashBy
from shardsdk.rbac import ShardRole, check_verbs, shard_role
from shardsdk.version import VERSION

#: As shells have it of a process that SIGINT ended.
INTERRUPTED: Final = 130
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

Command = Callable[..., Any]


def _which_cluster(function: Command) -> Command:
    """The options of whatever asks an API server."""
    file = click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(),
        help="how to reach the API server (default: $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config)",
    )
    return file(click.option("--context", metavar="NAME", help="another context than the current one")(function))


_where_objects_are: Final = click.option(
    "--watch-namespace",
    "watch_namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="the only namespace with objects; repeatable (default: what the Operator says)",
)


@click.group(
    "shardsdk", help="For authors of sharded controllers.", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(f"{VERSION} (Python {sys.version.split()[0]})", message="shardsdk %(version)s")
def command() -> None:
    """Has commands."""


@command.command(help="Print the version.", short_help="print the version")
def version() -> None:
    """`shardsdk version`."""
    sys.stdout.write(f"shardsdk {VERSION} (Python {sys.version.split()[0]})\n")


@command.command(
    help="Prints the ServiceAccount, roles and bindings that the shards of a ring need; pipe it to"
    " `kubectl apply -f -`. RESOURCE is written as kubectl prints it: `secrets`, `deployments.apps`.",
    short_help="print what a shard may do, as manifests",
)
@click.option("--ring", required=True, metavar="RING", help="the ClusterRing that the shards form")
@click.option("--main", required=True, multiple=True, metavar="RESOURCE", help="main resource of the ring; repeatable")
@click.option("--controlled", multiple=True, metavar="RESOURCE", help="controlled resource; repeatable")
@click.option(
    "-n", "--namespace", metavar="NAMESPACE", default="default", help="where the shards run (default: default)"
)
@click.option("--name", metavar="NAME", help="name of the ServiceAccount and of the roles (default: the ring's)")
@click.option("--watch-namespace", metavar="NAMESPACE", help="the only namespace with objects (default: all of them)")
@click.option(
    "--main-verbs",
    default="",
    metavar="VERBS",
    help="what the controller does with main objects besides list, watch and patch, such as `get,update`",
)
@click.option(
    "--controlled-verbs",
    default="create,patch",
    metavar="VERBS",
    help="what it does with controlled objects besides list and watch (default: create,patch)",
)
@click.option(
    "--assignment",
    type=click.Choice([BY_LABELS, BY_RANGES]),
    default=BY_LABELS,
    help="how the ring assigns its objects (spec.assignment; default: Labels)",
)
def rbac(
    ring: str,
    main: Sequence[str],
    controlled: Sequence[str],
    namespace: str,
    name: str | None,
    watch_namespace: str | None,
    main_verbs: str,
    controlled_verbs: str,
    assignment: str,
) -> None:
    """`shardsdk rbac`.  Raises: ConfigurationError, with what to write instead."""
    ring = parse_ring_name(ring).ring
    mains, children = ([_read_resource(each) for each in _split(given)] for given in (main, controlled))
    if both := sorted(set(mains) & set(children)):
        raise ConfigurationError(f"{both[0]} is given as --main and as --controlled; a ring has it as one of them")
    if not mains:
        raise ConfigurationError("--main names no resource; write it as kubectl prints it, such as `secrets`")
    if watch_namespace is not None:
        _check_name("--watch-namespace", watch_namespace, is_dns_label, LABEL_CHARACTERS)
    role = ShardRole(
        ring=ring,
        name=_check_name("--name", name or ring, is_dns_subdomain, SUBDOMAIN_CHARACTERS),
        namespace=_check_name("--namespace", namespace, is_dns_label, LABEL_CHARACTERS),
        main=mains,
        controlled=children,
        further_main_verbs=_read_verbs("--main-verbs", main_verbs),
        further_controlled_verbs=_read_verbs("--controlled-verbs", controlled_verbs),
        watch_namespace=watch_namespace,
        by_ranges=assignment == BY_RANGES,
    )
    from shardsdk.commands.rendering import render

    sys.stdout.write(render(shard_role(role)))


@command.command(
    "run",
    help="Runs the Operator in FILE (or MODULE, or either with :NAME). Before it begins it looks for what is missing on"
    " the cluster: types, rights, the ring. At a prompt it listens on no port and prints lines for people; in a pod it"
    " has a pod's ports and prints JSON. `-n` is where its Leases are; objects may be in all namespaces.",
    short_help="run the operator in a file",
    epilog="Exit codes: 0 it was asked to stop, 1 a part of it failed, 2 something is missing or wrong,"
    " or no API server answers, 3 the lease was lost, 4 reconciles did not end in time.",
)
@click.argument("source", metavar="FILE")
@click.option("--dev", is_flag=True, help="start again whenever a Python file next to FILE, or below, is saved")
@click.option("--supervised", type=int, default=0, hidden=True)
@click.option("--install-crds", is_flag=True, help="bring the definitions of its custom resources up to date first")
@click.option("-n", "--namespace", metavar="NAMESPACE", help="of its Leases (default: the pod's, or the kubeconfig's)")
@_where_objects_are
@click.option("--shard", metavar="NAME", help="of a shard, which is also its Lease's (default: the host's name)")
@click.option(
    "--restart-grace",
    type=click.IntRange(0),
    metavar="SECONDS",
    help="how long a shard that stops keeps its objects for the next process of its name (default: 0)",
)
@_which_cluster
@click.option("--health", metavar="HOST:PORT", help="where to serve /healthz, /readyz (default: in a pod :8081)")
@click.option("--metrics", metavar="HOST:PORT", help="where to serve /metrics (default: in a pod :8080)")
@click.option(
    "--webhooks",
    metavar="HOST[:PORT]",
    help="outside of a pod: by which API servers reach this process",
)
@click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), default="info", help="the least that is shown (default: info)"
)
@click.option(
    "--log-format",
    type=click.Choice(("auto", "terminal", "text", "json")),
    default="auto",
    help="lines for a terminal, lines with date and module, or JSON (default: json in a pod, else terminal)",
)
@click.pass_obj
def run(arguments: Sequence[str], /, source: str, dev: bool, supervised: int, **options: Any) -> int:
    """`shardsdk run`.  Raises: ShardingError."""
    if dev:
        from shardsdk.commands.reloading import folder_of, supervise_here

        return supervise_here([each for each in arguments if each != "--dev"], folder_of(source))
    from shardsdk.commands.loading import Unloadable
    from shardsdk.commands.reloading import UNLOADABLE
    from shardsdk.commands.run import Options
    from shardsdk.commands.run import run as begin

    try:
        return begin(Options(source, supervised=supervised, **options))
    except Unloadable as error:
        if not supervised:
            raise
        _complain(error)
        return UNLOADABLE


@command.command(
    "manifests",
    help="Prints what the Operator in FILE needs on a cluster: definitions, ServiceAccount and least rights, pods and"
    " their disruption budget; of a sharded one its ring, and what the sharder may do with it. The image's entry point"
    " is `shardsdk run FILE`, as `shardsdk new` has it. Pipe it to `kubectl apply --server-side -f -`.",
    short_help="print what installs an operator, or write a chart",
)
@click.argument("source", metavar="FILE")
@click.option("--image", metavar="IMAGE", help="what its pods run, as in registry.example.com/websites:1")
@click.option("--ring-only", is_flag=True, help="its ring alone, and what the sharder may do with it; takes no --image")
@click.option("-n", "--namespace", metavar="NAMESPACE", default="default", help="where it runs (default: default)")
@_where_objects_are
@click.option("--replicas", type=click.IntRange(0), metavar="N", help="pods (default: 2, of which one leads; 3 shards)")
@click.option("--stateful", is_flag=True, help="shards as a StatefulSet: a pod that comes back keeps its objects")
@click.option("--arg", "args", multiple=True, metavar="ARG", help="for the image's entry point; repeatable")
@click.option(
    "--sharder",
    metavar="NAMESPACE/NAME",
    default=f"{SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT}",
    help=f"the sharder's ServiceAccount (default: {SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT})",
)
@click.option("--former", multiple=True, metavar="RESOURCE", help="off the ring, and still with labels; repeatable")
@click.option(
    "--hash-by",
    type=click.Choice([each.value for each in HashBy]),
    help="have the ring name shards for ranges of this hash (assignment: Ranges), rather than label each object",
)
@click.option(
    "--cert-manager",
    is_flag=True,
    help="have cert-manager make the certificate of its webhooks, by an authority of the operator's own",
)
@click.option(
    "--issuer",
    metavar="[KIND/]NAME",
    help="have cert-manager make it by this Issuer, or as in ClusterIssuer/company",
)
@click.option("--helm", metavar="DIR", type=click.Path(), help="write a chart there instead")
def manifests(source: str, sharder: str, hash_by: str | None, helm: str | None, **options: Any) -> None:
    """`shardsdk manifests`.  Raises: ConfigurationError."""
    from shardsdk.commands.chart import chart_of
    from shardsdk.commands.loading import load
    from shardsdk.commands.manifests import Wanted, deployed, describe_limit
    from shardsdk.commands.rendering import render

    namespace, _, name = sharder.partition("/")
    if helm is not None and options["ring_only"]:
        raise ConfigurationError("the ring alone is no chart: give --helm or --ring-only")
    if not (is_dns_label(namespace) and is_dns_subdomain(name)):
        raise ConfigurationError(f"--sharder {sharder!r} is not NAMESPACE/NAME, as in sharding-system/sharder")
    image = options["image"]
    if image is not None and image.split() != [image]:
        raise ConfigurationError(f"--image {image!r} is no image: name it as in registry.example.com/websites:1")
    options["former"] = [_read_resource(each) for each in _split(options["former"])]
    by = HashBy(hash_by) if hash_by is not None else None
    wanted = Wanted(**options, sharder=(namespace, name), hash_by=by)
    whole = deployed(load(source), wanted)
    sys.stderr.write(describe_limit(whole, wanted))
    if helm is None:
        sys.stdout.write(render(whole.manifests()))
        return
    with writing(helm, "name another folder by --helm"):
        said = chart_of(whole).write(Path(helm))
    for line in said:
        sys.stderr.write(f"{line}\n")
    sys.stderr.write(
        f"wrote the chart {helm}; helm upgrade --install {whole.pods.name} {helm} -n {whole.pods.namespace}\n"
    )


@command.command(
    "crd",
    help="Prints the CustomResourceDefinitions of the Operator in FILE; pipe it to `kubectl apply --server-side -f -`.",
    short_help="print an operator's CustomResourceDefinitions",
)
@click.argument("source", metavar="FILE")
def crd(source: str) -> None:
    """`shardsdk crd`.  Raises: ConfigurationError."""
    from shardsdk.commands.loading import load
    from shardsdk.commands.rendering import render

    definitions = load(source).definitions()
    if not definitions:
        raise ConfigurationError(f"{source} has no custom resources of its own, so there is nothing to define")
    sys.stdout.write(render(definitions))


@command.command(
    "models",
    help="Prints a Python module with typed classes for the kinds of a group and version (GROUP/VERSION; v1 for the"
    " core group), as the cluster describes them; with KIND, of these alone. It is yours to keep and to change.",
    short_help="print typed classes for other people's kinds",
)
@click.argument("served", metavar="GROUP/VERSION")
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@_which_cluster
def models(served: str, kinds: Sequence[str], kubeconfig: str | None, context: str | None) -> None:
    """`shardsdk models`.  Raises: ShardingError."""
    from shardsdk.commands.models import print_models

    sys.stdout.write(print_models(served, kinds, kubeconfig, context))


@command.command(
    "new",
    help="Writes a project: an operator, its test, and what builds, checks and installs it. All of it works as it is.",
    short_help="begin a project",
)
@click.argument("name")
@click.option("--kind", metavar="KIND", help="of its objects, as in Website (default: from the name)")
@click.option("--group", metavar="GROUP", default="example.com", help="their API group (default: example.com)")
@click.option("--folder", metavar="DIR", type=click.Path(), help="where to write it (default: NAME)")
def new(name: str, kind: str | None, group: str, folder: str | None) -> None:
    """`shardsdk new`.  Raises: ConfigurationError."""
    from shardsdk.commands.new import Project, told

    project, place = Project.of(name, kind, group), Path(folder or name)
    with writing(str(place), "name another folder by --folder"):
        project.write(place)
    sys.stdout.write(told(project, place))


@command.command(
    "explain",
    help="Says what an object waits for, since when, and what will wake it, in the words of the process that has it."
    " FILE (or MODULE[:NAME]) is the program that `shardsdk run` has started; without it, all of this machine are asked"
    " that it has. Ends with 1 when nobody who was asked has the object.",
    short_help="say what an object waits for",
)
@click.argument("words", nargs=-1, metavar="[FILE] KIND/NAME")
@click.option("-n", "--namespace", metavar="NAMESPACE", help="the object's (default: that of the kubeconfig's context)")
@click.option("--address", metavar="HOST:PORT", help="ask the process that has its health there")
@click.option("--pod", metavar="[NAMESPACE/]POD", help="ask the process in a pod, through `kubectl port-forward`")
@_which_cluster
def explain(words: Sequence[str], **options: Any) -> int:
    """`shardsdk explain`.  Raises: ConfigurationError, ShardingError."""
    from shardsdk.commands.explain import Question, parse_object
    from shardsdk.commands.explain import explain as ask

    if not 1 <= len(words) <= 2:
        raise click.UsageError("give KIND/NAME, and before it the program's FILE if you like")
    kind, name = parse_object(words[-1])
    if len(words) == 1:
        return ask(Question(kind, name, **options))
    from shardsdk.commands.loading import load

    program = load(words[0])
    return ask(Question(kind, name, program=program.name, short_names=program.short_names(), **options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (`None`: the process's own); returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)

    def run() -> int:
        try:
            return command.main(given, "shardsdk", standalone_mode=False, obj=given) or 0
        except click.Abort:
            return INTERRUPTED
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except ShardingError as error:
            _complain(error)
            return 2 if isinstance(error, ConfigurationError) else 1

    return printing("shardsdk", run, serves=given[:1] == ["run"])


def _complain(error: ShardingError) -> None:
    from shardsdk.logs import printable

    sys.stderr.write(f"shardsdk: {printable(str(error))}\n")


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _read_resource(text: str) -> GroupResource:
    plural, _, group = text.partition(".")
    if not is_dns_label(plural) or (text != plural and not is_dns_subdomain(group)):
        raise ConfigurationError(
            f"{text!r} is no resource; write the plural in lower case, with its group unless that is the core's, as"
            " `kubectl api-resources -o name` does: `secrets`, `deployments.apps`"
        )
    return GroupResource(group, plural)


def _read_verbs(option: str, text: str) -> list[str]:
    verbs = _split([text])
    check_verbs(verbs, option)
    return verbs


def _check_name(option: str, text: str, fits: Callable[[str], bool], limit: int) -> str:
    if not fits(text):
        raise ConfigurationError(
            f"{option}: {text!r} cannot be a name; use up to {limit} lower-case letters, digits and '-',"
            " beginning and ending with a letter or digit"
        )
    return text
