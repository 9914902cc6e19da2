"""The page on a free port of this machine, over a toy model and canned answers of served models."""

import contextlib
import threading
import time
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from xlnet_tf.serving.local import guard
from xlnet_tf.serving.page.explainer import Explainer
from xlnet_tf.serving.page.routes import routes

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
TEXT = "It's <fine>."  # the example of each model
_TEXTS = {1: {"dim": [{"size": "-1"}]}, 2: {"dim": [{"size": "-1"}, {"size": "-1"}]}}
# Of each model: the ranks of its inputs, and what it answers to one row.
SERVED = {
    "reviews": ({"text": 1}, {"labels": ["bad", HOSTILE], "probabilities": [0.25, 0.75], "label": HOSTILE}),
    "entities": (
        {"text": 1},
        {"num_entities": 2, "entity": ["Ada", "Rome"], "label": ["PER", "LOC"], "score": [0.9, 0.8]}
        | {"start": [2, 9], "end": [5, 13]},
    ),
    "answers": (
        {"question": 1, "context": 1},
        {"answer": "1843", "start": 5, "end": 9, "score": 0.5}
        | {"answers": ["1843", ""], "starts": [5, -1], "ends": [9, -1], "scores": [0.5, 0.0]},
    ),
    "ranker": ({"query": 1, "candidates": 2}, {"scores": [-1.5, 2.5], "order": [1, 0]}),
    "choices": (
        {"context": 1, "question": 1, "options": 2},
        {"answer": 1, "option": "at dawn", "probabilities": [0.125, 0.875], "logits": [0, 2]},
    ),
    "stars": ({"text": 1}, {"value": 3.5}),
}


@contextlib.contextmanager
def page_server(explainer: Explainer | None = None, served=SERVED) -> Iterator[str]:
    """Serves the page; yields its address."""

    async def metadata(request):
        inputs, outputs = served[request.path_params["name"]]
        definition = {
            "inputs": {
                name: {"dtype": "DT_STRING", "tensor_shape": _TEXTS[rank]} for name, rank in inputs.items()
            },
            "outputs": dict.fromkeys(outputs, {"dtype": "DT_FLOAT"}),
        }
        return JSONResponse(
            {"metadata": {"signature_def": {"signature_def": {"serving_default": definition}}}}
        )

    async def predict(request):
        _, outputs = served[request.path_params["name"]]
        columns = {name: [value] for name, value in outputs.items()}
        return JSONResponse({"outputs": columns if len(columns) > 1 else [*columns.values()][0]})

    rest = [
        Route("/v1/models/{name}/metadata", metadata),
        Route("/v1/models/{name}:predict", predict, methods=["POST"]),
    ]
    described = {
        name: {"task": "some_task", "labels": ["bad", "good"], "multi_label": name == "entities"}
        | {"example": {each: [[TEXT, "two"] if rank > 1 else TEXT] for each, rank in inputs.items()}}
        for name, (inputs, _) in served.items()
    }
    app = guard.Guard(Starlette(routes=[*routes(lambda: described, explainer), *rest]), guard.Limits())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
