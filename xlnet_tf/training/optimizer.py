"""AdamW with a true learning rate per layer, and XLNet's learning-rate schedule.

The defaults follow the paper. Three switches restore what the original code does instead:
`bias_correction=False`, `decay_attention_biases=True` and `scale_gradients=True`.
"""

import dataclasses
import functools
import math
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config
from official.modeling.optimization import lr_schedule

from xlnet_tf.errors import UserError

Schedule = tf_keras.optimizers.schedules.LearningRateSchedule

NOT_DECAYED = (r"bias$", r"(gamma|beta)$")  # biases and layer norms
_ATTENTION_BIAS = r"(content|position|segment)_bias$"
# Of an OptimizerConfig, what AdamW keeps under the same name.
_SETTINGS = (
    *("beta_1", "beta_2", "epsilon", "exclude_from_decay", "layer_decay"),
    *("bias_correction", "decay_attention_biases", "scale_gradients"),
)


@dataclasses.dataclass
class OptimizerConfig(base_config.Config):
    """Settings of the optimizer and of its schedule.

    Attributes:
        learning_rate: peak learning rate, reached at the end of the warm-up.
        warmup_steps: steps in which the learning rate grows linearly from 0 to the peak.
        decay: "linear" or "cosine", from the peak to min_lr_ratio * learning_rate at the last step.
        min_lr_ratio: final learning rate as a fraction of the peak.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        weight_decay: decoupled decay, multiplied by the learning rate of the variable.
        exclude_from_decay: regular expressions; a variable whose name matches one is not decayed.
        clip_norm: largest global norm of the gradient; 0 turns clipping off.
        layer_decay: the learning rate of layer m of n is multiplied by layer_decay**(n - m), that of the
            embeddings (layer 0) by layer_decay**n, that of the heads by 1.
        bias_correction: Adam's correction of the first steps; the original's AdamW has none.
        decay_attention_biases: decay the attention biases (r_w, r_r, r_s) as the original does.
        scale_gradients: apply layer_decay to the clipped gradients of the layers, not to the learning rates,
            as the original does; Adam undoes nearly all of it.
        updates_before: number of updates in the moments that a new run takes over from init_checkpoint; its
            schedule begins there. 0: the moments begin at zero.
    """

    learning_rate: float = 1e-4
    warmup_steps: int = 0
    decay: str = "linear"
    min_lr_ratio: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    exclude_from_decay: list[str] = dataclasses.field(default_factory=lambda: list(NOT_DECAYED))
    clip_norm: float = 1.0
    layer_decay: float = 1.0
    bias_correction: bool = True
    decay_attention_biases: bool = False
    scale_gradients: bool = False
    updates_before: int = 0


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class WarmupDecay(Schedule):
    """The learning rate by steps taken: linear warm-up, then decay. A saved model can rebuild it."""

    def __init__(self, settings: Mapping[str, Any], train_steps: int):
        self.settings = dict(settings)
        self.train_steps = train_steps
        config = OptimizerConfig(**settings)
        self._first = config.updates_before
        self._schedule = _compose(config, train_steps)

    def __call__(self, step):
        return self._schedule(step - self._first)

    def get_config(self):
        return {"settings": self.settings, "train_steps": self.train_steps}


def _compose(config: OptimizerConfig, train_steps: int) -> Schedule:
    decay_steps = train_steps - config.warmup_steps
    if config.warmup_steps < 0 or decay_steps < 1:
        raise UserError(
            f"warmup_steps is {config.warmup_steps} and train_steps is {train_steps}: expected "
            "0 <= warmup_steps < train_steps. Lower --warmup_steps or raise --train_steps."
        )
    peak, last = float(config.learning_rate), float(config.min_lr_ratio)  # yaml's 1 is a whole number
    shared = {"offset": config.warmup_steps, "initial_learning_rate": peak, "decay_steps": decay_steps}
    if config.decay == "linear":
        schedule = lr_schedule.PolynomialDecayWithOffset(end_learning_rate=peak * last, **shared)
    elif config.decay == "cosine":
        schedule = lr_schedule.CosineDecayWithOffset(alpha=last, **shared)
    else:
        raise UserError(f"decay is {config.decay!r}: expected 'linear' or 'cosine'.")
    if config.warmup_steps:
        schedule = lr_schedule.LinearWarmup(schedule, config.warmup_steps, warmup_learning_rate=0.0)
    return schedule


