"""Sentence splitting that knows the language, by the package sentencex."""

import re
from collections.abc import Sequence

import sentencex

from tfrecord_builders.corpus.documents import EOP
from xlnet_tf.errors import UserError

# Languages that sentencex 1.0 has rules for, then those for which it takes a relative's. It splits all others
# as English, without a word.
_CODES = """
am ar bg bn ca da de el en es fi fr gu he hi hy it ja kk kn ml mr my nl or pa pl pt ru sk ta te uk ur zh
ab als an ast av awa ay ba bar bm ce co cs csb cv dsb eml ext fur gl gn gsw hsb ht kaa kab kl krc kv lad
lb lez li lij lmo ln mag mai mg mwl nah nap nds oc os pdc pfl pms qu rm rue sa sah scn sg szl tt ty tyv
vec vls wa wo xal
"""
LANGUAGES = frozenset(_CODES.split())

# With marks that no space follows, sentencex takes time by the square of a text's length. So a long paragraph
# is handed over in blocks, each cut after such a mark and what closes a quotation or bracket; not before
# ASCII, whose quotes may close, too, and with whose digits a sentence may continue.
_BLOCK = 2000  # characters, and those of a sentence or two
_CLOSING = "」』”’）】》〉"
_BLOCKS = re.compile(rf".{{{_BLOCK}}}(?:[^。！？]*[。！？])+?[{_CLOSING}]*(?![!-~。！？{_CLOSING}])|.+")


def check_language(language: str) -> None:
    """Raises UserError if a language (its ISO 639 code) has no sentence splitter."""
    if language in LANGUAGES:
        return
    near = [code for code in sorted(LANGUAGES) if code[:2] == language[:2].lower()]
    raise UserError(
        f"sentence_split is {language!r}, a language without rules for its sentences"
        + (f" (near: {', '.join(near)})" if near else "")
        + f": expected one of {' '.join(sorted(LANGUAGES))}. For others with . ! ? at sentences' ends "
        "take en; or split the corpus before, one sentence per line"
    )


def split_sentences(language: str, lines: Sequence[str]) -> list[str]:
    """Splits paragraphs into sentences.

    Lines are paragraphs; "" ends a document. `<eop>` at a paragraph's end stays glued to its last sentence.
    """
    sentences = []
    for line in lines:
        if not line:
            sentences.append(line)
            continue
        # One kind of space, as cleaning leaves it: sentencex panics on others before a full stop.
        text = " ".join(line.removesuffix(EOP).split())
        parts = (part for block in _BLOCKS.findall(text) for part in sentencex.segment(language, block))
        split = [sentence for part in parts if (sentence := part.strip())]
        if line.endswith(EOP):
            split = [*split[:-1], (split[-1] if split else "") + EOP]
        sentences += split
    return sentences
