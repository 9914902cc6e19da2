"""This project where there is no TensorFlow."""

from xlnet_tf import from_pretrained
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import train_tokenizer


def probabilities(folder, texts):
    return [list(answer["probabilities"].values()) for answer in from_pretrained(folder).answer(texts)]


def train(path, texts):
    """Trains a tokenizer, writes its model, and returns its ids of the texts."""
    tokenizer = train_tokenizer(texts, 60)  # 0.2.3 finds fewer pieces than 0.2.1
    with open(path, "wb") as file:
        file.write(tokenizer.model_proto)
    return tokenizer.encode(texts)


def encode(path, texts):
    return XLNetTokenizer(path).encode(texts)
