"""What tf_keras must know to load a saved model whose variables need no input shape."""

import tf_keras


class ShapeFreeModel(tf_keras.Model):
    """A model that `build()` alone builds; `tf_keras.models.load_model` then finds its variables in place."""

    def get_build_config(self):
        return {"input_shape": None}

    def build_from_config(self, config):
        self.build(config["input_shape"])

    def __repr__(self) -> str:
        objects = {name: getattr(self, name) for name in ("config", "encoder") if hasattr(self, name)}
        arguments = {**self.get_config(), **objects}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
