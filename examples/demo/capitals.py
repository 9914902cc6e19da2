"""The short demo's task: give a transcript, which has neither capitals nor punctuation, its capitals back."""

import itertools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from examples.demo import corpus
from examples.demo.finetuning import DemoTask
from xlnet_tf import files

PASSAGES = {"train": 100, "dev": 100, "test": 400}
PASSAGE_WORDS = 60
CAPITAL, OTHER = "B-CAPITAL", "O"


class Capitals(DemoTask):
    """Which words of a passage begin with a capital? Passages are the beginnings of reviews."""

    NAME = "capitals"
    TITLE = "Which words of a transcript begin with a capital?"
    TASK = "tagging"
    METRIC = "F1"
    LABELS = f"{PASSAGES['train']} passages of {PASSAGE_WORDS} words"
    BASELINE = "logistic regression"
    EXAMPLE = "i saw this movie with james brown in new york"

    def write(self, corpora, folder):
        folder.mkdir(parents=True, exist_ok=True)
        passages = _passages(corpora)
        for split, count in PASSAGES.items():
            lines = []
            for words in itertools.islice(passages, count):
                tags = [CAPITAL if word[0].isupper() else OTHER for word in words]
                lines.append(json.dumps({"tokens": [word.lower() for word in words], "tags": tags}))
            files.write(folder / f"{split}.jsonl", "\n".join(lines) + "\n")

    def make_examples(self, folder, tokenizer, examples):
        from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
        from xlnet_tf.records import example_report

        splits = {split: (str(folder / f"{split}.jsonl"),) for split in PASSAGES}
        options = TaggingOptions(
            tokenizer=str(tokenizer), output_dir=str(examples), seq_len=128, lower=True, **splits
        )
        print(example_report.summary(build_tagging(options)))

    def baseline(self, folder):
        """Logistic regression on each word and its neighbours, its strength chosen on the dev passages."""
        from sklearn.feature_extraction import DictVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import f1_score

        vectorizer = DictVectorizer()
        (train, tags), dev, test = (_words(folder / f"{split}.jsonl") for split in PASSAGES)
        features = vectorizer.fit_transform(train)
        models = [LogisticRegression(C=c, max_iter=1000).fit(features, tags) for c in (1, 10, 100)]

        def score(model, split):
            words, tags = split
            return float(
                f1_score(tags, model.predict(vectorizer.transform(words)), pos_label=CAPITAL, zero_division=0)
            )

        return score(max(models, key=lambda model: score(model, dev)), test)

    def answers(self, folder, test, predictions):
        from xlnet_tf.tasks.tagging.files import tagged_sentences

        return [
            tuple(
                " ".join(_spell(sentence.words, tags)) for tags in (None, sentence.gold, sentence.predicted)
            )
            for sentence in tagged_sentences(test, predictions)
        ]


def _passages(corpora: pathlib.Path) -> Iterator[list[str]]:
    """Yields the first words of each review that is not in the corpus, without punctuation around them."""
    for paragraphs, _ in corpus.unseen_reviews(corpora):
        words = corpus.words(" ".join(paragraphs))
        if len(words) >= PASSAGE_WORDS and " ".join(words).isascii():
            yield words[:PASSAGE_WORDS]


def _spell(words: Sequence[str], tags: Sequence[str] | None) -> list[str]:
    return [word.capitalize() if tag == CAPITAL else word for word, tag in zip(words, tags or words)]


def _words(path: pathlib.Path) -> tuple[list[Mapping[str, int]], list[str]]:
    """Returns the features and the tag of each word of a file: itself and two neighbours on each side."""
    features, tags = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        passage = json.loads(line)
        tags += passage["tags"]
        padded = ["<s>", "<s>", *passage["tokens"], "</s>", "</s>"]
        for at in range(2, len(padded) - 2):
            features.append({f"{shift} {padded[at + shift]}": 1 for shift in range(-2, 3)})
    return features, tags
