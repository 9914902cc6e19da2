"""The files of a version in OpenVINO's format.

openvino_model.xml, .bin    tokens to numbers, see ExportableModel.graph_outputs
graphs/NAME.xml, .bin       further functions of language models, merged: see LanguageModelModule
serving.json                what answering needs besides the graphs
model.json                  the model card
assets/spiece.model         the tokenizer
"""

import os
import tempfile
from typing import Any

from xlnet_tf import files
from xlnet_tf.models.loading import keyword_options
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.openvino import conversion, quantization
from xlnet_tf.serving.openvino.compiled import BFLOAT16, FLOAT32, import_openvino
from xlnet_tf.serving.openvino.folder import FORMAT_VERSION, RUNTIME, SERVING_FILE
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

_OF_GRAPHS = {"int8", "keep_position_keys", "seq_len", "buckets"}  # options that say nothing of answers


def write_version(module: ExportableModel, folder: str, weights: str, calibration_data: str | None) -> None:
    """Writes all files of a version of a module with float32 weights; `weights` is one of compiled.WEIGHTS.

    The ranges of activations are found on examples, the folder calibration_data; without, integers are
    weights alone.
    """
    calibration = calibration_data and quantization.calibration_batches(module, calibration_data)
    parts: dict[str, dict[str, Any]] = {}  # of files with several graphs
    for name, (function, specs) in module.graph_functions().items():
        model = conversion.convert(function, specs)
        if weights == BFLOAT16:
            quantization.to_bfloat16(model)
        elif calibration:
            model = quantization.quantize(model, calibration)
        elif weights != FLOAT32:
            model = quantization.compress_weights(model, weights)
        file, _, part = name.rpartition("/")
        if file:
            parts.setdefault(file, {})[part] = model
        else:
            _write_graph(model, f"{folder}/{name}")
    for file, models in parts.items():
        _write_graph(conversion.merge(models), f"{folder}/{file}")
    module.card.write(folder)
    files.make_folder(f"{folder}/assets")
    files.write(f"{folder}/assets/{TOKENIZER_FILE}", module.tokenizer.model_proto)
    files.write_json(f"{folder}/{SERVING_FILE}", serving_fields(module, weights))


def _write_graph(model: Any, path: str) -> None:
    files.make_folder(os.path.dirname(path))
    with tempfile.TemporaryDirectory() as temporary:  # OpenVINO writes to local paths
        import_openvino().save_model(model, f"{temporary}/graph.xml", compress_to_fp16=False)
        for suffix in ("xml", "bin"):
            files.copy(f"{temporary}/graph.{suffix}", f"{path}.{suffix}")


def serving_fields(module: ExportableModel, weights: str) -> dict[str, Any]:
    """Returns the content of serving.json."""
    names = sorted(set(keyword_options(type(module))) - _OF_GRAPHS)
    options = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return {
        "format_version": FORMAT_VERSION,
        "runtime": RUNTIME,
        "runtime_version": import_openvino().__version__.partition("-")[0],
        "weights": weights,
        "task": module.card.task or LANGUAGE_MODEL,
        "seq_len": module.seq_len,
        "buckets": list(module.buckets),
        "cleaning": module.tokenizer.cleaning.to_dict(),
        "options": {
            name: value._asdict() if hasattr(value, "_asdict") else value for name, value in options.items()
        },
        "labels": list(getattr(module, "labels", ())),
        "multi_label": getattr(module, "multi_label", False),
        "head": {"segment_len": module.use(lambda model: getattr(model, "segment_len", 0))},
        "example": module.example_rows(),
    }
