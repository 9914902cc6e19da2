"""Counts the texts that other libraries split differently from ours, with one SentencePiece model."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.peers.environments import environment, log
from xlnet_tf.text.tokenizer import XLNetTokenizer

_PLAIN = """
import sentencepiece
plain = sentencepiece.SentencePieceProcessor(model_file=given["folder"] + "/spiece.model")
answer = plain.encode(given["texts"])
"""
_GRAPH = """
import tensorflow_text
model = open(given["folder"] + "/spiece.model", "rb").read()
answer = tensorflow_text.SentencepieceTokenizer(model).tokenize(given["texts"]).to_list()
"""
_FOLDER = """
import transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(given["folder"])
answer = tokenizer(given["texts"], add_special_tokens=False)["input_ids"]
"""
_FROM_MODEL = """
import shutil, tempfile, transformers
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(given["folder"] + "/spiece.model", folder)
    kind = getattr(transformers, given["kind"])
    tokenizer = kind.from_pretrained(folder)
answer = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in given["texts"]]
"""
_OPENVINO = """
import numpy as np, openvino, openvino_tokenizers, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(given["folder"])
model = openvino.compile_model(openvino_tokenizers.convert_tokenizer(tokenizer, add_special_tokens=False))
answer = []
for text in given["texts"]:
    out = model([text])
    answer.append(out["input_ids"][0][out["attention_mask"][0] == 1].tolist())
"""


class Library(NamedTuple):
    """A library that splits texts.

    Attributes:
        name: with "newest" for the version of the first package.
        code, options: see Environment.run.
        cleans: whether it cleans texts and splits off commas itself, as XLNet's own tokenizers do.
    """

    name: str
    packages: Sequence[str]
    code: str
    options: Mapping[str, str] = {}
    cleans: bool = False

    def ids(self, folder: pathlib.Path, *sets: Sequence[str]) -> tuple[str, list[list[list[int]]]]:
        """Returns the name with the version, and the ids of sets of texts, in an environment of its own."""
        log(self.name)
        with environment(*self.packages) as other:
            name = self.name.replace("newest", other.version(self.packages[0].partition("==")[0]))
            given = {"folder": str(folder), **self.options}
            return name, [other.run(self.code, {**given, "texts": list(texts)}) for texts in sets]


_OLD = ["transformers==4.57.6", "sentencepiece==0.2.1", "protobuf"]
_NEW = ["transformers", "sentencepiece", "protobuf"]
_SLOW = {"kind": "XLNetTokenizer"}
_OPENVINO_PACKAGES = ["openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0", *_NEW]
LIBRARIES = (
    Library("sentencepiece 0.2.1", ["sentencepiece==0.2.1"], _PLAIN),
    Library("sentencepiece newest", ["sentencepiece"], _PLAIN),
    Library("tensorflow-text 2.20.1", ["tensorflow-text==2.20.1", "tensorflow==2.20.0"], _GRAPH),
    Library("tensorflow-text newest", ["tensorflow-text"], _GRAPH),
    Library("transformers 4.57.6, slow", _OLD, _FROM_MODEL, _SLOW, cleans=True),
    Library("transformers 4.57.6, fast", _OLD, _FROM_MODEL, {"kind": "XLNetTokenizerFast"}, cleans=True),
    Library("transformers newest, from `spiece.model`", _NEW, _FROM_MODEL, _SLOW, cleans=True),
    Library("transformers newest, from what `save_pretrained` writes", _NEW, _FOLDER, cleans=True),
    Library("openvino-tokenizers 2026.4.1.0, made from that", _OPENVINO_PACKAGES, _OPENVINO, cleans=True),
)


def count(
    tokenizer: XLNetTokenizer, sets: dict[str, Sequence[str]], folder: pathlib.Path, only: str
) -> Iterator[list[str]]:
    """Yields the rows of the table: a library, and how many texts of each set it splits differently."""
    tokenizer.save_pretrained(folder)
    yield ["library", *(f"of {len(texts):,} {name}" for name, texts in sets.items())]
    for library in LIBRARIES:
        if only not in library.name:
            continue
        encode = tokenizer.encode if library.cleans else tokenizer._processor.encode
        try:
            name, found = library.ids(folder, *sets.values())
            ours = [encode(list(texts)) for texts in sets.values()]
            cells = [f"{sum(a != b for a, b in zip(*pair, strict=True)):,}" for pair in zip(ours, found)]
        except (RuntimeError, OSError) as error:  # a library that fails is a row of the table
            name, cells = library.name, [f"fails: {str(error)[:120]}", *[""] * (len(sets) - 1)]
        yield [name, *cells]
