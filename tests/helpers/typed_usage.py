"""How users call the package: `make lint` checks the types that editors show; nothing runs this."""

import numpy as np
from typing_extensions import assert_type

import xlnet_tf
from xlnet_tf import (
    XLNetBackbone,
    XLNetClassifier,
    XLNetConfig,
    XLNetEncoder,
    XLNetLanguageModel,
    XLNetMultipleChoice,
    XLNetPretrainer,
    XLNetQuestionAnswering,
    XLNetRanker,
    XLNetRegressor,
    XLNetSpan,
    XLNetTokenClassifier,
    XLNetTokenizer,
)


def load_everything(path: str) -> None:
    assert_type(xlnet_tf.__version__, str)
    tokenizer = assert_type(XLNetTokenizer.from_pretrained(path), XLNetTokenizer)
    assert_type(tokenizer(["A text."], ["Another."], seq_len=16), dict[str, np.ndarray])
    text: str = tokenizer.decode(tokenizer.encode("A text."))
    print(text)
    assert_type(XLNetBackbone(XLNetConfig.preset("micro", n_layer=1), memory_len=4), XLNetEncoder)
    assert_type(XLNetClassifier.from_pretrained(path, labels=["no", "yes"]), XLNetClassifier)
    assert_type(XLNetRegressor.from_pretrained(path), XLNetRegressor)
    assert_type(XLNetQuestionAnswering.from_pretrained(path), XLNetSpan)
    assert_type(XLNetMultipleChoice.from_pretrained(path, num_choices=4), XLNetMultipleChoice)
    assert_type(XLNetRanker.from_pretrained(path, 2), XLNetRanker)
    assert_type(XLNetTokenClassifier.from_pretrained(path, labels=["O"]), XLNetTokenClassifier)
    assert_type(XLNetPretrainer.from_pretrained(path).encoder, XLNetEncoder)
    model = XLNetLanguageModel.from_pretrained(path)
    assert_type(model.generate(["A text"], max_new_tokens=2)[0].text, str)
    assert_type(model.infill(["A <mask>."], orders="easiest_first"), list[str])
