"""Files of labelling tools and of fastText, read into the rows and entities that the builders know.

Label Studio   a list of tasks with data and annotations, or its small export, a list of rows (JSON_MIN)
doccano        rows whose label or labels is a list of [start, end, label], or of labels
fastText       lines `__label__positive A fine film.`
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfrecord_builders.common.rows import BadRow

FASTTEXT_LABEL = "__label__"
ENTITY_COLUMNS = ("entities", "label", "labels")  # what tools call the entities of a text


def fasttext_row(line: str) -> dict[str, Any]:
    """Reads a line of fastText: its labels, a list if there are several, and the text after them."""
    words, labels = line.split(), []
    while words and words[0].startswith(FASTTEXT_LABEL):
        labels.append(words.pop(0).removeprefix(FASTTEXT_LABEL))
    if not all(labels) or not labels:
        raise BadRow(
            f"the line begins with {line[:40]!r}, expected fastText's {FASTTEXT_LABEL}NAME and a text"
        )
    return {"text": " ".join(words), "label": labels[0] if len(labels) == 1 else labels}


def label_studio_rows(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of an export: one for each annotation, as in the small export, which stays as it is.

    A task without annotations is a row without labels; an annotated text without spans has empty lists.
    """
    rows = [row for number, task in enumerate(tasks, 1) for row in _task_rows(task, number)]
    spans = {name for row, _ in rows for name, value in row.items() if _is_spans(value)}
    return [
        {**row, **{name: [] for name in spans if annotated and not _is_spans(row.get(name))}}
        for row, annotated in rows
    ]


def _task_rows(task: Mapping[str, Any], number: int) -> Iterator[tuple[dict[str, Any], bool]]:
    if "data" not in task or "annotations" not in task:
        yield dict(task), "annotation_id" in task
        return
    data, annotations = task["data"], task["annotations"]
    if not isinstance(data, Mapping) or not isinstance(annotations, list):
        raise BadRow(f"task {number}: expected Label Studio's data, an object, and annotations, a list")
    begin = {"id": task.get("id", number), **data}
    done = [each for each in annotations if isinstance(each, Mapping) and not each.get("was_cancelled")]
    for annotation in done:
        row: dict[str, Any] = {}
        for result in annotation.get("result", []):
            name, value = result.get("from_name", ""), result.get("value", {})
            if "start" in value and "labels" in value:
                row.setdefault(name, []).append(value)
            elif choices := value.get("choices"):
                row[name] = choices[0] if len(choices) == 1 else choices
            elif "rating" in value or "number" in value:
                row[name] = value.get("rating", value.get("number"))
        yield {**begin, **row}, True  # labels count more than a column of the data of the same name
    if not done:
        yield begin, False


def _is_spans(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) and "start" in each for each in value)


def entity_fields(value: Any, text: str) -> dict[str, Any]:
    """Returns start, end and label of an entity of a text, as one of the tools spells it.

    Raises BadRow for an entity of a tool that is broken; what no tool writes is returned unchanged.
    """
    if isinstance(value, list):
        if len(value) != 3:
            raise BadRow(f"is {value}, expected doccano's [start, end, label]")
        return dict(zip(("start", "end", "label"), value))
    if not isinstance(value, Mapping):
        raise BadRow(f"is {value!r}, expected exactly start, end and label")
    if "start_offset" in value:
        return {"start": value["start_offset"], "end": value.get("end_offset"), "label": value.get("label")}
    return _label_studio_entity(value, text) if "labels" in value else dict(value)


def _label_studio_entity(value: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Reads a span of Label Studio, which counts the units of UTF-16, as browsers do."""
    labels, (start, end) = value["labels"], (value.get("start"), value.get("end"))
    if not isinstance(labels, list) or len(labels) != 1:
        raise BadRow(f"has Label Studio's labels {labels}, expected a list of one")
    quoted = value.get("text")
    if type(start) is int and type(end) is int and isinstance(quoted, str):
        units = text.encode("utf-16-le")
        before, inside = units[: 2 * start], units[2 * start : 2 * end]
        if inside.decode("utf-16-le", "replace") == quoted:
            start = len(before.decode("utf-16-le", "replace"))
            end = start + len(quoted)
        elif text[start:end] != quoted:  # spans that a program has added count characters
            raise BadRow(
                f"is {quoted!r} by Label Studio's text, but characters {start} to {end} of the row's text "
                f"are {text[start:end]!r}: export the text that was annotated"
            )
    return {"start": start, "end": end, "label": labels[0]}
