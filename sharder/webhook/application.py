"""FastAPI's application: the webhook's one route, and what those are told who ask for something else.

Imported when the first of them does; reviews do not pass through it (`sharder.webhook.app`).
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from sharder.core.webhookconfig import webhook_path

PATH: Final = webhook_path("{ring}")


def build_application(endpoint: ASGIApp) -> FastAPI:
    """The application around the bare ASGI `endpoint`, which finds the ring in the scope's `path_params`."""
    app = FastAPI(
        telemetry={"tracing": False, "metrics": False, "logs": False},
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={404: _wrong_path, 405: _wrong_method},
    )
    route: Any = endpoint
    app.add_route(PATH, route, methods=["POST"])
    return app


async def _wrong_path(http: Request, error: Exception) -> Response:
    return PlainTextResponse(f"nothing here; admission reviews go to {PATH}", 404)


async def _wrong_method(http: Request, error: Exception) -> Response:
    return PlainTextResponse("POST an AdmissionReview", 405, headers={"Allow": "POST"})
