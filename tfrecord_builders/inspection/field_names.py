"""Names for people of the fields of records and of statistics."""

_WORDS = {
    # Statistics of the text.
    "documents": "documents taken",
    "documents_in": "documents of the corpus",
    "documents_dropped": "documents left out",
    "duplicate_documents": "documents equal to an earlier one",
    "document_lengths": "documents from {} tokens on",
    "short_documents": "documents shorter than a segment",
    "short_document_tokens": "tokens in such short documents",
    "unknown": "tokens that are <unk>",
    "unknown_rate": "share that is <unk>",
    "word_starts": "tokens that start a word",
    "word_start_rate": "share that starts a word",
    "bytes": "bytes of text",
    "dropped_marks": "letters that lose a mark",
    "nul_bytes": "NUL bytes",
    # Statistics of the records.
    "target_runs": "runs of {} targets",
    "tokens_in": "tokens read",
    "tokens_written": "tokens in records",
    "tokens_dropped": "tokens in no record",
    "tokens_by_pass": "tokens by pass and direction",
    "targets_a_record": "targets of a record",
    "targets_in_first_part": "targets in the reused part",
    "seen_by_a_target": "tokens that a target sees",
    "a_tokens": "tokens of A",
    "b_tokens": "tokens of B",
    # Columns.
    "input_ids": "tokens",
    "segment_ids": "which part a token is in",
    "permutation_rank": "position in the order",
    "next_sentence": "B follows A",
    "segment": "position in the stream",
    "document_offset": "tokens of the document before",
}


def plain(name: str) -> str:
    """Returns a readable name of a field, or of a nested field 'name.inner'."""
    name, _, inner = name.partition(".")
    words, inner = _WORDS.get(name, name.replace("_", " ")), inner.replace("_", " ")
    return words.format(inner) if "{}" in words or not inner else f"{words}: {inner}"
