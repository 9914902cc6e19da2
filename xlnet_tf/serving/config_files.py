"""Settings of servers for an exported model, and the command that starts one with them.

Sources: https://www.tensorflow.org/tfx/serving/serving_config for TensorFlow Serving,
https://docs.openvino.ai/2026/model-server/ovms_docs_parameters.html for OpenVINO Model Server.
"""

import json
import os
import pathlib
import re
import shlex
import string
from collections.abc import Sequence

from etils import epath
from google.protobuf import text_format

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.options import FLOAT32

MODELS_FILE, BATCHING_FILE, MONITORING_FILE = "models.config", "batching.config", "monitoring.config"
OPENVINO_FILE = "config.json"
METRICS_PATH = "/monitoring/prometheus/metrics"
IMAGE = "tensorflow/serving:2.20.0"
OPENVINO_IMAGE = "openvino/model_server:2026.4"
GRPC_PORT, REST_PORT = 8500, 8501
LARGEST_BATCH = 32

_TEMPLATES = pathlib.Path(__file__).with_name("monitoring")  # of string.Template
_NAME = r"[\w.-]+"  # what stands in an address without escapes
_TIMEOUT_MICROS = 2000
_BATCH_THREADS = 4
_ENQUEUED_BATCHES = 100


def write(folder: str, batch_sizes: Sequence[int], *, batching: bool = True) -> None:
    """Writes models.config and batching.config, unless users have edited them, for the sizes of warm-up.

    Empty or truncated files, as after a full disk, are rewritten. The name of `folder` is the model's name. A
    server that batches requests refuses those whose inputs differ in another axis.
    """
    name = model_name(folder)
    models_file, batching_file = os.path.join(folder, MODELS_FILE), os.path.join(folder, BATCHING_FILE)
    _complete(models_file, models_config(name))
    if batching:
        _complete(batching_file, batching_config(sorted({1, *batch_sizes, max(LARGEST_BATCH, *batch_sizes)})))


def check_limit(folder: str, largest: int) -> None:
    """Raises UserError if a server with the folder's batching.config would refuse this many rows."""
    path = os.path.join(folder, BATCHING_FILE)
    if not epath.Path(path).exists():
        return
    limit = re.search(r"max_batch_size\s*{\s*value\s*:\s*(\d+)", files.read_text(path))
    if limit and int(limit[1]) < largest:
        raise UserError(
            f"{path} has max_batch_size {limit[1]}, but the model warms up with {largest} rows: "
            "a server with these settings would not load it. Raise max_batch_size or warm up with fewer"
        )


def model_name(folder: str) -> str:
    """Returns a model's name, the last part of its folder, which must be valid in an address."""
    path = os.path.normpath(folder) if "://" in folder else os.path.abspath(folder)  # "." has a name, too
    name = os.path.basename(path)
    if not re.fullmatch(_NAME, name, re.ASCII):
        raise UserError(
            f"a model is served under the last part of its folder, {name!r}: it may contain only letters, "
            "digits and . _ -"
        )
    return name


def models_config(name: str) -> str:
    """Returns the text of a models.config that serves the newest version of the model in /models/NAME."""
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig  # with TensorFlow

    config = ModelServerConfig()
    model = config.model_config_list.config.add(
        name=name, base_path=f"/models/{name}", model_platform="tensorflow"
    )
    model.model_version_policy.latest.num_versions = 1
    return text_format.MessageToString(config)


def batching_config(batch_sizes: Sequence[int]) -> str:
    """Returns a batching.config: requests within 2 ms are padded to one of batch_sizes or refused."""
    lines = [
        f"max_batch_size {{ value: {batch_sizes[-1]} }}",
        f"batch_timeout_micros {{ value: {_TIMEOUT_MICROS} }}",
        f"num_batch_threads {{ value: {_BATCH_THREADS} }}",
        f"max_enqueued_batches {{ value: {_ENQUEUED_BATCHES} }}",
        *(f"allowed_batch_sizes: {size}" for size in batch_sizes),
    ]
    return "\n".join(lines) + "\n"


