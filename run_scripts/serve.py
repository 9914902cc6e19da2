r"""Serves exported models on this machine: with TensorFlow Serving's REST and gRPC APIs.

    python -m run_scripts.serve --model=served/reviews

For development and small deployments where no container runs. Production belongs to TensorFlow Serving: the
same exports, the same requests. Concurrent requests are answered together; new versions of a model are loaded
as they appear. A page, `http://localhost:8501/`, asks the models, and looks inside the pretrained model of
--language_model. Ctrl-C ends it. Needs `pip install 'xlnet-tf[serve]'`.
"""

import dataclasses
import json
import os
import threading
from collections.abc import Sequence

from xlnet_tf import errors, hub
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option

EXTRA = "serve"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Which models are served, where, and within which limits."""

    model: Sequence[str] = option(
        "Folder of an exported model, or of one version of it.", (), repeated=True, group="model"
    )
    models_config: str | None = option(
        "A models.config of TensorFlow Serving, instead of --model.", None, group="model"
    )
    language_model: str | None = option(
        "A pretrained model, folder or name, for the page to look inside.",
        None,
        aliases=("explain",),
        group="model",
    )
    host: str = option(
        "Address to listen on; 0.0.0.0: every one of this machine.", "localhost", group="server"
    )
    rest_port: int = option(
        "Port of the REST API; 0: any free one.", 8501, least=0, most=65535, group="server"
    )
    grpc_port: int = option(
        "Port of the gRPC API; 0: any free one.", 8500, least=0, most=65535, group="server"
    )
    allowed_hosts: Sequence[str] = option(
        "Names that requests may ask for, besides localhost and addresses.", ()
    )
    batching: bool = option("Answer concurrent requests together.", True)
    max_batch: int = option("Most rows of a batch.", 32, least=1, most=1024)
    max_megabytes: float = option("Largest request.", 16.0, least=0.001, most=1024)
    timeout: float = option("Most seconds of a request.", 60.0, least=0.1, most=3600)
    max_requests: int = option("Most requests at a time; others are refused.", 64, least=1, most=512)


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
    options = from_flags(ServeOptions)
    if options.model and options.models_config:
        raise UserError("give either --model or --models_config")
    for folder in options.model:
        if "://" not in folder and not os.path.isdir(folder):  # said before TensorFlow is loaded
            raise UserError(f"{folder} is not a folder: expected one that `xlnet-tf export` has written")
    hub.require(options.language_model, "--language_model: ")
    from xlnet_tf.serving.local import guard, server, versions

    errors.quiet_abseil()
    if options.models_config:
        configs = versions.of_config_file(options.models_config)
    else:
        configs = [versions.of_folder(folder) for folder in options.model]
    if len({config.name for config in configs}) < len(configs):
        raise UserError("two models have the same name: their folders' last parts must differ")
    limits = guard.Limits(
        tuple(name.lower() for name in options.allowed_hosts),
        round(options.max_megabytes * 1e6),
        options.timeout,
        options.max_requests,
    )
    names = [*(config.name for config in configs), *filter(None, [options.language_model])]
    print(f"Loading {', '.join(names)} ...", flush=True)
    with server.serving(
        configs,
        host=options.host,
        rest_port=options.rest_port,
        grpc_port=options.grpc_port,
        limits=limits,
        batching=options.batching,
        max_batch=options.max_batch,
        pages=page_routes(options.language_model),
    ) as running:
        print(describe(running), flush=True)
        threading.Event().wait()


def page_routes(language_model: str | None):
    """Returns the function that makes a service's page routes, given a language model's path or name."""
    from xlnet_tf.serving.page import routes

    found = None
    if language_model:
        from xlnet_tf.generation.language_model import XLNetLanguageModel
        from xlnet_tf.serving.page import explainer

        name = os.path.basename(os.path.normpath(language_model))
        found = explainer.Explainer(XLNetLanguageModel.from_pretrained(language_model), name)
    return lambda service: routes.routes(lambda: routes.described(service.models), found)


def describe(running) -> str:
    lines = [f"Page  http://{running.rest}/", f"REST  http://{running.rest}", f"gRPC  {running.grpc}", ""]
    for name, version in (available := [*running.service.models.available()]):
        lines.append(f"{name}, version {version.number}: {', '.join(sorted(version.model.signatures))}")
    if available:
        name, version = available[-1]
        lines += ["", "Ask it:", "", example(running.rest, name, version.model)]
    return "\n".join([*lines, "", "One process, for development and small deployments. Ctrl-C ends it."])


def example(address: str, name: str, model) -> str:
    """Returns a curl command for the model, with its warm-up request if it has one."""
    if model.example:
        body = json.dumps({"inputs": model.example}, ensure_ascii=False).replace("'", r"'\''")
        return f"curl -d '{body}' http://{address}/v1/models/{name}:predict"
    return f"curl http://{address}/v1/models/{name}/metadata"


if __name__ == "__main__":
    define_flags(ServeOptions)
    command_line.require_one_of("model", "models_config", "language_model")
    errors.run(main)
