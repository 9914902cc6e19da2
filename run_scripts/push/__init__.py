"""The command push, which uploads what xlnet_tf.checkpoints.publishing prepares. Begin with __main__.py."""
