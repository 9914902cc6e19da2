"""Counts the operations of a training step's matrix products."""

from xlnet_tf.config import XLNetConfig


def forward_flops(
    config: XLNetConfig, batch_size: int, seq_len: int, num_predict: int, memory_len: int = 0
) -> dict[str, int]:
    """Counts the multiplications and additions of our model's matrix products, by part of the network.

    With A = N * H, K = M + T keys and R distances, for each of B examples:
        keys and values       2 * 2 K D A per layer
        a stream of Q queries 2 * 2 Q D A + 2 Q A (2 K + R + 1) + 2 * 2 Q D F per layer: queries and output,
                              scores by content, distance and segment, sums of values, feed-forward network
        logits                2 P D V
    The content stream has Q = T and skips the last layer, where only its keys and values are read. In blocks
    of W queries it meets R = W + K distances, as on CPUs (`position_shift.block_positions`). The query stream
    has Q = P and R = T + K. The distances, half of which are the others negated, are projected once per
    batch: 2 (K + 1) D A per layer. The arguments after the config are B, T, P and M.
    """
    from xlnet_tf.layers.kernels.position_shift import block_len

    model, inner, layers = config.d_model, config.d_inner, config.n_layer
    heads = config.n_head * config.d_head
    keys = memory_len + seq_len

    def stream(queries: int, distances: int) -> int:
        projections = 2 * 2 * queries * model * heads
        attention = 2 * queries * heads * (2 * keys + distances + 1)
        return projections + attention + 2 * 2 * queries * model * inner

    return {
        "keys and values": layers * batch_size * 2 * 2 * keys * model * heads,
        "distances": layers * 2 * (keys + 1) * model * heads,
        "content stream": (layers - 1) * batch_size * stream(seq_len, block_len(seq_len) + keys),
        "query stream": layers * batch_size * stream(num_predict, seq_len + keys),
        "logits": batch_size * 2 * num_predict * model * config.n_token,
    }


def step_flops(
    config: XLNetConfig, batch_size: int, seq_len: int, num_predict: int, memory_len: int = 0
) -> int:
    """Counts the operations of a training step: a backward pass takes twice the forward pass.

    What recomputation repeats is not counted, nor is the optimizer (less than 1 per cent). Keys and values of
    the memory count as if a gradient flowed into it. The arguments are those of `forward_flops`.
    """
    return 3 * sum(forward_flops(config, batch_size, seq_len, num_predict, memory_len).values())
