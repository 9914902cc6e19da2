"""Models that answer the rows of a corpus: a fine-tuned model, likelihoods, vectors."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import Self

from run_scripts.common import computing
from run_scripts.common.answers import inputs_of_row
from run_scripts.common.sharded.shard import Answerer, Inputs
from tfrecord_builders.corpus import is_text
from xlnet_tf import hub
from xlnet_tf.config import MOST_SEED
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.flags import option
from xlnet_tf.model_folders import newest_version

DTYPE_HELP = (
    "Type of weights and activations; bfloat16 is less exact, faster on devices that compute with it."
)
_TEXT, _FLOAT, _INT = np.dtype(object), np.dtype(np.float32), np.dtype(np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelByPath:
    """A model and its path."""

    path: str

    def of_version(self) -> Self:
        """Fixes the newest version of an exported model, which all workers then load, whatever appears."""
        version = newest_version(hub.locate(self.path).folder)
        return dataclasses.replace(self, path=version) if version else self


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predicting(ModelByPath):
    """A fine-tuned model, as `serving.sources.open_served` opens it; `columns` are (input, column) pairs."""

    checkpoint: str
    inputs: tuple[str, ...]
    weights: str
    columns: tuple[tuple[str, str], ...]

    def load(self, threads: int) -> Answerer:
        computing.use_threads(self.path, threads)
        from xlnet_tf.serving.sources import open_served

        source = open_served(self.path, checkpoint=self.checkpoint, inputs=self.inputs, threads=threads)
        answer = source.load(self.weights).batch_predictor()
        outputs = {name: (info.dtype, info.rank - 1) for name, info in answer.outputs.items()}
        columns = dict(self.columns)
        return Answerer(lambda row: inputs_of_row(row, source.ranks, columns), answer, outputs, source.ranks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextModel(ModelByPath):
    """A model that answers one text of each row; each field but `path`, the model's, is a flag."""

    text_field: str = option("Column with the text.", "text", group="data")
    dtype: str = option(DTYPE_HELP, "float32", choices=("float32", "bfloat16"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring(TextModel):
    """A pretrained model that scores texts; see generation.arrays.scoring.score_texts."""

    context: str = option("What stands before each text.", "", group="answers")
    order: str = option(
        "Order in which the pieces are predicted.",
        "left_to_right",
        choices=("left_to_right", "right_to_left", "random"),
        group="answers",
    )
    seed: int = option("Random seed for --order=random.", 0, least=0, most=MOST_SEED)
    pieces: bool = option("Of a corpus: write each piece and its log-probability, too.", False)

    def load(self, threads: int) -> Answerer:
        computing.use_threads(self.path, threads)
        model = computing.load_language_model(self.path, self.dtype, threads)

        def answer(rows: Sequence[Inputs]) -> list[dict[str, Any]]:
            scores = model.score(
                [row["text"] for row in rows],
                [self.context] * len(rows),
                order=self.order,
                seed=self.seed,
                batch_size=len(rows),
            )
            answers = []
            for score in scores:
                found = {"log_probability": np.float32(score.total), "num_pieces": len(score.pieces)}
                if self.pieces:
                    found |= {"pieces": score.pieces, "log_probabilities": score.log_probabilities}
                answers.append(found)
            return answers

        outputs = {"log_probability": (_FLOAT, 0), "num_pieces": (_INT, 0)}
        if self.pieces:
            outputs |= {"pieces": (_TEXT, 1), "log_probabilities": (_FLOAT, 1)}
        return Answerer(_text_reader(self.text_field), answer, outputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(TextModel):
    """Float32 vectors of texts; see generation.arrays.embedding.embed_texts."""

    checkpoint: str = option("Of a fine-tuned run: best, last, or as ckpt-100; empty: best.", "")
    pooling: str = option("Which vector stands for a text.", "mean", choices=("mean", "cls"), group="answers")
    layer: int = option("Layer whose output is taken, from 0; -1: the last.", -1)
    tokens: bool = option("Give each token's piece and vector, too.", False, group="answers")

    def load(self, threads: int) -> Answerer:
        computing.use_threads(self.path, threads)
        from xlnet_tf.serving.sources import open_embedder

        source = open_embedder(self.path, self.checkpoint, self.layer, self.dtype, threads=threads)
        embed = source.load(self.dtype)

        def answer(rows: Sequence[Inputs]) -> list[dict[str, Any]]:
            found = embed([row["text"] for row in rows], self.tokens)
            answers = [{"embedding": vector} for vector in getattr(found, self.pooling)]
            if self.tokens:
                for one, pieces, vectors in zip(answers, found.pieces, found.tokens, strict=True):
                    one |= {"pieces": pieces, "token_embeddings": vectors}
            return answers

        outputs = {"embedding": (_FLOAT, 1)}
        if self.tokens:
            outputs |= {"pieces": (_TEXT, 1), "token_embeddings": (_FLOAT, 2)}
        return Answerer(_text_reader(self.text_field), answer, outputs)


def _text_reader(field: str):
    def read(row: Mapping[str, Any]) -> Inputs:
        if not is_text(row.get(field)):
            found = short_repr(row[field]) if field in row else "missing"
            raise UserError(f"{field} is {found}; expected a text in UTF-8")
        return {"text": row[field]}

    return read
