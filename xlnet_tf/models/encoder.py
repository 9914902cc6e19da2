"""XLNet's body: token ids in, contextual vectors and the memory for the next segment out."""

import functools
import numbers
from collections.abc import Mapping
from typing import Any, get_args

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.config import MOST_MEMORY, Recompute, XLNetConfig
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers import positions as positions_lib
from xlnet_tf.layers.attention import AttentionBiases
from xlnet_tf.layers.base import DropoutSeed, fold_in, normal, step_seed
from xlnet_tf.layers.block import TransformerBlock
from xlnet_tf.layers.positions import RelativePositions
from xlnet_tf.models.contexts import ContextBuilder
from xlnet_tf.models.gradient_checkpointing import recomputed
from xlnet_tf.models.loading import Pretrained, Source
from xlnet_tf.models.one_trace import differ_in_weights_only, traced_once
from xlnet_tf.models.saving import ShapeFreeModel


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class XLNetEncoder(ShapeFreeModel):
    """A stack of blocks over one stream (fine-tuning) or two (pretraining).

    Args:
        dropout: rate on embeddings, positions, sublayer results and the output.
        attention_dropout: rate on the attention probabilities.
        attention_type: "bi", every token is visible unless a mask hides it, or "uni", left to right.
        same_length: with "uni", all queries see equally many keys.
        clamp_len: largest distance that is distinguished, in tokens; -1 for no limit.
        memory_len: M, tokens of earlier segments kept in memory; 0 for none.
        reuse_len: how many tokens of a segment, from its start, go into the memory; None for all.
        initializer_range: standard deviation of the normal initializer.
        uniform_when_blind: what a target that may see nothing gets: False, no attention at all; True,
            the original's mean over all values, its own included.
        recompute: gradient checkpointing: in training, compute each block's activations again in the backward
            pass rather than keep them: a third more time for a fraction of the memory. "cheap": all but the
            products with weights, which take most of the time and the smaller part of the memory.

    Call args: a dict of
        input_word_ids: [B, T] integers.
        input_mask: [B, T], 1 for tokens and 0 for padding (optional: no padding).
        input_type_ids: [B, T] segment ids; only their equality matters (optional: no segment encoding).
        input_text_ids: [B, T], the number of each token's text, where rows hold several: it sees no other
            (optional: one text a row).
        direction: [B], +1 for text read forward, -1 for backward (optional: all forward).
        memory: [L, B, M, D], the inputs of each layer for earlier segments (optional).
        memory_mask: [B, M] bool, the slots of the memory that hold something (optional: all).
        dropout_seed: [2] int32 that all dropout of the call is derived from (optional: drawn).
        position_keys: what `position_keys()` returns for T tokens or more (optional; not in training).
        output_positions: [B, Q] integers, the tokens whose output is wanted (optional: all; with one stream).
            The last layer computes no others.
      The factorization order comes as one of
        permutation_rank: [B, T] integers, with targets (see layers.masks.permutation_visible), or
        permutation_mask: [B, T, T], 1 where token i may see token j.
      The query stream, if any, comes as one of
        target_positions: [B, P] integers, positions of the targets; -1 is an empty slot, or
        target_mask: [B, T], 1 for targets: the query stream then has the full length T.
    Call kwargs: training; query_only=True skips what only the content stream's output needs; in_blocks=True
        computes the scores of few queries at a time, so that memory grows with T and not with its square (not
        in training, and without memory, direction and permutation_mask); kernels to compute with (see
        attention_maps), None for the device's; memory_gradient=True lets gradients flow through memory, both
        into what came in and from next_memory.

    Returns: a dict of
        sequence_output: [B, T, D], or [B, Q, D] of output_positions, the content stream (absent with
            query_only).
        query_output: [B, P, D] or [B, T, D], the query stream (absent with one stream).
        encoder_outputs: list of L [B, T, D], each layer's content stream (L - 1 with query_only or
            output_positions).
        next_memory: [L, B, M', D]; M' = M, or what one segment gives where no memory came in.
            No gradient flows through it unless memory_gradient says so. Absent when memory_len is 0.
        next_memory_mask: [B, M'] bool.

    Example:
        >>> encoder = XLNetEncoder(XLNetConfig.preset("micro"))
        >>> encoder({"input_word_ids": tf.constant([[17, 4, 3]])})["sequence_output"].shape
        TensorShape([1, 3, 32])

    Source: paper sections 2.2 to 2.5; modeling.py transformer_xl. The original marks the second half
    of a batch as backward (`bi_data`); here every row has its own direction.
    """

    def __init__(
        self,
        config: XLNetConfig,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        attention_type: str = "bi",
        same_length: bool = False,
        clamp_len: int = -1,
        memory_len: int = 0,
        reuse_len: int | None = None,
        initializer_range: float = 0.02,
        uniform_when_blind: bool = False,
        recompute: Recompute = False,
        name: str = "encoder",
        **kwargs,
    ):
        if not isinstance(config, XLNetConfig):
            raise UserError(
                f"config is {short_repr(config)}; expected an XLNetConfig, such as "
                "XLNetConfig.preset('base'). For pretrained weights, write from_pretrained."
            )
        for option, rate in (("dropout", dropout), ("attention_dropout", attention_dropout)):
            if not isinstance(rate, numbers.Real) or not 0 <= rate < 1:
                raise UserError(f"{option} is {rate!r}; expected a number from 0 to less than 1.")
        if attention_type not in ("bi", "uni"):
            raise UserError(f"attention_type is {attention_type!r}; expected 'bi' or 'uni'.")
        if not 0 <= memory_len <= MOST_MEMORY:
            raise UserError(f"memory_len is {memory_len}; expected 0 (no memory) to {MOST_MEMORY} tokens.")
        if reuse_len is not None and reuse_len < 1:
            raise UserError(
                f"reuse_len is {reuse_len}; expected at least 1 token, or None for whole segments."
            )
        if recompute not in get_args(Recompute):
            raise UserError(f"recompute is {recompute!r}; expected False, True or 'cheap'.")
        super().__init__(name=name, **kwargs)
        self.config = config
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.attention_type = attention_type
        self.same_length = same_length
        self.clamp_len = clamp_len
        self.memory_len = memory_len
        self.reuse_len = reuse_len
        self.initializer_range = initializer_range
        self.uniform_when_blind = uniform_when_blind
        self.recompute = recompute
        self.tied_biases = None
        if not config.untie_r:
            self.tied_biases = AttentionBiases(config, initializer_range, name="tied_biases")
        self.blocks = [
            TransformerBlock(
                config, initializer_range, dropout, attention_dropout, self.tied_biases, name=f"layer_{layer}"
            )
            for layer in range(config.n_layer)
        ]

    @classmethod
    def from_pretrained(cls, path: Source, **options) -> Self:
        """Builds the encoder of a checkpoint, whatever heads it has, with options of the class."""
        source = Pretrained.open(path)
        [settings] = source.options(options, cls)
        encoder = cls(source.config, **settings)
        source.load_into(encoder)
        return encoder

    def build(self, input_shape=None):
        config = self.config
        with tf.name_scope(self.name):
            self.word_embedding = self.add_weight(
                "word_embedding/embeddings",
                [config.n_token, config.d_model],
                initializer=normal(self.initializer_range),
                experimental_autocast=False,  # only the rows that are read are cast
            )
            self.mask_embedding = self.add_weight(
                "mask_embedding", [config.d_model], initializer=normal(self.initializer_range)
            )
            if self.tied_biases is not None:
                with tf.name_scope(self.tied_biases.name):
                    self.tied_biases.build()
            for block in self.blocks:
                with tf.name_scope(block.name):
                    block.build([None, None, config.d_model])
        self.built = True

    def call(
        self,
        features: Mapping[str, Any],
        training=None,
        query_only: bool = False,
        in_blocks: bool = False,
        kernels: kernels_lib.Kernels | None = None,
        memory_gradient: bool = False,
    ):
        word_ids = tf.cast(features["input_word_ids"], tf.int32)
        memory, memory_mask = self._memory(features, tf.shape(word_ids)[0])
        query_len = word_ids.shape[1] or tf.shape(word_ids)[1]
        memory_len = 0 if memory is None else memory.shape[2] or tf.shape(memory)[2]
        seed = step_seed(features, training)
        output_positions = _output_positions(features)

        kernels = kernels or kernels_lib.current(training=seed is not None)
        positions, position_keys = self._positions(features, query_len, query_len + memory_len, kernels, seed)
        content_context, query_context = self._contexts(
            features, kernels, positions, query_len, memory_len, memory_mask, output_positions, in_blocks
        )
        content, query = self._embed(features, word_ids, kernels, seed)  # h [B, T, D], g [B, P, D]

        keys_only = query_only or output_positions is not None  # what the last layer's content stream is for
        layer_inputs, layer_outputs = [], []
        for layer, block_call in enumerate(self._block_calls(kernels)):
            layer_inputs.append(content)
            last = layer == len(self.blocks) - 1
            # Tokens whose output is wanted become a second stream; the others serve it as keys and values.
            if last and output_positions is not None:
                query = tf.gather(content, output_positions, batch_dims=1)
            call = functools.partial(
                block_call,
                memory=None if memory is None else memory[layer],
                positions=positions
                if position_keys is None
                else positions._replace(keys=position_keys[layer]),
                content_context=None if last and keys_only else content_context,
                query_context=query_context,
                seed=fold_in(seed, layer),
            )
            # The backward pass begins with the last layer, which is still there.
            keeps_all = not (self.recompute and training) or last
            run = call if keeps_all else recomputed(call, memory_gradient, self.recompute == "cheap")
            content, query = run(content, query)
            layer_outputs.append(content)

        outputs = {"encoder_outputs": layer_outputs[:-1] if keys_only else layer_outputs}
        if output_positions is not None:
            content, query = query, None
        if not query_only:
            output_seed = fold_in(seed, DropoutSeed.CONTENT_OUTPUT)
            outputs["sequence_output"] = kernels.dropout(content, self.dropout, output_seed)
        if query is not None:
            output_seed = fold_in(seed, DropoutSeed.QUERY_OUTPUT)
            outputs["query_output"] = kernels.dropout(query, self.dropout, output_seed)
        if self.memory_len:
            outputs.update(self._next_memory(features, layer_inputs, memory, memory_mask, memory_gradient))
        return outputs

    def position_keys(self, length: int) -> tf.Tensor:
        """Returns the feature of that name, [L, N, R, H]: distances, projected once for all requests."""
        positions = RelativePositions.of_step(
            self.config.d_model, length, length, self.attention_type, self.clamp_len
        )
        kernels = kernels_lib.current(training=False)
        keys = [
            kernels.project_positions(positions, block.attention.position_kernel, self.compute_dtype)
            for block in self.blocks
        ]
        return tf.concat(keys, axis=0)

    def _block_calls(self, kernels) -> list[functools.partial]:
        """Returns a call of each block; where they share a trace, of the first with the weights of each."""
        shared = None
        if kernels.shares_trace and not self.recompute and differ_in_weights_only(self.blocks):
            shared = traced_once(self.blocks[0])
        calls = []
        for block in self.blocks:
            weights = block.block_weights
            if shared:
                weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
            calls.append(functools.partial(shared or block, weights=weights, kernels=kernels))  # type: ignore[misc]
        return calls

    def _memory(self, features, batch_size):
        """Returns the memory [L, B, M, D] and its mask [B, M]; None twice without."""
        memory = features.get("memory")
        if memory is None:
            return None, None
        mask = features.get("memory_mask")
        if mask is None:
            mask = tf.ones([batch_size, memory.shape[2] or tf.shape(memory)[2]], tf.bool)
        return memory, tf.cast(mask, tf.bool)

    def _positions(self, features, query_len, key_len, kernels, seed):
        """Encodes the relative positions; or takes them, projected for each layer already, L of [N, R, H]."""
        position_keys = features.get("position_keys")
        if position_keys is not None:
            if seed is not None or {"memory", "direction"} & set(features):
                raise UserError(
                    "position_keys are for texts read at once and forward, not for training; leave them out."
                )
            # Layer by layer: a compiler of whole graphs then has a constant table for each.
            tables = [position_keys[layer] for layer in range(self.config.n_layer)]
            shorter = [positions_lib.of_shorter(table, query_len, self.attention_type) for table in tables]
            return RelativePositions(), shorter
        positions = kernels.encode_positions(
            self.config.d_model,
            query_len,
            key_len,
            attention_type=self.attention_type,
            clamp_len=self.clamp_len,
            direction=features.get("direction"),
            rate=self.dropout,
            seed=seed,
        )
        return positions, None

    def _contexts(
        self, features, kernels, positions, query_len, memory_len, memory_mask, output_positions, in_blocks
    ) -> tuple[Any, Any]:
        """Builds what each stream's queries may see, once for all layers; None without a second stream."""
        targets = features.get("target_positions")
        builder = ContextBuilder(
            features,
            query_len,
            memory_len,
            memory_mask,
            None if targets is None else tf.cast(targets, tf.int32),
            output_positions,
            attention_type=self.attention_type,
            same_length=self.same_length,
            uniform_when_blind=self.uniform_when_blind,
            dtype=self.compute_dtype,
        )
        if in_blocks:
            return builder.blocked_contexts(kernels, positions, self.config.n_head)
        content, query = builder.contexts()
        return (
            kernels.with_positions(content, positions),
            None if query is None else kernels.with_positions(query, positions),
        )

    def _embed(self, features, word_ids, kernels, seed):
        """The streams' inputs: h is the tokens' embedding, g the one vector that stands for any target."""
        # A gather from the variable itself would make a copy of it at each later read.
        embedding = tf.gather(tf.convert_to_tensor(self.word_embedding), word_ids)
        embedding = tf.cast(embedding, self.compute_dtype)
        mask_embedding = tf.cast(self.mask_embedding, self.compute_dtype)
        content = kernels.dropout(embedding, self.dropout, fold_in(seed, DropoutSeed.CONTENT_INPUT))
        if "target_positions" in features:
            targets = features["target_positions"]
            shape = [tf.shape(targets)[0], targets.shape[1] or tf.shape(targets)[1], self.config.d_model]
            query = tf.broadcast_to(mask_embedding, shape)
        elif "target_mask" in features:
            is_target = tf.cast(features["target_mask"], tf.bool)[:, :, None]
            query = tf.where(is_target, mask_embedding, embedding)
        else:
            return content, None
        return content, kernels.dropout(query, self.dropout, fold_in(seed, DropoutSeed.QUERY_INPUT))

    def _next_memory(
        self, features, layer_inputs, memory, memory_mask, memory_gradient
    ) -> dict[str, tf.Tensor]:
        """Appends the segment's first `reuse_len` tokens, as each layer got them, to the memory."""
        stored = tf.identity if memory_gradient else tf.stop_gradient
        fresh = tf.stack([stored(content[:, : self.reuse_len]) for content in layer_inputs])
        if "input_mask" in features:
            fresh_mask = tf.cast(features["input_mask"], tf.bool)[:, : self.reuse_len]
        else:
            fresh_mask = tf.ones(tf.shape(fresh)[1:3], tf.bool)
            fresh_mask.set_shape(fresh.shape[1:3])
        if memory is not None:
            fresh = tf.concat([tf.cast(memory, fresh.dtype), fresh], axis=2)
            fresh_mask = tf.concat([memory_mask, fresh_mask], axis=1)
        return {
            "next_memory": fresh[:, :, -self.memory_len :],
            "next_memory_mask": fresh_mask[:, -self.memory_len :],
        }

    def get_config(self):
        names = ("dropout", "attention_dropout", "attention_type", "same_length", "clamp_len", "memory_len",
                 "reuse_len", "initializer_range", "uniform_when_blind", "recompute")  # fmt: skip
        own = {name: getattr(self, name) for name in names}
        return {"config": self.config.to_dict(), **own, **super().get_config()}

    @classmethod
    def _options_from_config(cls, config, custom_objects):
        return {**config, "config": XLNetConfig.from_dict(config["config"])}


XLNetBackbone = XLNetEncoder  # the name in other libraries


def _output_positions(features) -> tf.Tensor | None:
    positions = features.get("output_positions")
    if positions is None:
        return None
    if {"target_positions", "target_mask"} & set(features):
        raise UserError(
            "output_positions choose tokens of a single stream; leave them out where targets are."
        )
    return tf.cast(positions, tf.int32)
