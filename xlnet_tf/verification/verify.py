"""Checks pretrained weights, from their files to what they predict."""

import dataclasses
import math
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from etils import epath

from xlnet_tf import checkpoints, files, hub
from xlnet_tf.checkpoints import Checkpoint, names
from xlnet_tf.checkpoints.model_card import TOKENIZER_FILE
from xlnet_tf.errors import UserError
from xlnet_tf.generation.scoring import order_ranks, token_log_probabilities
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.verification import published
from xlnet_tf.verification.published import Published

# docs/get-weights.md says where the limits come from.
NAMES = ("files", "variables", "architecture", "tokenizer", "token ids", "values", "loss", "continuation")
MOST_PIECES, FEWEST_PIECES = 192, 60  # of the paragraph
MEMORY = 256  # tokens, more than the published prompt and its continuation
_MOST_UNKNOWN = 0.05
_OF_GUESSING = 0.9  # a trained model's loss, as a part of that of pieces drawn uniformly
_AGREEING = 0.9  # of a published continuation
_READINGS, _SPAN = 6, 3  # a sixth of the tokens are targets, in spans of three, as in pretraining
_LISTED = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """One check; without `passed` nothing was checked."""

    name: str
    passed: bool | None
    found: str
    expected: str = ""


@dataclasses.dataclass(frozen=True)
class Verification:
    """What the checks of pretrained weights found, one for each of NAMES."""

    source: str
    release: str | None
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed is not False for check in self.checks)

    def table(self) -> str:
        """Returns the checks for a person, a line each, and what is expected below it."""
        lines = [f"{self.source}, {f'taken for {self.release}' if self.release else 'not a known release'}"]
        for check in self.checks:
            outcome = {True: "pass", False: "FAIL", None: "-"}[check.passed]
            lines.append(f"  {outcome:<6}{check.name:<14}{check.found}")
            if check.expected:
                lines.append(f"{'':22}expected {check.expected}")
        failed = sum(check.passed is False for check in self.checks)
        return "\n".join([*lines, f"{failed} of {len(NAMES)} checks FAILED" if failed else "no check failed"])


def verify_pretrained(path: str | os.PathLike, text: str | None = None) -> Verification:
    """Checks pretrained weights: files, variables, values, tokenizer, published numbers and the loss.

    Args:
        path: as `checkpoints.open_checkpoint` takes it; with spiece.model next to the weights.
        text: a paragraph of FEWEST_PIECES pieces or more in the model's language; None: a bundled one,
            English or Chinese.

    Example:
        >>> print(verify_pretrained("xlnet_cased_L-12_H-768_A-12").table())
    """
    source, release = hub.locate(path).source, None
    checks_made: list[Check] = []
    try:
        opened = Pretrained(path)
        release = published.find(source, opened.config, _fingerprint(opened.checkpoint))
        for check in _checks(opened, release, text):
            checks_made.append(check)  # one by one: what was found before an error counts
    except UserError as error:
        checks_made.append(Check(NAMES[len(checks_made)], False, str(error)))
    checks_made += [Check(name, None, "not checked: see above") for name in NAMES[len(checks_made) :]]
    return Verification(source, release and release.names[0], tuple(checks_made))


def paragraph_loss(model: XLNetPretrainer, ids: np.ndarray) -> float:
    """Returns a paragraph's mean loss in nats, in six readings, so that each token is a target once."""
    ids = np.asarray(ids, np.int32)
    is_target = np.arange(len(ids)) // _SPAN % _READINGS == np.arange(_READINGS)[:, None]
    features = {"input_word_ids": tf.constant(np.tile(ids, (_READINGS, 1)))}
    features["input_mask"] = tf.ones_like(features["input_word_ids"])
    ranks = order_ranks(is_target, "random", tf.zeros([_READINGS], tf.int64))
    log_probs = token_log_probabilities(model, features, tf.constant(is_target), ranks)
    return float(-tf.reduce_sum(log_probs)) / len(ids)


def _fingerprint(checkpoint: Checkpoint) -> str | None:
    path = epath.Path(checkpoint.path_of(TOKENIZER_FILE))
    return files.sha256(path) if path.exists() else None


