"""Counts, by script, the characters that cleaning takes marks from, and warns of it."""

import collections
import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from xlnet_tf.text.cleaning import CleaningConfig, clean_text

# Scripts in which a character without its marks is another letter, or none: umlauts and tones of Latin
# scripts, vowels and conjuncts of India's, the voiced kana, short i in Cyrillic. Hebrew is read without them.
SCRIPTS_WITH_MARKS = frozenset(
    [
        *("ADLAM", "ARABIC", "BALINESE", "BATAK", "BENGALI", "BUGINESE", "CHAKMA", "CYRILLIC"),
        *("DEVANAGARI", "GREEK", "GUJARATI", "GURMUKHI", "HALFWIDTH", "HANGUL", "HANIFI", "HIRAGANA"),
        *("JAVANESE", "KANNADA", "KATAKANA", "KATAKANA-HIRAGANA", "KAYAH", "KHMER", "LAO", "LATIN"),
        *("LEPCHA", "LIMBU", "MALAYALAM", "MEETEI", "MONGOLIAN", "MYANMAR", "NKO", "ORIYA"),
        *("SAURASHTRA", "SINHALA", "SUNDANESE", "SYLOTI", "SYRIAC", "TAGALOG", "TAI", "TAMIL", "TELUGU"),
        *("THAI", "TIBETAN"),
    ]
)
MAX_DROPPED_SHARE = 0.001  # of the characters; some foreign names are in every text
_BLOCK_CHARACTERS = 1 << 16  # counted at once
_SHOWN_WORDS = 3
_SHOWN_CHARACTERS = 20  # of a word; some scripts have no spaces
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*|\S+")
_CODES = 0x20000  # characters above lose nothing
_OTHER = "OTHER"


def count_dropped_marks(texts: Sequence[str]) -> dict[str, int]:
    """Counts, by Unicode's name of the script, the characters that lose a mark if accents are not kept."""
    text = "\n".join(text for text in texts if not text.isascii())
    if not text:
        return {}
    script_of, names = _scripts()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    scripts = script_of[np.minimum(codes, _CODES - 1)]
    counts = np.bincount(scripts[scripts > 0], minlength=len(names))
    return {name: int(count) for name, count in zip(names[1:], counts[1:]) if count}


class DroppedMarks:
    """What cleaning will take from the texts of a build, to warn of it before the build begins."""

    def __init__(self, cleaning: CleaningConfig):
        self._cleaning = cleaning
        self._waiting: list[str] = []
        self._waiting_characters = self._characters = 0
        self._counts: collections.Counter[str] = collections.Counter()
        self._examples: dict[str, str] = {}  # word -> the same cleaned
        self._warned = False

    def add(self, *texts: str) -> None:
        if self._cleaning.keep_accents:
            return
        for text in texts:
            self._characters += len(text)
            if not text.isascii():
                self._waiting.append(text)
                self._waiting_characters += len(text)
        if self._waiting_characters > _BLOCK_CHARACTERS:
            self._count()

    def warn(self) -> None:
        """Warns, once, if more than a few letters become other letters without their marks."""
        self._count()
        if self._warned or not (counts := letters_lost(self._counts, self._characters)):
            return
        self._warned = True
        examples = ", ".join(f"{word} -> {cleaned}" for word, cleaned in self._examples.items())
        logging.warning(
            "cleaning drops the accents of %s of %s characters (%s), so that words which differ become one: "
            "%s. Use --keep_accents, unless the model is to start from weights whose text was cleaned so, as "
            "that of the released models was",
            f"{sum(counts.values()):,}",
            f"{self._characters:,}",
            ", ".join(f"{count:,} {script}" for script, count in counts.items()),
            examples,
        )

    def _count(self) -> None:
        # A letter and its mark may be two characters; together they belong to a script.
        texts = [unicodedata.normalize("NFC", text) for text in self._waiting]
        self._waiting, self._waiting_characters = [], 0
        counts = count_dropped_marks(texts)
        self._counts.update(counts)
        if not SCRIPTS_WITH_MARKS & counts.keys() or len(self._examples) == _SHOWN_WORDS:
            return
        for word in (word for text in texts if not text.isascii() for word in _WORD.findall(text)):
            word = word[:_SHOWN_CHARACTERS]
            if not word.isascii() and SCRIPTS_WITH_MARKS & count_dropped_marks([word]).keys():
                self._examples[word] = clean_text(word, self._cleaning)
                if len(self._examples) == _SHOWN_WORDS:
                    return


def warn_of_dropped_marks(texts: Iterable[str], cleaning: CleaningConfig) -> None:
    """Warns if cleaning turns words into other words."""
    marks = DroppedMarks(cleaning)
    for text in texts:
        marks.add(text)
    marks.warn()


def letters_lost(counts: Mapping[str, int], characters: int) -> dict[str, int]:
    """Returns script -> letters that become others, most first; empty if they are too few to matter."""
    marked = {script: counts[script] for script in SCRIPTS_WITH_MARKS & counts.keys()}
    if sum(marked.values()) <= MAX_DROPPED_SHARE * characters:
        return {}
    return dict(sorted(marked.items(), key=lambda item: (-item[1], item[0])))


@functools.cache
def _scripts() -> tuple[np.ndarray, list[str]]:
    """Returns uint8 [code points] and the scripts' names: 0 for characters that lose nothing."""
    script_of = np.zeros(_CODES, np.uint8)
    names = [""]
    for code in range(0x80, _CODES):
        character = chr(code)
        if not any(map(unicodedata.combining, unicodedata.normalize("NFKD", character))):
            continue
        words = unicodedata.name(character, _OTHER).split(" ")
        script = words[1] if words[0] == "COMBINING" else words[0]
        if script not in SCRIPTS_WITH_MARKS and script != "HEBREW":
            script = _OTHER
        if script not in names:
            names.append(script)
        script_of[code] = names.index(script)
    return script_of, names
