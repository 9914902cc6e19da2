"""A TPU that is not there: what is traced for it is what a real one would get, but nothing can run."""

from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.client import session

from xlnet_tf.training import runtime
from xlnet_tf.training.config import RuntimeConfig

V2 = topology_pb2.TPUHardwareFeature.EmbeddingFeature.V2


def topology(chips=(1, 1, 1), cores=2, hosts=1, newer=False) -> tf.tpu.experimental.Topology:
    """Returns what starting a TPU gives.

    Args:
        chips: along x, y and z.
        cores: devices of a chip.
        newer: whether it has the embedding hardware of v4 and later.
    """
    mesh = [*chips, cores]
    places = np.indices(mesh).reshape(4, hosts, -1).transpose(1, 2, 0)
    proto = topology_pb2.TopologyProto.FromString(
        tf.tpu.experimental.Topology(None, mesh, places).serialized()
    )
    if newer:
        proto.tpu_hardware_feature.embedding_feature = V2
    return tf.tpu.experimental.Topology(proto.SerializeToString())


def strategy(**shape) -> tf.distribute.TPUStrategy:
    """Returns the strategy of a TPU of this `topology` on this machine, its variables on the CPU."""
    made_up = topology(**shape)

    def metadata(resolver):
        """Leaves out the topology, as TensorFlow does."""
        devices = tuple(
            session._DeviceAttributes(f"/job:localhost/replica:0/task:0/device:TPU:{number}", "TPU", 0, 0)
            for number in range(made_up.num_tpus_per_task)
        )
        return tf.tpu.experimental.TPUSystemMetadata(len(devices), 1, len(devices), None, devices)

    def initialize(resolver):
        resolver.set_tpu_topology(made_up.serialized())
        return made_up

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    with (
        mock.patch.object(resolver, "get_tpu_system_metadata", metadata),
        mock.patch.object(tf.tpu.experimental, "initialize_tpu_system", initialize),
    ):
        started = runtime.prepare(RuntimeConfig(distribution_strategy="tpu", tpu="local"))
    started._enable_packed_variable_in_eager_mode = False  # they would need the devices
    return started
