"""What each library reads of ours and we of it: the largest differences of answers, or an error."""

import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tests.checkpoints.test_transformers_process import HEADS, TARGET, THEIRS, T, plain_texts
from tests.conftest import invent_texts
from tests.helpers.records.external_sets import options as conversion_options
from tests.helpers.serving.toys import built
from tests.peers.environments import Environment
from tests.peers.programs import ours, ours_without_tensorflow, tensorflow_alone
from tfrecord_builders.conversion.convert import convert
from tfrecord_builders.inspection.check import check
from xlnet_tf import XLNetClassifier, XLNetEncoder, XLNetTokenClassifier, XLNetTokenizer
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint

# A file, who reads it, and what computes the largest difference of answers; 0 if there are none.
Check = tuple[str, str, Callable[[], float]]


class Ours:
    """Our small model in all of its forms, and its answers."""

    def __init__(self, folder: str):
        ours.write(folder, invent_texts(600), openvino=True)
        self.folder = folder
        self.tokenizer = XLNetTokenizer.from_pretrained(f"{folder}/saved")
        self.texts = [text for text in invent_texts(60, seed=5) if len(self.tokenizer.encode(text)) < 38][:12]
        features = self.tokenizer(self.texts, padding="longest")
        self.batch = {name: features[column].tolist() for name, column in ours.NAMES.items()}
        self.logits = ours.logits(f"{folder}/saved", self.batch)
        odds = np.exp(self.logits)
        self.probabilities = odds / odds.sum(1, keepdims=True)
        self.checkpoint = str(next(pathlib.Path(folder, "original").glob("*.index"))).removesuffix(".index")
        self.records = sorted(map(str, pathlib.Path(folder, "records").rglob("*.tfrecord")))


