"""Counts the texts that other libraries split differently from ours, with one SentencePiece model."""

import pathlib
from collections.abc import Iterator, Sequence

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
# (library, packages, code, options of the code, whether it cleans texts itself)
LIBRARIES = [
    ("sentencepiece 0.2.1", ["sentencepiece==0.2.1"], _PLAIN, {}, False),
    ("sentencepiece, newest", ["sentencepiece"], _PLAIN, {}, False),
    ("tensorflow-text 2.20.1", ["tensorflow-text==2.20.1", "tensorflow==2.20.0"], _GRAPH, {}, False),
    ("tensorflow-text, newest", ["tensorflow-text"], _GRAPH, {}, False),
    (
        "transformers 4.57.6, slow",
        ["transformers==4.57.6", "sentencepiece==0.2.1"],
        _FROM_MODEL,
        {"kind": "XLNetTokenizer"},
        True,
    ),
    (
        "transformers 4.57.6, fast",
        ["transformers==4.57.6", "sentencepiece==0.2.1", "protobuf"],
        _FROM_MODEL,
        {"kind": "XLNetTokenizerFast"},
        True,
    ),
    (
        "transformers, newest, from spiece.model",
        ["transformers", "sentencepiece", "protobuf"],
        _FROM_MODEL,
        {"kind": "XLNetTokenizer"},
        True,
    ),
    (
        "transformers, newest, from save_pretrained",
        ["transformers", "sentencepiece", "protobuf"],
        _FOLDER,
        {},
        True,
    ),
    (
        "openvino-tokenizers 2026.4.1.0, of that",
        [
            "openvino==2026.4.1",
            "openvino-tokenizers==2026.4.1.0",
            "transformers",
            "sentencepiece",
            "protobuf",
        ],
        _OPENVINO,
        {},
        True,
    ),
]


def count(
    tokenizer: XLNetTokenizer, sets: dict[str, Sequence[str]], folder: pathlib.Path, only: str
) -> Iterator[list[str]]:
    """Yields the rows of the table: a library, and how many texts of each set it splits differently."""
    tokenizer.save_pretrained(folder)
    yield ["library", *(f"of {len(texts):,} {name}" for name, texts in sets.items())]
    for library, packages, code, options, cleans in LIBRARIES:
        if only not in library:
            continue
        log(library)
        try:
            with environment(*packages) as other:
                label = library.replace("newest", other.version(packages[0].partition("==")[0]))
                counts = []
                for texts in sets.values():
                    # Without cleaning and the rule for commas, which only XLNet's own tokenizers have.
                    ours = tokenizer.encode(texts) if cleans else tokenizer._processor.encode(list(texts))
                    found = other.run(code, {"folder": str(folder), "texts": list(texts), **options})
                    counts.append(f"{sum(a != b for a, b in zip(ours, found, strict=True)):,}")
        except (RuntimeError, OSError) as error:  # a library that fails is a row of the table
            label, counts = library, [f"fails: {str(error)[:120]}", *[""] * (len(sets) - 1)]
        yield [label, *counts]
