"""The messages in a SentencePiece model's file, as the installed SentencePiece has them."""

from google.protobuf.runtime_version import VersionError

try:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec
except VersionError as error:  # 0.2.3 was made with a newer protobuf, which it does not ask for
    raise ImportError(
        f"sentencepiece cannot read its models with the installed protobuf ({error}): `pip install "
        "sentencepiece==0.2.1`, or the protobuf that the message names"
    ) from None

__all__ = ["ModelProto", "NormalizerSpec", "TrainerSpec"]
