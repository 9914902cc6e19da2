"""The page's routes: `/` is the page, `/page/...` its requests. serving/local/guard.py protects them."""

import base64
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from absl import logging
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from xlnet_tf import files
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.errors import UserError
from xlnet_tf.serving.local.rest import BODY
from xlnet_tf.serving.local.versions import Models

if TYPE_CHECKING:
    from xlnet_tf.serving.page.explainer import Explainer

PAGE = pathlib.Path(__file__).with_name("page.html")
_MOST_BYTES = 1 << 16  # of a request
_MOST_WAITING = 8  # requests; one is computed at a time
_HEADERS = {"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin"}


class _Refused(Exception):
    """A refused request: status and message."""


def described(models: Models) -> dict[str, Any]:
    """Describes the newest version of each served model for the page."""
    models_shown = {}
    for name, version in models.available():
        try:
            card = ModelCard.read(f"{models.configs[name].folder}/{version.number}")
        except UserError:  # a server answers without it
            card = ModelCard()
        about = {"task": card.task or "", "labels": card.labels or [], "multi_label": card.multi_label}
        models_shown[name] = {**about, "example": version.model.example}
    return models_shown


def routes(models: Callable[[], Mapping[str, Any]], explainer: "Explainer | None" = None) -> list[Route]:
    """Returns the routes of the page; `models` returns the served models, as `described` does."""
    page = PAGE.read_text(encoding="utf-8")
    headers = {**_HEADERS, "Content-Security-Policy": _policy(page)}
    busy = anyio.CapacityLimiter(1)

    async def home(_: Request) -> Response:
        return HTMLResponse(page, headers=headers)

    async def about(_: Request) -> Response:
        served = await run_in_threadpool(models)
        return _answer({"served": served, "language_model": explainer and explainer.about()})

    def endpoint(function: Callable[..., dict], names: Sequence[str]) -> Callable:
        async def answer(request: Request) -> Response:
            try:
                arguments = _arguments(request, names)
                if busy.statistics().tasks_waiting >= _MOST_WAITING:
                    raise _Refused(503, "The model is busy. Try again in a moment.")
                async with busy:
                    return _answer(await run_in_threadpool(function, **arguments))
            except _Refused as refusal:
                status, message = refusal.args
            except UserError as error:
                status, message = 400, str(error)
            except Exception:  # its message may hold a path; the log has it
                logging.exception("The page's request %s failed", request.url.path)
                status, message = 500, "The model could not compute this. The server's log says why."
            return _answer({"error": message}, status)

        return answer

    page_routes = [Route("/", home), Route("/page/about", about)]
    if explainer is not None:
        texts = {"fill": ("text", "order", "choices"), "score": ("text", "given", "order")}
        texts["look_inside"] = (*texts["score"], "layer")
        page_routes += [
            Route(f"/page/{name}", endpoint(getattr(explainer, name), names), methods=["POST"])
            for name, names in texts.items()
        ]
    return page_routes


def _answer(content: Any, status: int = 200) -> Response:
    return JSONResponse(content, status, headers=_HEADERS)


def _arguments(request: Request, names: Sequence[str]) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _Refused(415, "Expected application/json.")  # other sites cannot send it unasked
    body = request.scope[BODY]
    if len(body) > _MOST_BYTES:
        raise _Refused(413, f"The request has more than {_MOST_BYTES:,} bytes. Shorten the text.")
    try:
        arguments = json.loads(body, object_pairs_hook=files.unique_keys)
    except files.SecondKey as error:
        raise _Refused(400, f"{error}.") from None
    except (ValueError, RecursionError):
        raise _Refused(400, "The request is not JSON.") from None
    if not isinstance(arguments, dict) or "text" not in arguments or {*arguments} - {*names}:
        raise _Refused(400, f"Expected an object with text and any of {', '.join(names[1:])}.")
    return arguments


@functools.cache
def _policy(page: str) -> str:
    """Returns the content security policy that allows the page's own style and script, and nothing else."""

    def hashes(tag):
        return " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        )

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )
