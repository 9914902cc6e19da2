"""Counts the texts that another tokenizer splits differently from ours."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
from etils import epath

from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import clean_text
from xlnet_tf.text.locating import locate_tokenizer, tokenizer_folder
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.tokenizer_json import TOKENIZER_JSON_FILE

_SHOWN = 3
Encode = Callable[[Sequence[str]], list[list[int]]]


def compare(tokens_of: str, path: str) -> dict[str, Any]:
    """Compares a tokenizer with other libraries, and with another pipeline's `input_ids` in a file.

    Returns texts and with_ids, their numbers; others: name -> number of texts that it splits differently;
    examples: name -> the first of them, with the pieces there and here.
    """
    tokenizer = XLNetTokenizer.from_pretrained(tokens_of)
    rows = _read(path)
    texts = [row["text"] for row in rows]
    ours = [ids.tolist() for ids in tokenizer.encode_rows(texts, "the texts")]
    found = {name: encode(texts) for name, encode in _libraries(tokenizer, tokens_of).items()}
    with_ids = [number for number, row in enumerate(rows) if "input_ids" in row]
    others: dict[str, int] = {}
    examples: dict[str, list[dict[str, Any]]] = {}
    compared = [(name, range(len(texts)), ids) for name, ids in found.items()]
    if with_ids:
        compared.append((f"input_ids of {path}", with_ids, {i: rows[i]["input_ids"] for i in with_ids}))
    for name, numbers, ids in compared:
        different = [number for number in numbers if ids[number] != ours[number]]
        others[name] = len(different)
        examples[name] = [
            {
                "text": texts[number][:80],
                "there": _around(tokenizer, ids[number], ours[number]),
                "here": _around(tokenizer, ours[number], ids[number]),
            }
            for number in different[:_SHOWN]
        ]
    return {"texts": len(texts), "with_ids": len(with_ids), "others": others, "examples": examples}


def table(found: Mapping[str, Any]) -> str:
    width = max(map(len, found["others"]), default=0)
    lines = [f"{found['texts']:,} texts; split differently by"]
    for name, count in found["others"].items():
        lines.append(f"  {name:{width}} {count:7,}")
        lines += [
            f"      {one['text']!r}: {' '.join(one['there'])}; here {' '.join(one['here'])}"
            for one in found["examples"][name]
        ]
    return "\n".join(lines)


def _read(path: str) -> list[dict[str, Any]]:
    lines = [line for line in epath.Path(path).read_text(encoding="utf-8").split("\n") if line.strip()]
    if not lines:
        raise UserError(f"{path} has no text: expected a text on each line, or JSON with `text`")
    if not lines[0].lstrip().startswith("{"):
        return [{"text": line} for line in lines]
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            text, ids = row["text"], row.get("input_ids", [])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}, line {number}: expected a JSON object with `text`") from None
        if not isinstance(text, str) or not all(type(each) is int for each in ids):
            raise UserError(f"{path}, line {number}: expected a string `text` and integers `input_ids`")
        rows.append(row)
    return rows


def _libraries(tokenizer: XLNetTokenizer, tokens_of: str) -> dict[str, Encode]:
    plain = sentencepiece.SentencePieceProcessor()
    plain.LoadFromSerializedProto(tokenizer.model_proto)

    def with_sentencepiece(texts: Sequence[str]) -> list[list[int]]:
        rows = plain.encode([clean_text(text, tokenizer.cleaning) for text in texts])
        split = (tokenizer.commas.split(np.array(row, np.int32), np.array([len(row)])) for row in rows)
        return [ids.tolist() for ids, _ in split]

    def with_graph(texts: Sequence[str]) -> list[list[int]]:
        from xlnet_tf.text.graph.tokenizer import GraphTokenizer

        return GraphTokenizer(tokenizer).encode(texts).to_list()

    def with_transformers(texts: Sequence[str]) -> list[list[int]]:
        import transformers

        folder = str(tokenizer_folder(locate_tokenizer(tokens_of)))
        other = transformers.AutoTokenizer.from_pretrained(folder)
        return other(list(texts), add_special_tokens=False)["input_ids"]

    known = {"sentencepiece": with_sentencepiece, "tensorflow_text": with_graph}
    if (tokenizer_folder(locate_tokenizer(tokens_of)) / TOKENIZER_JSON_FILE).exists():
        known["transformers"] = with_transformers
    return {
        f"{name} {importlib.metadata.version(name)}": encode
        for name, encode in known.items()
        if importlib.util.find_spec(name)
    }


def _around(tokenizer: XLNetTokenizer, ids: Sequence[int], others: Sequence[int]) -> list[str]:
    """Returns the pieces around the first one that differs."""
    same = next((i for i, (a, b) in enumerate(zip(ids, others)) if a != b), min(len(ids), len(others)))
    few = ids[max(same - 1, 0) : same + 3]
    return [tokenizer.id_to_piece(number) if 0 <= number < len(tokenizer) else str(number) for number in few]