def largest(found: Any, expected: Any, mask: Any = None) -> float:
    """Returns the largest difference, where the mask of rows of tokens says so."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        raise ValueError(f"answers have the shape {found.shape}, expected {expected.shape}")
    difference = np.abs(found - expected)
    return float((difference if mask is None else difference[np.array(mask, bool)]).max())


def transformers(env: Environment, files: Ours, scratch: str) -> Iterator[Check]:
    def read(name: str) -> float:
        path = f"{files.folder}/{name}"
        return largest(env.call("hugging_face", "read", folder=path, batch=files.batch), files.logits)

    def all_heads() -> float:
        texts, pairs = plain_texts(6, seed=7), plain_texts(6, seed=8)
        asked, ours_said = [], []
        for head, (kind, arguments, settings, answer, _) in HEADS.items():
            model, folder = built(kind, files.tokenizer, *arguments, **settings), f"{scratch}/{head}"
            model.save_pretrained(folder, files.tokenizer)
            save_checkpoint(open_checkpoint(folder), f"{folder}-theirs", "hugging_face")
            rows = ([f"{text} {text}" for text in texts], None) if head == "language" else (texts, pairs)
            given = {"texts": rows[0], "pairs": rows[1], "length": T, "target": TARGET}
            asked.append({"folder": f"{folder}-theirs", **given})
            ours_said.append(answer(model, files.tokenizer(*rows, max_length=T)))
        worst = 0.0
        said = env.run(f"{THEIRS}\nanswer = [answer(**each) for each in given]", asked)
        for expected, found in zip(ours_said, said, strict=True):
            if found["problems"]:
                raise ValueError(f"{found['kind']}: {found['problems']}")
            for name, values in expected.items():
                worst = max(worst, largest(np.reshape(found[name], values.shape), values))
        return worst

    def written(kind: str, model: Any, dtype: str) -> float:
        folder = f"{scratch}/{kind}-{dtype}"
        given = {"folder": folder, "kind": kind, "batch": files.batch, "dtype": dtype}
        theirs = env.call("hugging_face", "write", **given)
        found = model.from_pretrained(folder)(ours.features(files.batch))
        found = found["sequence_output"] if isinstance(found, dict) else found
        return largest(found, theirs, files.batch["mask"] if np.ndim(theirs) == 3 else None)

    yield "our `save_pretrained` folder", "the library", lambda: read("saved")
    yield "the same, converted by `convert-checkpoint`", "the library", lambda: read("hugging_face")
    yield f"{len(HEADS)} heads of ours and their tokenizers, converted", "the library, from texts", all_heads
    for kind, model, dtype in (
        ("XLNetForSequenceClassification", XLNetClassifier, "float32"),
        ("XLNetForTokenClassification", XLNetTokenClassifier, "float32"),
        ("XLNetModel", XLNetEncoder, "float32"),
        ("XLNetModel", XLNetEncoder, "bfloat16"),
    ):
        name = f"its `{kind}`" + f" in {dtype}" * (dtype != "float32")
        yield name, f"`{model.__name__}`", functools.partial(written, kind, model, dtype)


def keras_hub(env: Environment, files: Ours, scratch: str) -> Iterator[Check]:
    def into(function: str, path: str) -> float:
        env.call("keras_hub", function, path=f"{files.folder}/{path}")
        return 0.0

    one = {name: rows[:1] for name, rows in files.batch.items()}

    @functools.cache
    def theirs() -> Any:
        return env.call("keras_hub", "write", folder=scratch, batches=[one])[0]

    def written(name: str) -> float:
        expected = theirs()
        found = XLNetEncoder.from_pretrained(f"{scratch}/{name}")(ours.features(one))
        return largest(found["sequence_output"], expected, one["mask"])

    for label, reader, path in (
        ("our `.weights.h5`", "load_weights", "model.weights.h5"),
        ("our `.keras`", "load_model", "model.keras"),
        ("our folder, converted for transformers", "from_preset", "hugging_face"),
    ):
        yield label, f"its `{reader}`", functools.partial(into, reader, path)
    for label, name in (
        (".keras", "backbone.keras"),
        (".weights.h5", "backbone.weights.h5"),
        ("preset folder", "preset"),
    ):
        yield f"its `{label}`", "`XLNetEncoder`, one row", functools.partial(written, name)


def tensorflow(env: Environment, files: Ours, scratch: str) -> Iterator[Check]:
    def served() -> float:
        [version] = pathlib.Path(files.folder, "served").glob("[0-9]*")
        found = env.call("tensorflow_alone", "served", folder=str(version), texts=files.texts)
        return largest(found, files.probabilities)

    def weights() -> float:
        theirs = env.call("tensorflow_alone", "weights", path=files.checkpoint)
        expected = tensorflow_alone.weights(files.checkpoint)
        return max(largest(theirs[name], value) for name, value in expected.items())

    def records() -> float:
        found = env.call("tensorflow_alone", "records", files=files.records)
        return float(found != tensorflow_alone.records(files.records))

    yield "our exported SavedModel", "the library, from texts", served
    yield "our checkpoint in the original's format", "the library: weights", weights
    yield "our records", "the library: bytes", records
    yield from _with_us(env, files, f"{scratch}/theirs")


def _with_us(env: Environment, files: Ours, theirs: str) -> Iterator[Check]:
    """Yields what we read under other libraries, and here of what we write under them, in `theirs`."""
    folder, batch = files.folder, files.batch

    @functools.cache
    def write() -> None:
        env.call("ours", "write", folder=theirs, texts=invent_texts(600))

    def written(read: Callable[..., Any], *paths: str) -> float:
        write()
        return largest(read(*paths, batch), files.logits)

    def exported() -> float:
        write()
        [version] = pathlib.Path(theirs, "served").glob("[0-9]*")
        return largest(tensorflow_alone.served(str(version), files.texts), files.probabilities)

    def call(function: str, **given: Any) -> float:
        return largest(env.call("ours", function, batch=batch, **given), files.logits)

    saved, keras, weights = f"{folder}/saved", f"{folder}/model.keras", f"{folder}/model.weights.h5"
    for label, reader, function, given in (
        ("our `save_pretrained` folder", "this project with it", "logits", {"path": saved}),
        ("our `.keras`", "its `load_model`", "loaded_by_keras", {"path": keras}),
        ("our `.weights.h5`", "its `load_weights`", "loaded_weights", {"path": weights, "folder": saved}),
    ):
        yield label, reader, functools.partial(call, function, **given)
    yield "SavedModel that we export with it", "TensorFlow 2.20, from texts", exported
    keras, weights = f"{theirs}/model.keras", f"{theirs}/model.weights.h5"
    for label, reader, read, *paths in (
        ("`save_pretrained` folder", "this project", ours.logits, f"{theirs}/saved"),
        ("`.keras`", "`load_model` of 2.20", ours.loaded_by_keras, keras),
        ("`.keras`", "`from_pretrained`", ours.logits, keras),
        ("`.weights.h5`", "`load_weights` of 2.20", ours.loaded_weights, weights, saved),
    ):
        yield f"{label} that we write with it", reader, functools.partial(written, read, *paths)


def model_garden(env: Environment, files: Ours, scratch: str) -> Iterator[Check]:
    def read() -> float:
        env.call("model_garden", "read", path=files.checkpoint)
        return 0.0

    def records() -> float:
        pathlib.Path(scratch, "spiece.model").write_bytes(files.tokenizer.model_proto)
        env.call("model_garden", "write_records", folder=scratch, texts=invent_texts(120))
        manifest, _ = convert(conversion_options(pathlib.Path(scratch), source_format="model_garden"))
        report = check(manifest)
        if not report.sound:
            raise ValueError(str(report))
        return 0.0

    yield "our checkpoint in the original's format", "its `XLNetBase`", read
    yield "its builder's records", "`convert-records`", records


def sentencepiece(env: Environment, files: Ours, scratch: str) -> Iterator[Check]:
    program, path = "ours_without_tensorflow", f"{scratch}/spiece.model"

    def differing(found: Sequence, expected: Sequence) -> float:
        return float(sum(a != b for a, b in zip(found, expected, strict=True)))

    def read() -> float:
        found = env.call(program, "encode", path=f"{files.folder}/saved/spiece.model", texts=files.texts)
        return differing(found, files.tokenizer.encode(files.texts))

    def written() -> float:
        texts = invent_texts(600)
        found = env.call(program, "train", path=path, texts=texts)
        return differing(found, ours_without_tensorflow.encode(path, texts))

    yield "our `spiece.model`", "this project with it: texts with other ids", read
    yield "`spiece.model` that we train with it", "this project: texts with other ids", written


def openvino(env: Environment, files: Ours, scratch: str) -> Iterator[Check]:
    [version] = pathlib.Path(files.folder, "openvino").glob("[0-9]*")

    def alone() -> float:
        found = env.call("openvino_alone", "answers", folder=str(version), batch=files.batch)
        return largest(found, files.logits)

    def from_texts() -> float:
        program, function = "ours_without_tensorflow", "probabilities"
        found = env.call(program, function, folder=str(version), texts=files.texts)
        return largest(found, files.probabilities)

    yield "our folder of `export --runtime=openvino`", "the library, from ids", alone
    yield "the same", "this project with it and without TensorFlow, from texts", from_texts
