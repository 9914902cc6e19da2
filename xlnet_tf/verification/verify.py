"""Checks pretrained weights, from their files to what they make of a text."""

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from xlnet_tf import checkpoints, files, hub
from xlnet_tf.checkpoints import Checkpoint, names
from xlnet_tf.checkpoints.model_card import TOKENIZER_FILE
from xlnet_tf.errors import UserError
from xlnet_tf.generation.scoring import ORDERS
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import SYMBOLS, UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.tokenizer_json import TOKENIZER_JSON_FILE
from xlnet_tf.verification import paragraphs, published, statistics
from xlnet_tf.verification.losses import ParagraphLosses
from xlnet_tf.verification.published import Published
from xlnet_tf.verification.repairs import find_repairs
from xlnet_tf.verification.statistics import Statistics

NAMES = (
    "files", "variables", "architecture", "tokenizer", "token ids", "values", "structure", "frequencies",
    *ORDERS, "orders agree", "context", "places", "continuation",
)  # fmt: skip
# docs/get-weights.md says where these come from.
MOST_PIECES, FEWEST_PIECES = 192, 60  # of a paragraph
_MOST_UNKNOWN = 0.05
_OF_GUESSING, _OF_BLIND = 0.9, 0.9  # a trained model's loss, as a part of that by chance and without context
_APART = 0.35  # nats between orders
_GAIN = 0.05, 0.02  # nats, and parts of the loss, that a change of weights may gain
_AGREEING = 0.9  # of a published continuation
MEMORY = 256  # tokens, more than the prompt and continuation that are published
_LISTED = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: one of NAMES.
        passed: whether what was found is expected; None: not checked.
        found: what was found, or why nothing was checked.
        expected: what is expected.
    """

    name: str
    passed: bool | None
    found: str
    expected: str = ""


@dataclasses.dataclass(frozen=True)
class Verification:
    """What the checks of pretrained weights found.

    Attributes:
        source: where the weights came from.
        release: the released model that they were taken for; None: of unknown origin.
        checks: one for each of NAMES.
    """

    source: str
    release: str | None
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def table(self) -> str:
        """Returns the checks for a person, a line each, and what is expected below it."""
        lines = [f"{self.source}, {f'taken for {self.release}' if self.release else 'not a known release'}"]
        for check in self.checks:
            outcome = {True: "pass", False: "FAIL", None: "-"}[check.passed]
            lines.append(f"  {outcome:<6}{check.name:<15}{check.found}")
            if check.expected:
                lines.append(f"{'':23}expected {check.expected}")
        failed = sum(check.passed is False for check in self.checks)
        return "\n".join([*lines, f"{failed} of {len(NAMES)} checks FAILED" if failed else "no check failed"])


def verify_pretrained(path: str | os.PathLike, text: str | None = None) -> Verification:
    """Checks pretrained weights: files, variables, values, tokenizer, published numbers and losses.

    Args:
        path: as `checkpoints.open_checkpoint` takes it, a name included; with spiece.model next to the
            weights.
        text: a paragraph of FEWEST_PIECES pieces or more in the model's language; None: a bundled one,
            English or Chinese.

    Returns:
        What was found; `passed` and `table()` sum it up.

    Raises:
        UserError: the name cannot be fetched.
        FileNotFoundError: there is nothing at the path.

    Example:
        >>> print(verify_pretrained("xlnet_cased_L-12_H-768_A-12").table())
    """
    source, release = hub.locate(path).source, None
    made: list[Check] = []
    try:
        opened = Pretrained(path)
        release = published.find(source, opened.config, _fingerprint(opened.checkpoint))
        for check in _checks(opened, release, text):
            made.append(check)  # one by one: what was found before an error counts
    except UserError as error:
        made.append(Check(NAMES[len(made)], False, str(error)))
    made += [Check(name, None, "not checked: see above") for name in NAMES[len(made) :]]
    return Verification(source, release and release.names[0], tuple(made))


def _fingerprint(checkpoint: Checkpoint) -> str | None:
    path = epath.Path(checkpoint.path_of(TOKENIZER_FILE))
    return files.sha256(path) if path.exists() else None


def _checks(source: Pretrained, release: Published | None, text: str | None) -> Iterator[Check]:
    """Yields the checks in the order of NAMES, until one fails that the others build on."""
    checkpoint, config = source.checkpoint, source.config
    yield Check("files", True, f"{checkpoint.path} ({checkpoint.format})")
    variables = _variables(checkpoint)
    yield variables
    differences = published.differences(config, release.config) if release else []
    sizes = f"{config.n_layer} layers of {config.d_model}, {config.n_head} heads, {config.ff_activation}"
    if release:
        yield Check("architecture", not differences, "; ".join(differences) or sizes, "that of the release")
    else:
        yield Check("architecture", None, f"{sizes}; not checked: not a known release")
    tokenizer = source.load_tokenizer()
    has_file = (epath.Path(checkpoint.path).parent / TOKENIZER_FILE).exists()
    yield _tokenizer(tokenizer, config.n_token, release, has_file)
    paragraph = paragraphs.choose(tokenizer) if text is None else text
    ids = np.array(tokenizer.encode(paragraph)[:MOST_PIECES])
    yield _token_ids(tokenizer, ids, release)
    if not variables.passed or tokenizer.vocab_size != config.n_token:
        return
    yield from _statistics(Statistics(checkpoint.arrays, tokenizer))
    if len(ids) < FEWEST_PIECES:
        raise UserError(
            f"the text has {len(ids)} pieces; expected at least {FEWEST_PIECES}: give a longer one"
        )
    options = {"memory_len": MEMORY, "uniform_when_blind": False}
    model = XLNetPretrainer.from_pretrained(source, **options)
    yield from _losses(ParagraphLosses(model, ids), tokenizer, ids, release if text is None else None)
    yield _continuation(model, release)


def _variables(checkpoint: Checkpoint) -> Check:
    coverage = checkpoints.check(checkpoint)
    problems = [coverage.problems()] * (not coverage.complete)
    if lacking := [n for n in (names.LANGUAGE_MODEL_HEAD, names.QUERY_START) if n not in coverage.loaded]:
        problems.append(f"without {' and '.join(lacking)}: fine-tuned weights cannot be checked")
    weights = sum(map(math.prod, coverage.loaded.values()))
    found = "; ".join(problems) or f"{len(coverage.loaded)} variables, {weights:,} weights"
    return Check("variables", not problems, found, "all of a pretrained model of this architecture")


def _tokenizer(tokenizer: XLNetTokenizer, n_token: int, release: Published | None, has_file: bool) -> Check:
    found, expected = f"{tokenizer.vocab_size:,} pieces", f"{n_token:,} pieces, as the weights have"
    passed = tokenizer.vocab_size == n_token
    if not has_file:
        found += f", of {TOKENIZER_JSON_FILE}: no sha256 to compare"
    elif release:
        found += f", sha256 {tokenizer.fingerprint}"
        expected += f", sha256 {release.tokenizer}"
        passed &= tokenizer.fingerprint == release.tokenizer
    return Check("tokenizer", passed, found, expected)


def _token_ids(tokenizer: XLNetTokenizer, ids: np.ndarray, release: Published | None) -> Check:
    if release and release.ids:
        text, published_ids = release.ids
        found = tokenizer.encode(text)
        passed = found == [*published_ids]
        return Check("token ids", passed, f"{found} for {text!r}", f"{[*published_ids]}")
    if not len(ids):
        return Check("token ids", None, "not checked: the text has no pieces")
    unknown = float(np.mean(ids == UNK_ID))
    found = f"{unknown:.1%} of the text's {len(ids)} pieces are unknown"
    advice = f"at most {_MOST_UNKNOWN:.0%}; of a model in another language, check a text in that language"
    return Check("token ids", unknown <= _MOST_UNKNOWN, found, advice)


def _statistics(found: Statistics) -> Iterator[Check]:
    problems = {
        "all numbers are the same, or all of a row zero, in": found.constant,
        "the same as another layer's:": found.repeated,
        f"{statistics.MOST_SCALE:g} times larger or smaller than in other layers:": found.unscaled,
        "gains all 1, or negative:": found.untrained_norms,
    }
    lines = [f"{what} {_few(names_)}" for what, names_ in problems.items() if names_]
    yield Check(
        "values",
        not lines,
        "; ".join(lines) or "finite, no constant and no repeated array, LayerNorms trained",
    )
    if found.large:
        random = f"{len(found.unstructured)} of {found.large} kernels look random"
        yield Check(
            "structure",
            not found.unstructured,
            f"{random}: {_few(found.unstructured)}" if found.unstructured else random,
            f"singular values above {statistics.LEAST_STRUCTURE:g} of a random matrix' largest",
        )
    else:
        yield Check("structure", None, "not checked: the kernels are too small")
    yield Check(
        "frequencies",
        found.correlation >= statistics.LEAST_CORRELATION,
        f"embeddings follow the frequencies of pieces with a rank correlation of {found.correlation:.2f}",
        f"at least {statistics.LEAST_CORRELATION:g}",
    )


def _losses(
    losses: ParagraphLosses, tokenizer: XLNetTokenizer, ids: np.ndarray, release: Published | None
) -> Iterator[Check]:
    least, most = 0.0, _OF_GUESSING * _loss_of_guessing(tokenizer, ids)
    if release:
        least, most = release.losses
    found = {order: losses.of_order(order) for order in ORDERS}
    for order, loss in found.items():
        yield Check(
            order, least <= loss <= most, f"loss {loss:.3f}", f"{least:.2f} to {most:.2f} nats a piece"
        )
    apart = max(found.values()) - min(found.values())
    yield Check("orders agree", apart <= _APART, f"losses {apart:.3f} apart", f"at most {_APART:g} nats")
    blind = min(losses.without_context(), losses.with_shuffled_context())
    yield Check(
        "context",
        found["random"] <= _OF_BLIND * blind,
        f"loss {found['random']:.3f}; {blind:.3f} where the context is hidden or shuffled",
        f"at most {_OF_BLIND:g} of that",
    )
    loss, repairs = find_repairs(losses, losses.model.encoder.config)
    allowed, gain = max(_GAIN[0], _GAIN[1] * loss), loss - repairs[0].loss
    yield Check(
        "places",
        gain <= allowed,
        f"of {len(repairs)} changes the best gains {gain:.3f}: {repairs[0].what}",
        f"at most {allowed:.3f} nats: trained weights only get worse if moved, negated or removed",
    )


def _loss_of_guessing(tokenizer: XLNetTokenizer, ids: np.ndarray) -> float:
    """Returns the loss of guessing all pieces alike, or as often as the tokenizer has seen them, if less."""
    scores = tokenizer.piece_table.scores
    usual = np.arange(len(scores)) >= len(SYMBOLS)
    by_frequency = np.log(np.exp(scores[usual]).sum()) - scores[ids[usual[ids]]].mean()
    return min(math.log(len(scores)), float(by_frequency))


def _continuation(model: XLNetPretrainer, release: Published | None) -> Check:
    if not release or not release.continuation:
        return Check("continuation", None, "not checked: nobody has published one of this model")
    prompt, continuation = release.continuation
    count = published.agreeing_pieces(model, prompt, continuation)
    found = f"{count} of {len(continuation)} published pieces are the likeliest"
    least = math.ceil(_AGREEING * len(continuation))
    return Check("continuation", count >= least, found, f"at least {least}")


def _few(items: Sequence[str]) -> str:
    return ", ".join(items[:_LISTED]) + f" and {len(items) - _LISTED} more" * (len(items) > _LISTED)
