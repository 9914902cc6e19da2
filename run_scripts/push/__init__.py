"""The command push, which uploads what xlnet_tf.checkpoints.publishing prepares."""
