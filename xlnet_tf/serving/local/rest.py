"""TensorFlow Serving's REST API as routes of an ASGI application.

Source: https://www.tensorflow.org/tfx/serving/api_rest
"""

import asyncio
import json
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from xlnet_tf.errors import reason
from xlnet_tf.serving.answers.signatures import SERVING_DEFAULT
from xlnet_tf.serving.config_files import METRICS_PATH
from xlnet_tf.serving.local import json_tensors
from xlnet_tf.serving.local.protos import ModelSpec, SignatureDefMap
from xlnet_tf.serving.local.served_model import RequestError, invalid
from xlnet_tf.serving.local.service import SIGNATURES, Caller, Service

HTTP_STATUS = {
    "CANCELLED": 499, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401, "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400, "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503,
}  # fmt: skip
_MODEL = r"/v1/models(?:/(?P<name>[^/:]+))?(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_ASK = re.compile(rf"{_MODEL}:(?P<method>classify|regress|predict)", re.IGNORECASE | re.ASCII)
_LOOK = re.compile(rf"{_MODEL}(?P<metadata>/metadata)?", re.IGNORECASE | re.ASCII)
HEALTH = "/healthz"
BODY = "guarded_body"  # of a request's scope: its whole body, which the guard has read


def application(service: Service, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Returns the server's application, for guard.Guard, with further routes that call the service."""

    async def api(request: Request) -> Response:
        body, caller = request.scope[BODY], Caller("REST")
        watch = asyncio.create_task(_watch(request, caller))
        try:
            return await run_in_threadpool(_answer, service, request, body, caller)
        finally:
            watch.cancel()
            caller.leave()  # where the server ends before the answer has come

    async def health(request: Request) -> Response:
        return _json({"status": "SERVING"})

    async def prometheus(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [
        *(Route(f"/{version}/{{path:path}}", api, methods=["GET", "POST"]) for version in ("v1", "V1")),
        Route(HEALTH, health),
        Route(METRICS_PATH, prometheus),
        *pages,
    ]
    handlers = {RequestError: _refused, HTTPException: _http_error, Exception: _failed}
    return Starlette(routes=routes, exception_handlers=handlers)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Returns an error as the API has it: one JSON object."""
    return _json({"error": message}, status, headers)


def _json(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return Response(body, status, headers, "application/json")


def _refused(request: Request, error: RequestError) -> Response:
    return error_response(HTTP_STATUS.get(error.code, 500), str(error))


def _failed(request: Request, error: Exception) -> Response:
    return error_response(500, f"the server failed: {reason(error)}")


def _http_error(request: Request, error: HTTPException) -> Response:
    return error_response(
        error.status_code,
        f"{error.detail}: {request.method} {request.url.path[:200]}",
        dict(error.headers or {}),
    )


async def _watch(request: Request, caller: Caller) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    caller.leave()


def _answer(service: Service, request: Request, body: bytes, caller: Caller) -> Response:
    path = request.scope["raw_path"].decode("ascii", "replace")
    match = (_ASK if request.method == "POST" else _LOOK).fullmatch(path)
    if not match:
        raise invalid(f"Malformed request: {request.method} {path[:200]}")
    spec = _spec(match)
    if request.method == "POST":
        if (method := match["method"].lower()) != "predict":
            raise RequestError(
                "UNIMPLEMENTED", f"this server answers :predict alone; TensorFlow Serving also has :{method}"
            )
        return _json(_ask(service, spec, json_tensors.parse(body), caller))
    if not spec.name:
        raise invalid("Missing model name in request.")
    if not match["metadata"]:
        return _json(_to_json(service.models.status(spec)))
    response, signatures = service.metadata(spec), SignatureDefMap()
    response.metadata[SIGNATURES].Unpack(signatures)
    described = {SIGNATURES: _to_json(signatures)}
    return _json({"model_spec": _to_json(response.model_spec), "metadata": described})


def _spec(match: re.Match[str]) -> ModelSpec:
    spec = ModelSpec(name=urllib.parse.unquote(match["name"] or ""))
    if match["version"]:
        digits = match["version"].lstrip("0")[:20] or "0"
        if int(digits) >= 1 << 63:
            raise invalid(f"Failed to convert version: {digits} to numeric.")
        spec.version.value = int(digits)
    if match["label"]:
        spec.version_label = urllib.parse.unquote(match["label"])
    return spec


def _ask(service: Service, spec: ModelSpec, document: dict[str, Any], caller: Caller) -> dict[str, Any]:
    spec.signature_name = document.get("signature_name", "")
    version, name = service.models.find(spec), spec.signature_name or SERVING_DEFAULT
    if name not in version.model.signatures:
        raise invalid(f'Serving signature name: "{name}" not found in signature def')
    inputs, by_rows = json_tensors.read_inputs(document, version.model.signatures[name].inputs)
    answer = service.predict(spec, inputs, caller, version)
    return json_tensors.write_outputs(answer.outputs, by_rows)


def _to_json(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
