"""The checkpoint that a fine-tuning begins with, of any format, and the architecture that follows from it."""

from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras
from absl import logging

from xlnet_tf.checkpoints import Checkpoint, load_into, open_checkpoint
from xlnet_tf.checkpoints.names import head_scope
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import compatibility
from xlnet_tf.tasks.settings import FinetuningConfig
from xlnet_tf.training.optimizer import layer_number


class InitialWeights:
    """The weights of `init_checkpoint`, if there is one, and the architecture with the settings' changes.

    Missing settings of how texts are read are filled into `config`: from the checkpoint, or defaults.
    """

    def __init__(self, config: FinetuningConfig, examples: ExampleSet):
        self._config, self._examples = config, examples
        self._checkpoint, reading = self._open()
        if taken := config.model.fill_reading(reading):
            logging.warning(
                "init_checkpoint %s reads texts with %s, and so does this run; --params_override="
                "task.model.NAME=VALUE has it read otherwise",
                config.init_checkpoint,
                ", ".join(f"{name} {value}" for name, value in taken.items()),
            )
        vocab_size = examples.tokenizer["vocab_size"]
        base = self._checkpoint.config if self._checkpoint else None
        self.architecture: XLNetConfig = config.model.architecture(vocab_size, base)
        if self.architecture.n_token != vocab_size:
            raise UserError(
                f"the model's vocabulary has {self.architecture.n_token} pieces, that of the tokenizer of "
                f"{examples.folder} {vocab_size}: build the examples with the model's tokenizer"
            )

    def _open(self) -> tuple[Checkpoint | None, Mapping[str, Any]]:
        """Returns the checkpoint and how its model reads texts."""
        path = self._config.init_checkpoint
        if not path:
            return None, {}
        try:
            checkpoint = open_checkpoint(path)
            reading = checkpoint.card.reading
        except (UserError, FileNotFoundError) as error:
            raise UserError(f"init_checkpoint: {error}") from error
        compatibility.check_texts(checkpoint, self._examples)
        return checkpoint, reading

    def check_reinit(self) -> None:
        """Raises UserError unless reinit_layers fits the number of layers, and a checkpoint has the rest."""
        name, layers = "task.reinit_layers (--reinit_layers)", self._config.reinit_layers
        if not 0 <= layers <= self.architecture.n_layer:
            raise UserError(
                f"{name} is {layers}: expected 0 to {self.architecture.n_layer}, the layers of the model"
            )
        if layers and not self._checkpoint:
            raise UserError(
                f"{name} is {layers}, and without --init_checkpoint all layers begin with random weights: "
                "give both, or leave it out"
            )

    def load(self, model: tf_keras.Model, new_scopes: Sequence[str]) -> None:
        """Loads the weights into a new run's model, whose `new_scopes` the checkpoint may lack.

        With `reinit_layers` the top layers, and all above them, keep the weights that they were built with.

        Source: Zhang et al., Revisiting Few-sample BERT Fine-tuning, 2021, section 5.
        """
        checkpoint, new = self._checkpoint, [*new_scopes]
        if not checkpoint:
            return
        if layers := self._config.reinit_layers:
            kept_layers = self.architecture.n_layer - layers
            again = [
                name
                for name in checkpoint.arrays
                if head_scope(name) in new_scopes or (layer_number(name) or 0) > kept_layers
            ]
            checkpoint, new = checkpoint.without(again), [*new, *again]
        compatibility.check_classes(checkpoint, self._examples, new)
        coverage = load_into(model, checkpoint, new=new)
        logging.info("init_checkpoint %s:\n%s", checkpoint.path, coverage.table())
