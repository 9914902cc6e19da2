"""Whether pretrained weights are whole, trained, and in their places.

Begin with verify.py, which makes the checks. losses.py and repairs.py look at what the weights compute,
statistics.py at the weights themselves, published.py at what others have published of the released ones.
"""

from xlnet_tf.verification.verify import Check, Verification, verify_pretrained

__all__ = ["Check", "Verification", "verify_pretrained"]