def _checks(source: Pretrained, release: Published | None, text: str | None) -> Iterator[Check]:
    checkpoint, config = source.checkpoint, source.config
    yield Check("files", True, f"{checkpoint.path} ({checkpoint.format})")
    variables = _variables(checkpoint)
    yield variables
    sizes = f"{config.n_layer} layers of {config.d_model}, {config.n_head} heads, {config.ff_activation}"
    if release:
        differences = published.differences(config, release.config)
        yield Check("architecture", not differences, "; ".join(differences) or sizes, "that of the release")
    else:
        yield Check("architecture", None, f"{sizes}; not checked: not a known release")
    tokenizer = source.load_tokenizer()
    yield _tokenizer(tokenizer, config.n_token, release, _fingerprint(checkpoint))
    paragraph = published.choose_text(tokenizer) if text is None else text
    ids = np.array(tokenizer.encode(paragraph)[:MOST_PIECES])
    yield _token_ids(tokenizer, ids, release)
    if not variables.passed or tokenizer.vocab_size != config.n_token:
        return
    yield _values(checkpoint)
    if len(ids) < FEWEST_PIECES:
        raise UserError(
            f"the text has {len(ids)} pieces; expected at least {FEWEST_PIECES}: give a longer one"
        )
    options = {"memory_len": MEMORY, "uniform_when_blind": False}
    model = XLNetPretrainer.from_pretrained(source, **options)
    least, most = 0.0, _OF_GUESSING * math.log(config.n_token)
    if release and text is None:
        least, most = release.losses
    loss = paragraph_loss(model, ids)
    yield Check("loss", least <= loss <= most, f"{loss:.3f}", f"{least:.2f} to {most:.2f} nats a piece")
    yield _continuation(model, release)


def _variables(checkpoint: Checkpoint) -> Check:
    coverage = checkpoints.check(checkpoint)
    problems = [coverage.problems()] * (not coverage.complete)
    if lacking := [n for n in (names.LANGUAGE_MODEL_HEAD, names.QUERY_START) if n not in coverage.loaded]:
        problems.append(f"without {' and '.join(lacking)}: fine-tuned weights cannot be checked")
    weights = sum(map(math.prod, coverage.loaded.values()))
    found = "; ".join(problems) or f"{len(coverage.loaded)} variables, {weights:,} weights"
    return Check("variables", not problems, found, "all of a pretrained model of this architecture")


def _tokenizer(
    tokenizer: XLNetTokenizer, n_token: int, release: Published | None, fingerprint: str | None
) -> Check:
    found, expected = f"{tokenizer.vocab_size:,} pieces", f"{n_token:,} pieces, as the weights have"
    passed = tokenizer.vocab_size == n_token
    if fingerprint is None:
        found += f", without {TOKENIZER_FILE}: no sha256 to compare"
    elif release:
        found += f", sha256 {fingerprint}"
        expected += f", sha256 {release.tokenizer}"
        passed &= fingerprint == release.tokenizer
    return Check("tokenizer", passed, found, expected)


def _token_ids(tokenizer: XLNetTokenizer, ids: np.ndarray, release: Published | None) -> Check:
    if release and release.ids:
        text, published_ids = release.ids
        encoded = tokenizer.encode(text)
        passed = encoded == [*published_ids]
        return Check("token ids", passed, f"{encoded} for {text!r}", f"{[*published_ids]}")
    if not len(ids):
        return Check("token ids", None, "not checked: the text has no pieces")
    unknown = float(np.mean(ids == UNK_ID))
    found = f"{unknown:.1%} of the text's {len(ids)} pieces are unknown"
    advice = f"at most {_MOST_UNKNOWN:.0%}; of a model in another language, check a text in that language"
    return Check("token ids", unknown <= _MOST_UNKNOWN, found, advice)


def _values(checkpoint: Checkpoint) -> Check:
    """Looks for arrays that no training leaves: constant, with a row of zeros, or equal to another."""
    problems, seen = [], {}
    for name in checkpoint.arrays:
        value = checkpoint.arrays[name]
        has_hole = value.ndim > 1 and not value.any(axis=-1).all()  # as an interrupted download leaves it
        if has_hole or (value.size > 1 and np.ptp(value) == 0):
            problems.append(f"{name} is constant or has a row of zeros")
        elif (other := seen.setdefault(hash(value.tobytes()), name)) != name:
            problems.append(f"{name} equals {other}")
    more = f" and {len(problems) - _LISTED} more" * (len(problems) > _LISTED)
    found = "; ".join(problems[:_LISTED]) + more
    return Check("values", not problems, found or "finite, no constant and no repeated array")


def _continuation(model: XLNetPretrainer, release: Published | None) -> Check:
    if not release or not release.continuation:
        return Check("continuation", None, "not checked: nobody has published one of this model")
    prompt, continuation = release.continuation
    count = published.agreeing_pieces(model, prompt, continuation)
    found = f"{count} of {len(continuation)} published pieces are the likeliest"
    least = math.ceil(_AGREEING * len(continuation))
    return Check("continuation", count >= least, found, f"at least {least}")
