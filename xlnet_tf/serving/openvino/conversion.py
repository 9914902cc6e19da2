"""Makes graphs in OpenVINO's format of TensorFlow functions."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.layers import kernels
from xlnet_tf.serving.graph.exported_model import GraphFunction
from xlnet_tf.serving.openvino.compiled import import_openvino


def convert(function: GraphFunction, specs: Mapping[str, tf.TensorSpec]) -> Any:
    """Converts a function, its variables as they are now, to an openvino.Model with the kernels for OpenVINO.

    Inputs, described by `specs`, and outputs keep their names; axes of unknown size may have any.
    """
    import_openvino()

    def named(**inputs):
        return {name: tf.identity(value) for name, value in function(**inputs).items()}

    by_name = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    with kernels.assume(kernels.OPENVINO):
        traced = tf.function(named, autograph=False).get_concrete_function(**by_name)
    model = _of_concrete_function(traced)
    for ports, names in ((model.inputs, by_name.keys()), (model.outputs, traced.structured_outputs.keys())):
        found = {name: port for port in ports for name in port.names & names}
        if found.keys() != names:
            raise ValueError(f"{', '.join(names - found.keys())} became no part of the graph")
        for name, port in found.items():
            port.set_names({name})
            port.node.set_friendly_name(name)
    return model


def _of_concrete_function(traced: Any) -> Any:
    """Converts as openvino.convert_model does, which also tells its makers over the network."""
    from openvino._offline_transformations import apply_moc_transformations
    from openvino.frontend import FrontEndManager
    from openvino.frontend.tensorflow.utils import create_tf_graph_iterator

    frontend = FrontEndManager().load_by_framework("tf")
    nodes = create_tf_graph_iterator(traced, None, None, None, True)  # has to live until the end
    model = frontend.convert(frontend.load(nodes))
    apply_moc_transformations(model, cf=False, smart_reshape=True)
    return model


def merge(models: Mapping[str, Any]) -> Any:
    """Merges graphs into one, whose file has equal weights once; compiled.GraphParts reads it.

    Inputs and outputs are called NAME/INPUT and NAME/OUTPUT. The graphs become part of the result.
    """
    openvino = import_openvino()
    for name, model in models.items():
        for port in (*model.inputs, *model.outputs):
            full = f"{name}/{port.any_name}"
            port.set_names({full})
            port.node.set_friendly_name(full)
    results = [result for model in models.values() for result in model.get_results()]
    parameters = [parameter for model in models.values() for parameter in model.get_parameters()]
    return openvino.Model(results, parameters)
