"""Models by name, from the Hugging Face hub or the original's releases, as local folders.

Begin with locating.py: everything that takes a model's path calls it first. releases.py has the table of
released models, and fetches the original's archives.
"""

from xlnet_tf.hub.locating import (
    EXPECTED,
    PRETRAINED_FLAG_HELP,
    Located,
    commit_of_data_set,
    did_you_mean,
    locate,
    not_there,
    require,
    unread_tokenizer,
)

__all__ = [
    "EXPECTED",
    "PRETRAINED_FLAG_HELP",
    "Located",
    "commit_of_data_set",
    "did_you_mean",
    "locate",
    "not_there",
    "require",
    "unread_tokenizer",
]
