"""tokenizer.json: a SentencePiece model and the cleaning of its texts as Hugging Face's tokenizers read them.

Transformers 5 writes only this file of a tokenizer, so we read it if there is no SentencePiece model. We
write it because without it transformers 5 treats the user-defined pieces of the released models (`.`, `(`,
`"`, `-`, ...) as special tokens and puts a space after each, so it splits `"well." he` differently.
"""

import atexit
import base64
import functools
import json
import shutil
import tempfile
from typing import Any

from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.hub import checksums
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.model_proto import ModelProto
from xlnet_tf.text.vocabulary import TOKENIZER_FILE, UNDERLINE, PieceTable, check_word_marks

TOKENIZER_JSON_FILE = "tokenizer.json"
_Piece = ModelProto.SentencePiece
_METASPACE = {"type": "Metaspace", "replacement": UNDERLINE, "prepend_scheme": "always", "split": True}


def write_tokenizer_json(folder: epath.PathLike, table: PieceTable, cleaning: CleaningConfig) -> list[str]:
    """Writes tokenizer.json of a unigram model; for any other, removes the file. Returns its name."""
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
    normalizers: list[dict[str, Any]] = quotes if cleaning.normalize_quotes else []
    if not cleaning.keep_accents:
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if cleaning.lower:
        normalizers.append({"type": "Lowercase"})
    if charsmap := table.normalizer.precompiled_charsmap:
        encoded = base64.b64encode(charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    return normalizers


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


def model_file(folder: epath.PathLike) -> epath.Path:
    """Returns the path of a folder's SentencePiece model, which is made from tokenizer.json if need be."""
    file, source = epath.Path(folder) / TOKENIZER_FILE, epath.Path(folder) / TOKENIZER_JSON_FILE
    return file if file.exists() or not source.exists() else model_file_of(source)


def model_file_of(source: epath.Path) -> epath.Path:
    """Makes a SentencePiece model from a tokenizer.json; it is kept until the process ends."""
    return epath.Path(_made_of(str(source), source.stat().mtime))


@functools.cache
def _made_of(path: str, _changed: float) -> str:
    content = epath.Path(path).read_bytes()
    checksums.check(path, content)
    model = _model(files.read_json(path, content), path).SerializeToString()
    check_word_marks(model, path)
    folder = tempfile.mkdtemp(prefix="xlnet-tokenizer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files.write(f"{folder}/{TOKENIZER_FILE}", model)
    return f"{folder}/{TOKENIZER_FILE}"


def _model(values: dict[str, Any], path: str) -> ModelProto:
    fields = values.get("model")
    model_type = fields.get("type") if isinstance(fields, dict) else None
    if model_type != "Unigram":
        raise UserError(
            f"{path}: model.type is {short_repr(model_type)}; expected Unigram, as XLNet's tokenizers have it"
        )
    model = ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    try:
        for piece, score in fields["vocab"]:
            model.pieces.add(piece=piece, score=score, type=_type(len(model.pieces), score))
        normalizer = values.get("normalizer") or {}
        for step in normalizer.get("normalizers", [normalizer]):
            if step.get("type") == "Precompiled":
                model.normalizer_spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
        pre_tokenizer = values.get("pre_tokenizer") or {}
        for step in pre_tokenizer.get("pretokenizers", [pre_tokenizer]):
            if step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False:
                model.normalizer_spec.add_dummy_prefix = False
        tokens = values.get("added_tokens") or ()
        added = [token["content"] for token in tokens if token["id"] >= len(model.pieces)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not as Hugging Face's tokenizers write it ({error!r})") from None
    symbols = special_tokens.SYMBOLS
    first = [piece.piece for piece in model.pieces[: len(symbols)]]
    if first != [*symbols]:
        raise UserError(
            f"{path} is not an XLNet tokenizer: its first pieces are {', '.join(first) or 'none'}, expected "
            f"{', '.join(symbols)}"
        )
    if added:
        raise UserError(
            f"{path} adds {', '.join(map(repr, added[:5]))} to the model's {len(model.pieces):,} pieces: "
            "expected the pieces of a SentencePiece model alone"
        )
    model.trainer_spec.vocab_size = len(model.pieces)
    return model


def _type(number: int, score: float) -> int:
    """Returns the type of a piece: a score of 0 means that it was not trained."""
    if number == special_tokens.UNK_ID:
        return _Piece.UNKNOWN
    if number < special_tokens.EOP_ID:
        return _Piece.CONTROL
    return _Piece.NORMAL if score else _Piece.USER_DEFINED
