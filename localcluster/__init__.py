"""A real etcd, kube-apiserver and kube-controller-manager on this machine, in some three seconds.

Guarantees
- Several at once, each on ports of its own that stay reserved while a server is
  down, with RBAC on, ServiceAccount tokens and the controllers that tests need.
- Nothing outlives its owner: processes and data are gone after SIGKILL of the
  process that started them; logs are kept, and their path is said, on failure.

It is no cluster: there is no node, so pods stay pending, and services route
nowhere; a webhook is reached by URL on the loopback interface.  With
`ControlPlane(node=Node())` it is one, see localcluster/node.py: pods run, as
root on Linux.

::

    async with ControlPlane() as plane:              # or: await plane.start() … plane.close()
        plane.url; plane.admin_kubeconfig; plane.logs
        async with plane.admin() as admin:           # plain dicts, "v1/secrets", "apps/v1/deployments"
            await admin.create("v1/secrets", {"metadata": {"name": "a"}}, "default")
            await admin.get/find/list/patch/replace/delete/request(...)
            await admin.eventually("v1/secrets", lambda secrets: len(secrets) == 3, "default")
        await plane.apply(Path("crds"), Path("rbac"))  # new types are served on return
        await plane.service_account_kubeconfig("sharding-system", "sharder")  # -> Path, token by TokenRequest
        plane.kubeconfig("alice", ["developers"])      # -> Path, client certificate
        await plane.kubectl("get", "pods", kubeconfig=…)  # -> what it printed
        await plane.apiserver.kill() / .stop() / .start() / .restart() / .ready(); .pause() / .resume()
        await plane.etcd.…, plane.controller_manager.…    # the same, all under their old addresses
        second = await plane.add_apiserver()           # on the same etcd; plane.admin(second)
        await plane.node.load(archive)                 # images, with ControlPlane(node=Node())
        await plane.compact()                          # etcd forgets its history

    ControlPlane(feature_gates={"ShardedListAndWatch": True})  # of its API servers
    ControlPlane(audit_policy={"rules": [{"level": "Metadata"}]})  # who asked for what: localcluster.audit reads it

pytest fixtures (tests/conftest.py): `control_plane` (one per session: stop
nothing), `fresh_control_plane` (one for this test), `admin`, `namespace`.  Both
control planes take their feature gates from `pytest --feature-gates NAME=BOOL,…`.
"""

from localcluster.admin import AdminClient, AdminError
from localcluster.binaries import Binaries, find_binaries
from localcluster.components import Component
from localcluster.control_plane import ControlPlane
from localcluster.errors import BinariesMissing, ComponentFailed, LocalClusterError
from localcluster.node import Node

__all__ = [
    "AdminClient",
    "AdminError",
    "Binaries",
    "BinariesMissing",
    "Component",
    "ComponentFailed",
    "ControlPlane",
    "LocalClusterError",
    "Node",
    "find_binaries",
]
