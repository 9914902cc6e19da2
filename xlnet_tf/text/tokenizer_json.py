"""tokenizer.json: a SentencePiece model and the cleaning of its texts as Hugging Face's tokenizers read them.

Without it, transformers 5 treats the user-defined pieces of the released models (`.`, `(`, `"`, `-`, ...) as
special tokens and puts a space after each, so it splits `"well." he` differently from SentencePiece.
"""

import base64
import json
from typing import Any

from etils import epath

from xlnet_tf import files
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.vocabulary import UNDERLINE, PieceTable

TOKENIZER_JSON_FILE = "tokenizer.json"
_METASPACE = {"type": "Metaspace", "replacement": UNDERLINE, "prepend_scheme": "always", "split": True}


def write_tokenizer_json(folder: epath.PathLike, table: PieceTable, cleaning: CleaningConfig) -> list[str]:
    """Writes tokenizer.json. XLNet's format holds unigram models alone; for any other, removes the file.

    Args:
        folder: of the tokenizer, local or gs://.
        table: the pieces of the model.
        cleaning: of its texts.

    Returns:
        The names of what was written.
    """
    path = epath.Path(folder) / TOKENIZER_JSON_FILE
    if table.trainer.model_type != table.trainer.UNIGRAM:
        path.unlink(missing_ok=True)
        return []
    contents = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(*item) for item in enumerate(special_tokens.SYMBOLS)],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(table, cleaning)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE]},
        "post_processor": _post_processor(),
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": special_tokens.UNK_ID,
            "vocab": [*zip(table.pieces, table.scores.tolist())],
            "byte_fallback": False,
        },
    }
    files.write(path, json.dumps(contents, ensure_ascii=False) + "\n")
    return [path.name]


def _added_token(number: int, symbol: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": symbol == "<mask>", "rstrip": False, "normalized": False}
    return {"id": number, "content": symbol, **flags, "special": True}


def _normalizers(table: PieceTable, cleaning: CleaningConfig) -> list[dict[str, Any]]:
    quotes = [{"type": "Replace", "pattern": {"String": two}, "content": '"'} for two in ("``", "''")]
    found: list[dict[str, Any]] = quotes if cleaning.normalize_quotes else []
    if not cleaning.keep_accents:
        found += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if cleaning.lower:
        found.append({"type": "Lowercase"})
    if charsmap := table.normalizer.precompiled_charsmap:
        found.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()})
    return found


def _post_processor() -> dict[str, Any]:
    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    def special(symbol: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": symbol, "type_id": segment}}

    single = [text("A", 0), special("<sep>", 0), special("<cls>", 2)]
    pair = [text("A", 0), special("<sep>", 0), text("B", 1), special("<sep>", 1), special("<cls>", 2)]
    symbols = {
        symbol: {"id": symbol, "ids": [special_tokens.IDS[symbol]], "tokens": [symbol]}
        for symbol in ("<cls>", "<sep>")
    }
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": symbols}
