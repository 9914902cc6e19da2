"""Settings of pretraining."""

import dataclasses

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from xlnet_tf.tasks.model_config import EncoderModelConfig


@dataclasses.dataclass
class RecordsConfig(base_config.Config):
    """Which records to read.

    Attributes:
        input_path: folder of records, or its manifest.json.
        global_batch_size: rows of a step over all devices; 0 for validation: of a part of a training
            step (see trainer.accumulation_steps).
    """

    input_path: str = ""
    global_batch_size: int = 0


@dataclasses.dataclass
class ModelConfig(EncoderModelConfig):
    """The network and how it is trained.

    Attributes (besides those of EncoderModelConfig, and those that have a flag):
        memory_len: tokens of memory; 0 for none; not given: three quarters of a segment (denoising: 0).
        endless_memory: never hide memory, as in the original: empty memory (zeros) and the stream before are
            attended to.
        uniform_when_blind: a target that sees nothing gets the mean of all, as in the original.
    """

    memory_len: int | None = None
    memory_within_document: bool = False
    endless_memory: bool = False
    uniform_when_blind: bool = False
    next_sentence_weight: float = 0.0


@dataclasses.dataclass
class PretrainingConfig(cfg.TaskConfig):
    """Settings of pretraining.

    Attributes:
        model: the network.
        train_data: records to train on.
        validation_data: records to evaluate on; no path, no evaluation.
        general_data: records of other text to evaluate on, too, as general_loss: what a run that adapts a
            model to a domain must not forget. No path: none.
        max_general_rise: rise of general_loss over its first value, in nats, that ends the run; 0: none does.
        keep_best: keep the weights with the lowest loss on validation_data, of those evaluations where
            general_loss had not risen too far.
        permutation: "precomputed" trains on the records' own targets and orders; "online" draws both anew in
            every epoch, by the records' rules. Evaluation always takes the records' own.
    """

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train_data: RecordsConfig = dataclasses.field(default_factory=lambda: RecordsConfig(global_batch_size=16))
    validation_data: RecordsConfig = dataclasses.field(default_factory=RecordsConfig)
    general_data: RecordsConfig = dataclasses.field(default_factory=RecordsConfig)
    max_general_rise: float = 0.0
    keep_best: bool = False
    permutation: str = "precomputed"
    seed: int = 0
