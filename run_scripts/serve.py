r"""Serves exported models on this machine, with TensorFlow Serving's REST and gRPC APIs.

    python -m run_scripts.serve --model=served/reviews

For development and small deployments where no container runs. Production belongs to TensorFlow Serving: the
same exports, the same requests. Concurrent requests are answered together; new versions of a model are loaded
as they appear. A page, `http://localhost:8501/`, asks the models, and looks inside the language model of
--explain. Ctrl-C ends it. Needs `pip install 'xlnet-tf[serve]'`.
"""

import json
import os
import threading
from collections.abc import Sequence

from absl import flags

from xlnet_tf import errors, hub
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError

EXTRA = "serve"


def check_extra() -> None:
    """Raises UserError if the packages of the extra are not installed."""
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"the server needs {error.name}: {errors.install_command(EXTRA)}") from None


def main(_: Sequence[str]) -> None:
    check_extra()
    values = flags.FLAGS
    if values.model and values.models_config:
        raise UserError("give either --model or --models_config")
    for folder in values.model:
        if "://" not in folder and not os.path.isdir(folder):  # said before TensorFlow is loaded
            raise UserError(f"{folder} is not a folder: expected one that `xlnet-tf export` has written")
    hub.require(values.explain, "--explain: ")
    from xlnet_tf.serving.local import guard, models, server

    errors.quiet_abseil()
    if values.models_config:
        configs = models.of_config_file(values.models_config)
    else:
        configs = [models.of_folder(folder) for folder in values.model]
    if len({config.name for config in configs}) < len(configs):
        raise UserError("two models have the same name: their folders' last parts must differ")
    limits = guard.Limits(
        tuple(name.lower() for name in values.allowed_hosts),
        round(values.max_megabytes * 1e6),
        values.timeout,
        values.max_requests,
    )
    names = [*(config.name for config in configs), *filter(None, [values.explain])]
    print(f"Loading {', '.join(names)} ...", flush=True)
    with server.serving(
        configs,
        host=values.host,
        rest_port=values.rest_port,
        grpc_port=values.grpc_port,
        limits=limits,
        batching=values.batching,
        max_batch=values.max_batch,
        pages=page_routes(values.explain),
    ) as running:
        print(describe(running), flush=True)
        threading.Event().wait()


def page_routes(language_model: str | None):
    """Returns what makes the page's routes of a service; language_model: its path or name, or None."""
    from xlnet_tf.generation.language_model import XLNetLanguageModel
    from xlnet_tf.serving.page import explainer, routes

    found = None
    if language_model:
        name = os.path.basename(os.path.normpath(language_model))
        found = explainer.Explainer(XLNetLanguageModel.from_pretrained(language_model), name)
    return lambda service: routes.routes(lambda: routes.described(service.models), found)


def describe(running) -> str:
    """Returns what a person needs to know of a server that has started."""
    lines = [f"Page  http://{running.rest}/", f"REST  http://{running.rest}", f"gRPC  {running.grpc}", ""]
    for name, version in (available := [*running.service.models.available()]):
        lines.append(f"{name}, version {version.number}: {', '.join(sorted(version.model.signatures))}")
    if available:
        name, version = available[-1]
        lines += ["", "Ask it:", "", example(running.rest, name, version.model)]
    lines += [
        "",
        "For development and small deployments; production belongs to TensorFlow Serving. Ctrl-C ends it.",
    ]
    return "\n".join(lines)


def example(address: str, name: str, model) -> str:
    """Returns a curl command that the model answers: its own warm-up request, if it has one."""
    if model.example:
        body = json.dumps({"inputs": model.example}, ensure_ascii=False).replace("'", r"'\''")
        return f"curl -d '{body}' http://{address}/v1/models/{name}:predict"
    return f"curl http://{address}/v1/models/{name}/metadata"


if __name__ == "__main__":
    flags.DEFINE_multi_string("model", [], "Folder of an exported model, or of one version of it.")
    flags.DEFINE_string("models_config", None, "A models.config of TensorFlow Serving, instead of --model.")
    flags.DEFINE_string("explain", None, "A pretrained model, folder or name, for the page to look inside.")
    command_line.require_one_of("model", "models_config", "explain")
    flags.DEFINE_string("host", "localhost", "Address to listen on; 0.0.0.0: every one of this machine.")
    flags.DEFINE_integer("rest_port", 8501, "Port of the REST API; 0: any free one.", 0, 65535)
    flags.DEFINE_integer("grpc_port", 8500, "Port of the gRPC API; 0: any free one.", 0, 65535)
    flags.DEFINE_list(
        "allowed_hosts", [], "Names that requests may ask for, besides localhost and addresses."
    )
    flags.DEFINE_bool("batching", True, "Answer concurrent requests together.")
    flags.DEFINE_integer("max_batch", 32, "Most rows of a batch.", 1, 1024)
    flags.DEFINE_float("max_megabytes", 16.0, "Largest request.", 0.001, 1024)
    flags.DEFINE_float("timeout", 60.0, "Most seconds of a request.", 0.1, 3600)
    flags.DEFINE_integer("max_requests", 64, "Most requests at a time; others are refused.", 1, 512)
    errors.run(main)
