"""What others have published of the released models: the facts that weights and tokenizers are compared with.

No released weights could be reached when this was written. Tokenizers, token ids and the continuation are
exact; the ranges of losses are estimates that say where they come from.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

# Source: test_lm_generate_xlnet_base_cased in transformers' test_modeling_xlnet.py: what
# xlnet-base-cased continues the text of these pieces with, taking the likeliest piece each time.
_PROMPT = """
67 2840 19 18 1484 20 965 29077 8719 1273 21 45 273 17 10 15048 28 27511 21 4185 11 41 2444 9 32 1025 20
8719 26 23 673 966 19 29077 20643 27511 20822 20643 19 17 6616 17511 18 8978 20 18 777 9 19233 1527 17669
19 24 673 17 28756 150 12943 4354 153 27 442 37 45 668 21 24 256 20 416 22 2771 4901 9 12943 4354 153 51
24 3004 21 28142 23 65 20 18 416 34 24 2958 22947 9 1177 45 668 3097 13768 23 103 28 441 148 48 20522 19
12943 4354 153 12860 34 18 326 27 17492 684 21 6709 9 8585 123 266 19 12943 4354 153 6872 24 3004 20 18
9225 2198 19 12717 103 22 401 24 6348 9 12943 4354 153 1068 2768 2286 19 33 104 19 176 24 9313 19 20086
28 45 10292 9 4 3
"""
_CONTINUATION = """
19 12943 4354 153 27 442 22 2771 4901 9 69 27 442 22 2771 24 11335 20 18 9225 2198 9 69 27 442 22 2771 24
11335 20 18 9225 2198 9 69 27 442 22 2771
"""
# Paragraphs written for this project; the losses of a model are computed on one of them.
ENGLISH_TEXT = """\
The town council met on Tuesday evening to decide what should happen to the old railway station. The \
building has been empty since the last train left more than thirty years ago, and most people in the \
town agree that it cannot stay as it is. Some members want to turn it into a library, because the \
present one is too small and has no room for children. Others say that the money should be spent on \
the road to the hospital, which is closed every time the river rises. The mayor told reporters after \
the meeting that no decision had been made. "We have heard both sides," she said, "and we will look \
at the costs again before the end of the year." A group of local business owners has offered to pay \
for a new roof if the council agrees to keep the tower. The next meeting will be held in March, and \
the public is invited to attend.
"""
CHINESE_TEXT = """\
星期二晚上，镇议会开会讨论旧火车站的去留。三十多年前最后一班列车离开以后，这座建筑一直空着，镇上大多数人都认为不能再这样下去。\
有的议员想把它改建成图书馆，因为现在的图书馆太小，没有地方给孩子们看书。也有人说，这笔钱应该用来修通往医院的公路，每次河水上涨，\
那条路都要关闭。会后，镇长告诉记者，目前还没有作出决定。她说：“我们已经听取了双方的意见，年底以前还会再核算一次费用。”\
当地的一些企业主表示，如果议会同意保留钟楼，他们愿意出钱修建新的屋顶。下一次会议将在三月举行，欢迎市民参加。
"""

CASED = "1f8c1c0bc2854d1af911a8550288c1258af5ba50277f3a5c829b98eb86fc5646"
CHINESE = "830e1e16012640ca728fd681f0077269cf5ba629c609951ecff7e1f7b5d497ae"
_FOX = (
    "The quick brown fox jumps over the lazy dog.",
    (32, 2049, 3442, 17, 13894, 3380, 23, 95, 18, 17634, 2288, 9),
)


@dataclasses.dataclass(frozen=True)
class Published:
    """What is known of a released model."""

    names: tuple[str, ...]
    config: XLNetConfig
    tokenizer: str
    losses: tuple[float, float]  # least and most loss on the bundled paragraph, in nats a piece
    ids: tuple[str, tuple[int, ...]] | None = None  # a text and its pieces
    # Pieces of a text, and what the model continues it with; None: nobody has published any
    continuation: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


# The Chinese models ended their training at losses of 1.51 (base) and 1.33 (mid): issue 23 of
# ymcui/Chinese-XLNet. Nobody has published one of the English models. The ranges reach from half of these to
# more than twice as much, because the paragraph is short and of another kind of text.
PUBLISHED = (
    Published(
        ("cased_L-12_H-768_A-12", "xlnet/xlnet-base-cased"),
        XLNetConfig.preset("base"),
        CASED,
        (0.7, 3.5),
        _FOX,
        (_numbers(_PROMPT), _numbers(_CONTINUATION)),
    ),
    Published(
        ("cased_L-24_H-1024_A-16", "xlnet/xlnet-large-cased"),
        XLNetConfig.preset("large"),
        CASED,
        (0.6, 3.2),
        _FOX,
    ),
    Published(("hfl/chinese-xlnet-base",), XLNetConfig.preset("base"), CHINESE, (0.7, 3.2)),
    Published(("hfl/chinese-xlnet-mid",), XLNetConfig.preset("base", n_layer=24), CHINESE, (0.6, 3.0)),
)


def find(source: str, config: XLNetConfig, tokenizer: str | None) -> Published | None:
    """Returns what is known of a model, by its name, or by its tokenizer's sha256 and its sizes."""
    for release in PUBLISHED:
        if any(name in source for name in release.names):
            return release
    same = (
        p for p in PUBLISHED if p.tokenizer == tokenizer and not differences(config, p.config, sizes=True)
    )
    return next(same, None)


def differences(config: XLNetConfig, expected: XLNetConfig, sizes: bool = False) -> list[str]:
    """Returns in what an architecture, or its sizes alone, differs, as "n_layer is 6, not 12"."""
    fields = ("n_token", "n_layer", "d_model", "d_inner") if sizes else expected.to_dict()
    own, wanted = config.to_dict(), expected.to_dict()
    return [
        f"{name} is {own[name]}, not {wanted[name]}"
        for name in fields
        if str(own[name]).removesuffix("_erf") != str(wanted[name])
    ]


def choose_text(tokenizer: XLNetTokenizer) -> str:
    """Returns the paragraph with the fewest unknown pieces; if none has any, that of the fewest pieces."""

    def cost(text: str) -> tuple[float, float]:
        ids = tokenizer.encode(text)
        return round(ids.count(UNK_ID) / len(ids), 1), len(ids) / len(text.encode())

    return min((ENGLISH_TEXT, CHINESE_TEXT), key=cost)


def agreeing_pieces(model: XLNetPretrainer, prompt: tuple[int, ...], continuation: tuple[int, ...]) -> int:
    """Counts the pieces of a published continuation that are the likeliest after those before them.

    Each token sees what it saw in transformers' `generate`, which reads the last two tokens again at each
    step, and has all before them in the memory, which must be as long as the text.
    """
    agreeing, memory, tokens = 0, None, prompt
    for piece in continuation:
        features = {
            "input_word_ids": tf.constant([[*tokens, 0]]),  # the last one is to be predicted
            "permutation_rank": tf.constant([[0] * len(tokens) + [1]]),
            "target_positions": tf.constant([[len(tokens)]]),
        }
        features |= {} if memory is None else {"memory": memory}
        encoded = model.encoder(features, training=False)
        agreeing += int(np.argmax(model.logits(encoded["query_output"])) == piece)
        memory, tokens = encoded["next_memory"][:, :, :-2], (tokens[-1], piece)
    return agreeing
