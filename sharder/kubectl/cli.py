"""The command `kubectl sharding` (kubectl runs `kubectl-sharding` from the PATH).

Does: turn arguments into calls and outcomes into exit codes.  Refuses: to show a
traceback for anything that a user can mend; each problem is one line on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from sharder.kubectl.arguments import make_parser
from sharder.kubectl.outcome import INTERRUPTED, ExitCode, leaves
from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.version import VERSION

_EXTRA: Final = frozenset({"cryptography", "xxhash", "yaml"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (`None`: the process's own); returns the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.version:
        sys.stdout.write(f"kubectl-sharding {VERSION} (Python {sys.version.split()[0]})\n")
        return ExitCode.IN_ORDER
    if options.command is None:
        parser.print_help(sys.stdout)
        return ExitCode.IN_ORDER
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that does not know a sign shows another one.
        sys.stdout.reconfigure(errors="replace")
    try:
        return asyncio.run(_run(options, sys.stdout, os.environ))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.UNKNOWN
    except Exception as error:
        return complain(error, sys.stderr)


async def _run(options: argparse.Namespace, out: TextIO, environ: Mapping[str, str]) -> int:
    from sharder.kubectl.session import Session
    from sharder.kubectl.text import Painter, wants_colours
    from shardsdk.kube.access import load_access
    from shardsdk.kube.client import Client
    from shardsdk.kube.clock import SystemClock

    if options.command == "rbac" and options.filename is not None:
        from sharder.kubectl.roles import print_roles_of_file

        return print_roles_of_file(options.filename, options.service_account, options.output, out)
    access = await load_access(options.kubeconfig, options.context)
    async with Client(access, user_agent=f"kubectl-sharding/{VERSION}") as api:
        session = Session(
            api,
            SystemClock(),
            out,
            Painter(wants_colours(options.color, out, environ)),
            output=options.output or "text",
            namespace=options.namespace,
            default_namespace=access.namespace,
            host=access.host,
            err=sys.stderr,
        )
        return await _dispatch(options, session)


async def _dispatch(options: argparse.Namespace, session: object) -> int:
    from sharder.kubectl.session import Session

    assert isinstance(session, Session)
    namespace, _ = getattr(options, "service_account", (SYSTEM_NAMESPACE, ""))
    lease = getattr(options, "lease", None) or (namespace, SHARDER_SERVICE_ACCOUNT)
    match options.command:
        case "status":
            if options.watch:
                from sharder.kubectl.watching import watch_status

                return await watch_status(session, options.ring, options.interval)
            from sharder.kubectl.status import show_status

            return await show_status(session, options.ring)
        case "explain":
            from sharder.kubectl.explain import show_explanation

            return await show_explanation(session, options.resource, options.name, lease)
        case "check":
            from sharder.kubectl.check import run_check
            from sharder.kubectl.leading import Sharder

            sharder = Sharder(options.service_account, lease)
            return await run_check(session, options.ring, sharder, probe=options.probe, quiet=options.quiet)
        case "cleanup":
            from sharder.kubectl.cleanup import Wish, clean_up

            wish = Wish(options.ring, options.resource or (), options.yes, options.force)
            return await clean_up(session, wish)
        case "rbac":
            from sharder.kubectl.roles import print_roles_of_ring

            return await print_roles_of_ring(session, options.ring, options.service_account)
        case _:
            raise ConfigurationError(f"unknown command {options.command!r}")


# -- errors ----------------------------------------------------------------


def complain(error: Exception, to: TextIO) -> int:
    """Say what went wrong; returns the exit code.  Raises: `error` itself when nobody foresaw it."""
    lines, code = [], ExitCode.MISUSED
    for leaf in leaves(error):
        explained = _explain(leaf)
        if explained is None:
            raise error
        lines += explained
        if isinstance(leaf, ShardingError | OSError) and not isinstance(leaf, ConfigurationError):
            code = ExitCode.UNKNOWN
    to.writelines(f"kubectl-sharding: {' '.join(line.split())}\n" for line in dict.fromkeys(lines))
    return code


def _explain(error: BaseException) -> list[str] | None:
    """The lines that tell a user what went wrong; None for a fault of the program."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRA:
        return [f"{error.name} is not installed; install `pip install 'controller-sharding[kubectl]'`"]
    if isinstance(error, ConfigurationError):
        problems = getattr(error, "problems", ())
        return [str(problem) for problem in problems] or [str(error)]
    if isinstance(error, ShardingError):
        return [str(error) or type(error).__name__]
    if isinstance(error, OSError) and error.strerror:
        return [f"{error.strerror}: {error.filename}" if error.filename else str(error)]
    return None


if __name__ == "__main__":
    sys.exit(main())