def build_optimizer(config: OptimizerConfig, train_steps: int, n_layer: int) -> "AdamW":
    """Builds the optimizer with its schedule, not yet built for any variables."""
    for name in ("beta_1", "beta_2"):
        if not 0 < _float32(getattr(config, name)) < 1:
            raise UserError(
                f"{name} is {getattr(config, name)}: expected a number between 0 and 1, as 0.9, that float32 "
                "distinguishes from both."
            )
    if config.epsilon <= 0:
        raise UserError(f"epsilon is {config.epsilon}: expected more than 0, as 1e-6: it is divided by.")
    for pattern in config.exclude_from_decay:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(
                f"exclude_from_decay has {pattern!r}, which is not a regular expression ({error}): expected "
                "some that match names of variables, as 'bias$'"
            ) from error
    settings = config.as_dict()
    return AdamW(
        WarmupDecay(settings, train_steps),
        n_layer=n_layer,
        weight_decay=config.weight_decay,
        global_clipnorm=config.clip_norm or None,
        **{name: settings[name] for name in _SETTINGS},
    )


def layer_number(name: str) -> int | None:
    """Returns a variable's layer by its name: 0 for shared ones, m for "layer_{m - 1}", None for a head."""
    name = name.removesuffix(":0")
    layer = re.search(r"\blayer_(\d+)/", name)
    if layer:
        return int(layer.group(1)) + 1
    if re.search(r"(word|mask)_embedding\b", name) or re.search(_ATTENTION_BIAS, name):
        return 0
    return None


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class AdamW(tf_keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and one learning rate per layer.

    Source: Loshchilov and Hutter 2019; the layers as in the XLNet paper, appendix A (l * alpha**(24 - m)).
    One update reads and writes each variable and slot once or twice. The gradient is clipped by one global
    norm, once summed over the replicas. A step may be skipped without a branch: see `apply_gradients`.
    """

    def __init__(
        self,
        learning_rate: float | Schedule = 1e-4,
        *,
        n_layer: int = 0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        exclude_from_decay: Sequence[str] = NOT_DECAYED,
        layer_decay: float = 1.0,
        bias_correction: bool = True,
        decay_attention_biases: bool = False,
        scale_gradients: bool = False,
        name: str = "AdamW",
        **kwargs,
    ):
        super().__init__(name=name, weight_decay=weight_decay, **kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)
        # What Adam's correction multiplies the updates of the current step by; once for all variables.
        self._correction = tf.Variable(1.0, trainable=False, name="bias_correction")
        # What gradients are multiplied by to be clipped; 0: the step is skipped; -1: they count as zero.
        self._keep = tf.Variable(
            1.0, trainable=False, name="keep", aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        self.n_layer = n_layer
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_decay = list(exclude_from_decay)
        self.layer_decay = layer_decay
        self.bias_correction = bias_correction
        self.decay_attention_biases = decay_attention_biases
        self.scale_gradients = scale_gradients
        # Scalars that variables share within a step; checkpoints would track a dict.
        self._step: types.SimpleNamespace | None = None

    def build(self, var_list):
        """Creates the two moments of every variable."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        # By index, since a replica's copy of a variable has another name.
        self._rates = [self.learning_rate_factor(v.name) for v in var_list]
        self._scales = [self.gradient_factor(v.name) for v in var_list]
        self._decays = [self.weight_decay * self.is_decayed(v.name) for v in var_list]
        self._momentums = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._velocities = [self.add_variable_from_reference(v, "v") for v in var_list]
        self._built = True

    def is_decayed(self, name: str) -> bool:
        """Returns whether weight decay applies to the variable of this name."""
        name = name.removesuffix(":0")
        if self.decay_attention_biases and re.search(_ATTENTION_BIAS, name):
            return True
        return not any(re.search(pattern, name) for pattern in self.exclude_from_decay)

    def learning_rate_factor(self, name: str) -> float:
        layer = layer_number(name)
        if layer is None or self.scale_gradients:
            return 1.0
        return self.layer_decay ** (self.n_layer - layer)

    def gradient_factor(self, name: str) -> float:
        """Returns the factor of the gradient of the variable of this name; 1 without scale_gradients."""
        layer = layer_number(name)
        # The original keeps the attention biases and the segment embedding outside its layers' scopes.
        outside = re.search(rf"{_ATTENTION_BIAS}|segment_embedding$", name.removesuffix(":0"))
        if not self.scale_gradients or not layer or outside:
            return 1.0
        return self.layer_decay ** (self.n_layer - layer)

    def apply_gradients(
        self, grads_and_vars, name=None, skip_gradients_aggregation=False, keep=True, updates=None, norm=None
    ):
        """Takes a step, or leaves all variables and moments bit for bit as they are.

        Args:
            keep: bool scalar, the same on all replicas: whether to take the step. If not, the gradients may
                be NaN; `iterations`, and with it the schedule, advances in both cases.
            updates: int64 scalar, the steps before this one without the skipped ones, for Adam's correction.
                None: no step was skipped.
            norm: the global norm of the gradients; None: it is computed.
        """
        self._step = types.SimpleNamespace(
            numbers={},
            updates=self.iterations.read_value() if updates is None else updates,
            keep=keep,
            norm=norm,
        )
        try:
            return super().apply_gradients(
                grads_and_vars, name=name, skip_gradients_aggregation=skip_gradients_aggregation
            )
        finally:
            self._step = None

    def _clip_gradients(self, grads):
        # Rows of a sparse gradient may repeat, which would make its norm wrong.
        grads = [tf.convert_to_tensor(gradient) for gradient in grads]
        scale = tf.constant(1.0)
        if self.global_clipnorm:
            norm = tf.linalg.global_norm(grads) if self._step.norm is None else self._step.norm
            scale = self.global_clipnorm / tf.maximum(tf.cast(norm, tf.float32), self.global_clipnorm)
            scale = tf.where(tf.equal(scale, 0), -1.0, scale)  # the norm is infinite
        self._keep.assign(tf.where(self._step.keep, scale, 0.0))
        return grads  # `update_step` multiplies them, in the pass that updates

    def _apply_weight_decay(self, variables):
        """Does nothing: the decay is a part of `update_step`."""

    def _compute_current_learning_rate(self):
        super()._compute_current_learning_rate()
        if self.bias_correction:
            step = tf.cast(self._step.updates + 1, tf.float32)
            # 1 - beta**step, accurate where beta is near 1, with the betas that the moments decay by.
            bias_1 = -tf.math.expm1(step * math.log(_float32(self.beta_1)))
            bias_2 = -tf.math.expm1(step * math.log(_float32(self.beta_2)))
            self._correction.assign(tf.sqrt(bias_2) / bias_1)

    def update_step(self, gradient, variable):
        """Updates one variable and its moments; the gradient is dense and summed over replicas."""
        index = self._index_dict[self._var_key(variable)]
        m, v = self._momentums[index], self._velocities[index]
        gradient = tf.cast(gradient, variable.dtype)
        numbers = self._step_numbers(
            self._rates[index], self._decays[index], self._scales[index], variable.dtype
        )
        if self._decays[index]:
            state = variable, m, v
            values = _decayed_update([tensor.value() for tensor in state], gradient, numbers)
            for tensor, value in zip(state, values):
                tensor.assign(value)
            return
        # One kernel, which reads and writes all three once. It knows of no correction but in its rate.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            grad=tf.math.multiply_no_nan(gradient, numbers["scale"]),
            beta1_power=tf.zeros([], variable.dtype),
            beta2_power=tf.zeros([], variable.dtype),
            lr=numbers["rate"],
            beta1=numbers["beta_1"],
            beta2=numbers["beta_2"],
            epsilon=numbers["epsilon"],
        )

    def _step_numbers(
        self, factor: float, decay: float, scale: float, dtype: tf.DType
    ) -> dict[str, tf.Tensor]:
        """Computes the scalars of a variable's update, or reuses those of an earlier, similar variable."""
        # Kept by graph: an update that XLA compiles is a graph of its own, and cannot use another's tensors.
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        key = (graph, factor, decay, scale, dtype)
        step = self._step or types.SimpleNamespace(numbers={})
        if key not in step.numbers:
            clip = tf.cast(self._keep, dtype)
            keep = tf.not_equal(clip, 0)
            rate = tf.where(keep, tf.cast(self.learning_rate, dtype) * factor, 0)
            step.numbers[key] = {
                "scale": tf.where(clip < 0, tf.zeros_like(clip), clip * scale),
                "decay": rate * decay,
                "rate": rate * tf.cast(self._correction, dtype),
                "beta_1": tf.where(keep, tf.constant(_float32(self.beta_1), dtype), 1),
                "beta_2": tf.where(keep, tf.constant(_float32(self.beta_2), dtype), 1),
                "epsilon": tf.cast(self.epsilon, dtype),
            }
        return step.numbers[key]

    def get_config(self):
        return super().get_config() | {
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            **{name: getattr(self, name) for name in ("n_layer", *_SETTINGS)},
        }


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _decayed_update(values: list[tf.Tensor], gradient: tf.Tensor, numbers: Mapping[str, tf.Tensor]):
    """Computes the new values of a weight and its moments.

    Update and decay are subtracted together: the decay alone is below float32's resolution. A product with
    1 - rate * decay takes off a third too much at a rate of 5e-6, and nothing at 2e-6.
    """
    weight, m, v = values
    gradient = tf.math.multiply_no_nan(gradient, numbers["scale"])  # NaN times 0 is 0: a step may be skipped
    m += (gradient - m) * (1 - numbers["beta_1"])
    v += (tf.square(gradient) - v) * (1 - numbers["beta_2"])
    update = numbers["rate"] * m / (tf.sqrt(v) + numbers["epsilon"])
    return [weight - (update + numbers["decay"] * weight), m, v]


def _float32(beta: float) -> float:
    """Returns the float32 nearest to a beta: then 1 - 0.999999 is 1.0133e-6."""
    return float(np.float32(beta))
