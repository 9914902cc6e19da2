"""The paragraphs that losses are computed on, written for this project."""

from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

ENGLISH = """\
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
CHINESE = """\
星期二晚上，镇议会开会讨论旧火车站的去留。三十多年前最后一班列车离开以后，这座建筑一直空着，镇上大多数人都认为不能再这样下去。\
有的议员想把它改建成图书馆，因为现在的图书馆太小，没有地方给孩子们看书。也有人说，这笔钱应该用来修通往医院的公路，每次河水上涨，\
那条路都要关闭。会后，镇长告诉记者，目前还没有作出决定。她说：“我们已经听取了双方的意见，年底以前还会再核算一次费用。”\
当地的一些企业主表示，如果议会同意保留钟楼，他们愿意出钱修建新的屋顶。下一次会议将在三月举行，欢迎市民参加。
"""


def choose(tokenizer: XLNetTokenizer) -> str:
    """Returns the paragraph with the fewest unknown pieces; if none has any, that of the fewest pieces."""

    def cost(text: str) -> tuple[float, float]:
        ids = tokenizer.encode(text)
        return round(ids.count(UNK_ID) / len(ids), 1), len(ids) / len(text.encode())

    return min((ENGLISH, CHINESE), key=cost)
