"""The command verify_pretrained, which prints what xlnet_tf.verification finds. Begin with __main__.py."""
