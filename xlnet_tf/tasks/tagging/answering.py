"""The entities of texts of any length, without TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import signatures
from xlnet_tf.serving.answers.answering import Answering, Graph, TextAnswers, as_bytes, in_chunks, softmax
from xlnet_tf.serving.answers.options import check_temperature
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.word_finder import WordFinder
from xlnet_tf.text.word_windows import windows
from xlnet_tf.text.words import OUTSIDE, mark_entities

WINDOWS_AT_ONCE = 16


class EntityAnswers(TextAnswers):
    OF_EXAMPLES = ("stride",)

    def __init__(
        self, *served: Any, stride: int | None = None, temperature: Sequence[float] | None = None, **options
    ):
        super().__init__(*served, **options)
        self.temperature = check_temperature(temperature, 1)
        self.room = self.seq_len - 2
        self.stride = check_stride(stride, self.room)
        self.of_entities = check_tags(self.labels)

    def example_rows(self):
        return {"text": "Ada Lovelace met Charles Babbage in London in June 1833."}

    @staticmethod
    def without_padding(row, answer):
        return signatures.without_padding(answer)

    def readable(self, row, answer):
        columns = {name: values for name, values in answer.items() if isinstance(values, list)}
        return {"entities": [dict(zip(columns, values)) for values in zip(*columns.values())]}


class TaggingAnswering(EntityAnswers, Answering):
    """See TaggingModule, whose options and answers it has."""

    def __init__(self, graph: Graph, tokenizer: XLNetTokenizer, **options):
        super().__init__(graph, tokenizer, **options)
        self.words_of = WordFinder(tokenizer)

    def output_kinds(self):
        texts, numbers = (bytes, -1), (np.int32, -1)
        of_entities = {"entity": texts, "label": texts, "start": numbers, "end": numbers}
        return {**of_entities, "score": (np.float32, -1), "num_entities": (np.int32,)}

    def serve(self, text):
        found = [self.words_of.find(one) for one in text]
        pieces = [[ids[: self.room] for ids in words.pieces] for words in found]
        spans = [
            (row, window)
            for row, words in enumerate(pieces)
            if words
            for window in windows([*map(len, words)], self.room, self.stride)
        ]
        most = max(len(text), WINDOWS_AT_ONCE)
        tags = in_chunks(lambda begin, end: self._tags(pieces, spans[begin:end]), len(spans), most)
        stops = np.cumsum([len(words) for words in pieces])[:-1]
        by_text = (np.split(tags[name], stops) for name in ("tags", "scores"))
        rows = [
            self._entities(one, words.offsets, *tagged) for one, words, *tagged in zip(text, found, *by_text)
        ]
        return padded(rows)

    def _tags(self, pieces: Sequence[Sequence[Sequence[int]]], spans) -> dict[str, np.ndarray]:
        """Returns the best tag of each word that the windows predict, and its probability: [words]."""
        if not spans:
            return {"tags": np.zeros(0, np.int64), "scores": np.zeros(0, np.float32)}
        ids = [[i for word in pieces[row][span.start : span.stop] for i in word] for row, span in spans]
        logits = self.graph(self.pack([(each, None) for each in ids]))["logits"]  # [C, T, labels]
        chosen = []
        for number, (row, span) in enumerate(spans):
            lengths = [len(word) for word in pieces[row][span.start : span.stop]]
            firsts = np.cumsum([0, *lengths[:-1]]) + logits.shape[1] - 2 - sum(lengths)  # padded on the left
            words = firsts[span.predict_start - span.start : span.predict_stop - span.start]
            chosen.append(logits[number, words])
        logits = np.concatenate(chosen)
        probabilities = softmax(logits / np.float32(self.temperature[0]))
        return {"tags": logits.argmax(axis=-1), "scores": probabilities.max(axis=-1)}

    def _entities(self, text: str, offsets, tags: np.ndarray, scores: np.ndarray) -> list[dict[str, Any]]:
        """Reads entities from the tags of a text's words, as conlleval does; else each word is one."""
        entities: list[dict[str, Any]] = []
        type_before = ""
        for (begin, end), tag, score in zip(offsets, tags, scores):
            label = self.labels[tag]
            type_ = label if not self.of_entities else "" if label == OUTSIDE else label[2:]
            begins = not self.of_entities or label.startswith("B-")
            if type_ and (begins or type_ != type_before):
                entities.append({"label": type_, "start": begin, "scores": []})
            if type_:
                entities[-1]["end"] = end
                entities[-1]["scores"].append(score)
            type_before = type_
        for entity in entities:
            entity["entity"] = text[entity["start"] : entity["end"]]
            entity["score"] = np.mean(entity.pop("scores"), dtype=np.float32)
        return entities


def padded(rows: Sequence[Sequence[dict[str, Any]]]) -> dict[str, np.ndarray]:
    """Returns the entities of texts as columns [B, E], filled up after the last entity of each."""
    counts = np.array([*map(len, rows)], np.int32)
    shape = len(rows), max(counts, default=0)
    kinds = {"entity": "", "label": "", "start": np.int32(-1), "end": np.int32(-1), "score": np.float32(0)}
    columns = {}
    for name, nothing in kinds.items():
        values = np.full(shape, nothing, object if nothing == "" else nothing.dtype)
        for row, entities in enumerate(rows):
            values[row, : len(entities)] = [entity[name] for entity in entities]
        columns[name] = as_bytes(values) if nothing == "" else values
    return {**columns, "num_entities": counts}


def check_stride(stride: int | None, room: int) -> int:
    """Returns the pieces between the starts of two windows, by default half of the room for pieces."""
    if stride is None:
        return room // 2
    if not 0 < stride <= room:
        raise UserError(
            f"stride is {stride}; expected 1 to {room}, the pieces of a sequence of {room + 2} tokens"
        )
    return stride


def check_tags(labels: Sequence[str]) -> bool:
    """Returns whether labels mark entities; raises UserError if those that do are not BIO tags."""
    of_entities = mark_entities(labels)
    wrong = [label for label in labels if label != OUTSIDE and label[:2] not in ("B-", "I-")]
    if of_entities and wrong:
        raise UserError(f"the model has the labels {', '.join(wrong)}; expected O, B-TYPE and I-TYPE only")
    return of_entities