def docker_command(folder: str) -> str:
    """Returns the command that serves a model with Docker, in batches if it has a batching.config."""
    return _docker_command(folder, IMAGE, *_server_flags(folder))


def openvino_docker_command(folder: str) -> str:
    """Returns the command that serves an exported model's numbers with OpenVINO Model Server in Docker."""
    config = f"--config_path /models/{model_name(folder)}/{OPENVINO_FILE}"
    return _docker_command(folder, OPENVINO_IMAGE, f"{config} --port {GRPC_PORT} --rest_port {REST_PORT}")


def _docker_command(folder: str, image: str, *server_flags: str) -> str:
    mount = shlex.quote(f"{os.path.abspath(folder)}:/models/{model_name(folder)}:ro")
    ports = f"-p {GRPC_PORT}:{GRPC_PORT} -p {REST_PORT}:{REST_PORT}"
    return " \\\n    ".join([f"docker run --rm {ports}", f"-v {mount} {image}", *server_flags])


def _server_flags(folder: str) -> list[str]:
    """Returns a server's flags for the settings in a model's folder, mounted as /models/NAME."""
    flags = [f"--model_config_file={MODELS_FILE}"]
    if epath.Path(folder, BATCHING_FILE).exists():
        flags.append(f"--enable_batching --batching_parameters_file={BATCHING_FILE}")
    if epath.Path(folder, MONITORING_FILE).exists():
        flags.append(f"--monitoring_config_file={MONITORING_FILE}")
    return [flag.replace("file=", f"file=/models/{model_name(folder)}/") for flag in flags]


def write_monitoring(folder: str) -> None:
    """Writes the files that monitor a server; existing files, which users edit, are kept.

    FOLDER/monitoring.config        makes the server export metrics
    FOLDER/compose.yaml             starts the server, Prometheus and Grafana
    FOLDER/monitoring/              settings of the two, and a dashboard
    """
    name = model_name(folder)
    files.make_folder(os.path.join(folder, "monitoring"))
    metrics = f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}\n'
    _complete(os.path.join(folder, MONITORING_FILE), metrics)
    values = {"name": name, "image": IMAGE, "grpc": GRPC_PORT, "rest": REST_PORT, "path": METRICS_PATH}
    values["flags"] = json.dumps(" ".join(_server_flags(folder)).split())
    for template in sorted(_TEMPLATES.glob("*.y*ml")):
        text = string.Template(template.read_text(encoding="utf-8")).substitute(values)
        file = template.name if template.name == "compose.yaml" else f"monitoring/{template.name}"
        _complete(os.path.join(folder, file), text)
    # Grafana's, of TensorFlow Serving's metrics: requests, errors and times by model.
    dashboard = (_TEMPLATES / "dashboard.json").read_text(encoding="utf-8")
    _complete(os.path.join(folder, "monitoring/dashboard.json"), dashboard)


def write_openvino(folder: str, weights: str) -> None:
    """Writes config.json and compose.yaml for OpenVINO Model Server; existing files are kept, see `write`.

    If the first version's weights are not float32, the server computes in bfloat16 what is not in integers.
    """
    name = model_name(folder)
    precision = "f32" if weights == FLOAT32 else "bf16"
    model = {
        "name": name,
        "base_path": f"/models/{name}",
        "model_version_policy": {"latest": {"num_versions": 1}},
        "plugin_config": {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"},
    }
    settings = {"model_config_list": [{"config": model}], "monitoring": {"metrics": {"enable": True}}}
    _complete(os.path.join(folder, OPENVINO_FILE), json.dumps(settings, indent=1) + "\n")
    values = {"name": name, "image": OPENVINO_IMAGE, "grpc": GRPC_PORT, "rest": REST_PORT}
    template = string.Template(
        _TEMPLATES.with_name("openvino").joinpath("compose.yaml").read_text(encoding="utf-8")
    )
    _complete(os.path.join(folder, "compose.yaml"), template.substitute(values))


def _complete(path: str, text: str) -> None:
    """Writes a file unless another exists; a truncated copy of the text is overwritten."""
    before = files.read_text(path).strip() if epath.Path(path).exists() else ""
    if text.startswith(before):
        files.write(path, text)
