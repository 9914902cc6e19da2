"""Flags of `finetune` that several tasks have."""

from xlnet_tf.flags import Setting

SUMMARY = Setting("summary", "task.model.summary", ("last", "first", "mean", "attn"),
                   "Which tokens become the vector of a text.")  # fmt: skip
IN_SEGMENTS = (
    Setting("segment_len", "task.model.segment_len", int,
            "Tokens of the segments in which long texts are read, each with memory; 0: at once.", 0),
    Setting("memory_len", "task.model.memory_len", int, "Tokens of memory; 0: --segment_len.", 0),
    Setting("memory_gradient", "task.model.memory_gradient", int,
            "Segments that the gradient of the last one flows back through the memory.", 0),
)  # fmt: skip
LABELS = (
    Setting("class_weights", "task.class_weights", str,
            "Weights of the classes in training: none, balanced (all weigh the same together), or "
            "LABEL:WEIGHT,LABEL:WEIGHT."),
    Setting("label_smoothing", "task.label_smoothing", float,
            "Part of a label's probability that training spreads over all classes.", 0, 1),
)  # fmt: skip
