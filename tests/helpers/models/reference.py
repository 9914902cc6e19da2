"""XLNet in plain float64 numpy, one pair of tokens at a time: slow, obvious, and independent of the model.

It follows the paper's equations and the original's conventions, and serves to check the settings that
no numeric fixture of the original covers.
"""

import math

import numpy as np


def layer_norm(x, gamma, beta):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def activation(name, x):
    if name == "relu":
        return np.maximum(x, 0)
    if name == "gelu_erf":
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def encode_distance(distance, d_model):
    frequencies = [1 / 10000 ** (2 * k / d_model) for k in range(d_model // 2)]
    return np.array(
        [math.sin(distance * f) for f in frequencies] + [math.cos(distance * f) for f in frequencies]
    )


def attend(
    weights, config, options, queries, keys, places, key_places, segments, key_segments, visible, direction
):
    """Attention of one row: queries [Q, D] at `places` over keys [K, D]; `visible` [Q][K]."""
    attended = np.zeros((len(queries), config.d_model))
    for q, place in enumerate(places):
        for head in range(config.n_head):
            project = {
                name: weights[name][:, head] for name in ("query", "key", "value", "position", "output")
            }
            query = queries[q] @ project["query"]
            scores = np.zeros(len(keys))
            for k, key in enumerate(keys):
                distance = place - key_places[k]
                if options["clamp_len"] > 0:
                    distance = np.clip(distance, -options["clamp_len"], options["clamp_len"])
                position_key = encode_distance(direction * distance, config.d_model) @ project["position"]
                scores[k] = (query + weights["content_bias"][head]) @ (key @ project["key"])
                scores[k] += (query + weights["position_bias"][head]) @ position_key
                if segments is not None:
                    differs = int(segments[q] != key_segments[k])
                    embedding = weights["segment_embedding"][differs, head]
                    scores[k] += (query + weights["segment_bias"][head]) @ embedding
            scores /= math.sqrt(config.d_head)
            seen = np.array(visible[q], bool)
            if not seen.any():
                continue  # a blind query attends to nothing
            probabilities = np.where(seen, np.exp(scores - scores[seen].max()), 0)
            probabilities /= probabilities.sum()
            attended[q] += project["output"] @ (probabilities @ (keys @ project["value"]))
    return attended


def sees(options, row, i, j, itself):
    """Whether the token at place i may see place j, of memory if below 0; `itself` adds the diagonal."""
    if itself and i == j:
        return True
    if j < 0 and "memory_mask" in row and not row["memory_mask"][j]:
        return False
    if options["attention_type"] == "uni":
        key = j + (row["memory"].shape[1] if "memory" in row else 0)
        if j > i or options["same_length"] and key < min(i, len(row["input_word_ids"])):
            return False
    if j < 0:
        return True
    if "input_mask" in row and not row["input_mask"][j]:
        return False
    if "rank" in row:
        rank = row["rank"]
        return rank[j] < rank[i] or (i not in row["target_positions"] and rank[j] == rank[i])
    return True


def encode(weights, config, options, row):
    """Runs one row of a batch.

    Args:
        weights: see `read_weights`.
        options: attention_type, same_length, clamp_len, memory_len, reuse_len.
        row: input_word_ids [T], and optionally input_mask, input_type_ids, direction, rank,
            target_positions, memory [L, M, D], memory_mask [M].

    Returns:
        sequence_output [T, D], query_output [P, D] or None, next_memory [L, M', D].
    """
    length = len(row["input_word_ids"])
    memory, targets, types = (row.get(name) for name in ("memory", "target_positions", "input_type_ids"))
    slots = 0 if memory is None else memory.shape[1]
    key_places = range(-slots, length)

    content = weights["word_embedding"][row["input_word_ids"]]
    content_visible = [[sees(options, row, i, j, True) for j in key_places] for i in range(length)]
    query = query_visible = None
    if targets is not None:
        query = np.repeat(weights["mask_embedding"][None], len(targets), 0)
        query_visible = [[t >= 0 and sees(options, row, t, j, False) for j in key_places] for t in targets]
    key_types = None if types is None else [0] * slots + list(types)
    next_memory = []
    for index, layer in enumerate(weights["layers"]):
        fresh = content[: options["reuse_len"]]
        if memory is not None:
            fresh = np.concatenate([memory[index], fresh])
        next_memory.append(fresh[-options["memory_len"] :] if options["memory_len"] else fresh[:0])
        keys = content if memory is None else np.concatenate([memory[index], content])

        def block(stream, places, stream_types, visible, layer=layer, keys=keys):
            attended = attend(
                layer, config, options, stream, keys, places, key_places, stream_types, key_types, visible,
                row.get("direction", 1),
            )  # fmt: skip
            stream = layer_norm(stream + attended, *layer["attention_norm"])
            hidden = activation(config.ff_activation, stream @ layer["inner"][0] + layer["inner"][1])
            return layer_norm(
                stream + hidden @ layer["outer"][0] + layer["outer"][1], *layer["feed_forward_norm"]
            )

        if query is not None:
            query_types = None if types is None else [types[max(t, 0)] for t in targets]
            query = block(query, [max(t, 0) for t in targets], query_types, query_visible)
        content = block(content, range(length), types, content_visible)
    return content, query, np.stack(next_memory)


def read_weights(encoder):
    """Reads a model's weights into the reference's dicts."""

    def layer(block):
        attention, feed_forward = block.attention, block.feed_forward
        values = {
            name: getattr(attention, f"{name}_kernel")
            for name in ("query", "key", "value", "position", "output")
        }
        values |= {
            name: getattr(attention.biases, name)
            for name in ("content_bias", "position_bias", "segment_bias")
        }
        values["segment_embedding"] = attention.segment_embedding
        values = {name: variable.numpy().astype(np.float64) for name, variable in values.items()}
        for name, norm in (
            ("attention_norm", block.attention_norm),
            ("feed_forward_norm", block.feed_forward_norm),
        ):
            values[name] = (norm.gamma.numpy().astype(np.float64), norm.beta.numpy().astype(np.float64))
        for name, dense in (("inner", feed_forward.inner), ("outer", feed_forward.outer)):
            values[name] = (dense.kernel.numpy().astype(np.float64), dense.bias.numpy().astype(np.float64))
        return values

    return {
        "word_embedding": encoder.word_embedding.numpy().astype(np.float64),
        "mask_embedding": encoder.mask_embedding.numpy().astype(np.float64),
        "layers": [layer(block) for block in encoder.blocks],
    }
