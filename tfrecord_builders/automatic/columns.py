"""Finds which task a table is for, by the names of its columns."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from xlnet_tf.errors import UserError

# What columns are usually called, the likeliest name first. The keys, with _column, are the builders' flags.
USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": (
        *("text", "sentence", "review", "review_text", "content", "body", "comment", "message", "tweet"),
        *("post", "headline", "description", "utterance", "document", "title", "question"),
    ),
    "label": (
        *("label", "labels", "class", "category", "sentiment", "target", "topic", "intent", "emotion"),
        *("polarity", "rating", "stars", "score", "spam", "is_spam", "gold_label", "y"),
    ),
    "text_a": ("text_a", "text1", "sentence1", "sentence_a", "question1", "premise", "question", "text"),
    "text_pair": ("text_b", "text2", "sentence2", "sentence_b", "question2", "hypothesis", "sentence"),
    "context": ("context", "passage", "paragraph", "article"),
    "question": ("question.stem", "question", "query"),
    "answers": ("answers", "answer", "answer_text"),
    "options": ("options", "choices.text", "question.choices", "choices", "endings", "ending0"),
    "answer": ("answer", "answerkey", "label", "correct", "correct_answer"),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "ner_tags", "pos_tags", "upos", "labels", "ner", "pos"),
    "query": ("query", "question"),
    "passage": ("passage", "document", "answer", "reply", "candidate"),
    "relevance": ("relevance", "relevant", "label", "score"),
}


@dataclasses.dataclass(frozen=True)
class Roles:
    """What a task's columns are for: those that it needs, and those that it may have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


# By the name of a task or a kind of one; of two that fit, the one with more columns counts.
ROLES: Mapping[str, Roles] = {
    "classification": Roles(("text", "label")),
    "pairs": Roles(("text_a", "text_pair", "label")),
    "question_answering": Roles(("context", "question", "answers")),
    "multiple_choice": Roles(("options", "answer"), ("context", "question")),
    "tagging": Roles(("tokens", "tags")),
    "ranking": Roles(("query", "passage", "relevance")),
}
KINDS = ("classification", "multi_label", "regression")  # of labels of texts
TASKS = (*KINDS, *(name for name in ROLES if name not in ("classification", "pairs")))


@dataclasses.dataclass(frozen=True)
class Found:
    """A task, or "pairs", and the column of each role."""

    task: str
    columns: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.task} ({', '.join(self.columns.values())})"


def check_given(task: str | None, given: Mapping[str, str]) -> None:
    """Raises UserError for a task or a role that does not exist, as Python code may give."""
    if task not in (None, *TASKS):
        raise UserError(f"task is {task!r}; expected one of {', '.join(TASKS)}")
    roles = [role for role in USUAL_NAMES if role != "text_a"]
    if not isinstance(given, Mapping) or not given.keys() <= {*roles}:
        raise UserError(f"columns is {given!r}; expected a column's name by its role: {', '.join(roles)}")


def find(source: str, columns: Sequence[str], task: str | None, given: Mapping[str, str]) -> Found:
    """Returns the task, one of TASKS if given, and the columns of a table, which messages call `source`.

    `columns` are all that it has, `given` those of roles, as flags name them.
    """
    for role, column in given.items():
        if column not in columns:
            raise UserError(
                f"{source} has no column {column!r}, only {', '.join(columns)}: name the right one with "
                f"--{role}_column"
            )
    fits = list(filter(None, (_fit(name, columns, given) for name in _tasks_named(task))))
    largest = [
        fit
        for fit in fits
        if not any(set(fit.columns.values()) < set(other.columns.values()) for other in fits)
    ]
    if len({_public(fit.task) for fit in largest}) > 1:
        listed = " or ".join(map(str, largest))
        flags = " or ".join(f"--task={_public(fit.task)}" for fit in largest)
        raise UserError(f"{source} may be for {listed}: give {flags}")
    if not largest:
        raise UserError(_missing(source, columns, task, given))
    return largest[0]


def _tasks_named(task: str | None) -> Iterable[str]:
    if task is None:
        return ROLES
    return ("classification", "pairs") if task in KINDS else (task,)


def _public(task: str) -> str:
    return "classification" if task == "pairs" else task


def _fit(task: str, columns: Sequence[str], given: Mapping[str, str]) -> Found | None:
    """Returns a task with its columns, if all that it needs are there and it uses all that are given."""
    roles = ROLES[task]
    # The text of a pair has the flag of a single one.
    if task == "pairs" and "text" in given:
        given = {"text_a": given["text"], **{r: name for r, name in given.items() if r != "text"}}
    if not given.keys() <= {*roles.needed, *roles.optional}:
        return None
    found: dict[str, str] = {}
    for role in (*roles.needed, *roles.optional):
        taken = {*found.values(), *given.values()}
        column = given.get(role) or usual(role, [name for name in columns if name not in taken])
        if column:
            found[role] = column
        elif role in roles.needed:
            return None
    return Found(task, found)


def usual(role: str, columns: Sequence[str]) -> str:
    """Returns the column that is called what the role's usually is; "" if there is none."""
    lower = {name.lower(): name for name in reversed(columns)}
    return next((lower[name] for name in USUAL_NAMES[role] if name in lower), "")


def _missing(source: str, columns: Sequence[str], task: str | None, given: Mapping[str, str]) -> str:
    """Says which columns must be named, for the task or for the one that texts most often are for."""
    needed = list(ROLES["classification" if task is None or task in KINDS else task].needed)
    if len(columns) == 1:
        expected = f"expected one each for {' and '.join(needed)}: add what is missing"
        return f"{source} has only the column {columns[0]!r}, {expected}"
    lacking = [role for role in needed if role not in given and not usual(role, columns)] or needed
    other = "" if task else f", or another task with --task ({', '.join(TASKS)})"
    return (
        f"{source} has the columns {', '.join(columns)}: which has the {' and which the '.join(lacking)}? "
        f"Say so with {' and '.join(f'--{role}_column' for role in lacking)}{other}"
    )
