"""Models of any shape on a real API server: their CRDs are taken, and so is every value that a model can have."""

from __future__ import annotations

import asyncio
import json
import types
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk.kinds import CustomResource, crd_of
from shardsdk.kinds.wire import encode
from tests.model_shapes import models, needs_value, shapes, whole

GROUP = "shapes.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """The same in each run."""
    found: list[Any] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(each: Any) -> None:
        found.append(each)

    collect()
    return found


def kind_of(spec: Any) -> Any:
    return types.new_class("Shape", (CustomResource[spec],), {"group": GROUP, "version": "v1"})


def spec_of(pairs: list[tuple[Any, bool]]) -> Any:
    return models([(shape, needed or needs_value(shape)) for shape, needed in pairs])


SPECS = st.lists(st.tuples(shapes(), st.booleans()), min_size=1, max_size=4).map(spec_of)


async def test_the_crd_of_any_model_is_taken(admin: AdminClient) -> None:
    for model, _, _ in drawn(SPECS, 60):
        await admin.request("POST", CRDS, body=crd_of(kind_of(model)))


@pytest.mark.timeout(600)
async def test_every_value_of_a_model_is_taken_and_comes_back(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    several = drawn(st.lists(shapes(), min_size=20, max_size=20), 3)
    model, values, _ = spec_of([(shape, False) for shape in several[-1]])
    kind = kind_of(model)
    crd = crd_of(kind)
    await control_plane.kubectl("apply", "--server-side", "-f-", stdin=json.dumps(crd))
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/shapes?dryRun=All&fieldValidation=Strict"
    for value in drawn(values, 60):
        for form in (encode, whole):
            made = await post(admin, path, form, value)
            assert msgspec.convert(made["spec"], model) == value
    await control_plane.kubectl("delete", "crd", crd["metadata"]["name"])


async def post(admin: AdminClient, path: str, form: Callable[[Any], Any], value: Any) -> Any:
    """Create it, as soon as its kind is served."""
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Shape", "metadata": {"name": "a"}, "spec": form(value)}
    for _ in range(600):
        try:
            return await admin.request("POST", path, body=body)
        except AdminError as error:
            if error.status != 404:
                raise
            await asyncio.sleep(0.1)
    raise AssertionError("shapes are not served")
