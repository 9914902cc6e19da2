"""Whether pretrained weights are whole and trained, and agree with what was published of them.

Begin with verify.py, which makes the checks; published.py has the facts of the released models.
"""

from xlnet_tf.verification.verify import Check, Verification, verify_pretrained

__all__ = ["Check", "Verification", "verify_pretrained"]
