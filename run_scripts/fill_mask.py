r"""Fills in masked pieces of a text with a pretrained model.

    python -m run_scripts.fill_mask --model_dir=runs/demo/model --text="It was the best <mask> I have seen ."

One <mask> stands for one piece of the vocabulary. Several are filled from left to right, each knowing those
before it: what a model of permutations adds to one that predicts all masks apart.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import flags

from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrained import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text import special_tokens
from xlnet_tf.text.tokenizer import XLNetTokenizer

MASK = "<mask>"

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Guess:
    """One piece for a mask, with its probability given the text and the masks filled before."""

    piece: str
    probability: float


def load(model_dir: str) -> tuple[XLNetPretrainer, XLNetTokenizer]:
    """Loads a pretrained model and its tokenizer.

    Args:
        model_dir: folder of a run, or of released weights (the original's, Hugging Face's) with their
        spiece.model.

    Raises:
        UserError: the folder holds no such model, or another model's tokenizer.
        FileNotFoundError: there is no such folder.
    """
    source = Pretrained(model_dir)
    [settings] = source.options({}, XLNetEncoder)
    model = XLNetPretrainer(XLNetEncoder(source.config, **settings))
    source.load_into(model)
    tokenizer = XLNetTokenizer.from_pretrained(model_dir)
    if tokenizer.vocab_size != source.config.n_token:
        raise UserError(
            f"the tokenizer in {model_dir} has {tokenizer.vocab_size} pieces, the model "
            f"{source.config.n_token}: put the model's own spiece.model there."
        )
    return model, tokenizer


def fill_masks(
    model: XLNetPretrainer, tokenizer: XLNetTokenizer, text: str, top_k: int = 5
) -> list[list[Guess]]:
    """Fills each mask of a text, from left to right, with the likeliest piece.

    Args:
        model: a pretrained model.
        tokenizer: its tokenizer.
        text: has one `<mask>` or more.
        top_k: how many guesses to return for each mask.

    Returns:
        For each mask the likeliest pieces, best first.

    Raises:
        UserError: the text has no mask, or nothing but masks.
    """
    parts = [tokenizer.encode(part) for part in text.split(MASK)]
    if len(parts) < 2 or not any(parts):
        raise UserError(
            f"the text {text!r} has {len(parts) - 1} {MASK}; expected some, and some text around them."
        )
    ids = list(parts[0])
    masks = []
    for part in parts[1:]:
        masks.append(len(ids))
        ids += [special_tokens.MASK_ID, *part]
    ids += [special_tokens.SEP_ID, special_tokens.CLS_ID]

    # The text comes first in the factorization order, then the masks; SEP and CLS, last, are seen by none.
    rank = np.zeros(len(ids), np.int16)
    rank[masks] = 1 + np.arange(len(masks))
    rank[-2:] = len(masks) + 1
    type_ids = np.zeros(len(ids), np.int32)
    type_ids[-1] = 2
    guesses = []
    for number, position in enumerate(masks):
        outputs = model(
            {
                "input_word_ids": np.int32([ids]),
                "input_type_ids": type_ids[None],
                "permutation_rank": rank[None],
                "target_positions": np.int32([masks]),
            }
        )
        logits = outputs["logits"][0, number].numpy()
        logits[: special_tokens.EOD_ID + 1] = -np.inf  # symbols are no words
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        best = np.argsort(-probabilities, kind="stable")[:top_k]
        ids[position] = int(best[0])
        guesses.append(
            [Guess(tokenizer.id_to_piece(int(piece)), float(probabilities[piece])) for piece in best]
        )
    return guesses


def describe(text: str, guesses: Sequence[Sequence[Guess]]) -> str:
    """Returns the text and, below it, the guesses for each mask."""
    lines = [f"  {text}"]
    for number, mask in enumerate(guesses, 1):
        lines.append(
            f"    {number}. "
            + "  ".join(f"{guess.piece.strip('▁') or '▁'} {guess.probability:.0%}" for guess in mask)
        )
    return "\n".join(lines)


def main(_: Sequence[str]) -> None:
    model, tokenizer = load(FLAGS.model_dir)
    print(describe(FLAGS.text, fill_masks(model, tokenizer, FLAGS.text, FLAGS.top_k)))


if __name__ == "__main__":
    flags.DEFINE_string(
        "model_dir",
        None,
        "Folder of a pretrained model: a run's, the original's or Hugging Face's.",
        required=True,
    )
    flags.DEFINE_string("text", None, "Text with at least one <mask>.", required=True)
    flags.DEFINE_integer("top_k", 5, "Guesses to show for each mask.", lower_bound=1)
    errors.run(main)
