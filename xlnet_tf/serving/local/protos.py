"""TensorFlow Serving's messages, by names and numbers of fields: a server of them needs no TensorFlow.

Source: the .proto files of tensorflow/serving and tensorflow/core; only what this server reads and writes.
"""

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_SERVING, _TENSORFLOW = "tensorflow.serving", "tensorflow"
_KNOWN = (any_pb2, wrappers_pb2)
_SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "float", "double")
}
_ENUMS = {
    "tensorflow.DataType": {
        "DT_INVALID": 0, "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 5,
        "DT_INT8": 6, "DT_STRING": 7, "DT_COMPLEX64": 8, "DT_INT64": 9, "DT_BOOL": 10, "DT_QINT8": 11,
        "DT_QUINT8": 12, "DT_QINT32": 13, "DT_BFLOAT16": 14, "DT_QINT16": 15, "DT_QUINT16": 16,
        "DT_UINT16": 17, "DT_COMPLEX128": 18, "DT_HALF": 19, "DT_RESOURCE": 20, "DT_VARIANT": 21,
        "DT_UINT32": 22, "DT_UINT64": 23,
    },
    "tensorflow.error.Code": {
        "OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5,
        "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9,
        "ABORTED": 10, "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14,
        "DATA_LOSS": 15, "UNAUTHENTICATED": 16,
    },
    "tensorflow.serving.ModelVersionStatus.State": {
        "UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50,
    },
}  # fmt: skip
# Message -> its fields: number, type and name, with "*" for lists, "map" for maps from strings, "?" for
# members of the message's oneof.
_MESSAGES = {
    "tensorflow.TensorShapeProto.Dim": "1 int64 size, 2 string name",
    "tensorflow.TensorShapeProto": "2* tensorflow.TensorShapeProto.Dim dim, 3 bool unknown_rank",
    "tensorflow.TensorProto": (
        "1 tensorflow.DataType dtype, 2 tensorflow.TensorShapeProto tensor_shape, 3 int32 version_number, "
        "4 bytes tensor_content, 13* int32 half_val, 5* float float_val, 6* double double_val, "
        "7* int32 int_val, 8* bytes string_val, 10* int64 int64_val, 11* bool bool_val, "
        "16* uint32 uint32_val, 17* uint64 uint64_val"
    ),
    "tensorflow.TensorInfo": (
        "1? string name, 2 tensorflow.DataType dtype, 3 tensorflow.TensorShapeProto tensor_shape"
    ),
    "tensorflow.SignatureDef": (
        "1 map tensorflow.TensorInfo inputs, 2 map tensorflow.TensorInfo outputs, 3 string method_name, "
        "4 map tensorflow.TensorProto defaults"
    ),
    "tensorflow.serving.ModelSpec": (
        "1 string name, 2? google.protobuf.Int64Value version, 4? string version_label, "
        "3 string signature_name"
    ),
    "tensorflow.serving.SignatureDefMap": "1 map tensorflow.SignatureDef signature_def",
    "tensorflow.serving.GetModelMetadataRequest": (
        "1 tensorflow.serving.ModelSpec model_spec, 2* string metadata_field"
    ),
    "tensorflow.serving.GetModelMetadataResponse": (
        "1 tensorflow.serving.ModelSpec model_spec, 2 map google.protobuf.Any metadata"
    ),
    "tensorflow.serving.StatusProto": "1 tensorflow.error.Code error_code, 2 string error_message",
    "tensorflow.serving.ModelVersionStatus": (
        "1 int64 version, 2 tensorflow.serving.ModelVersionStatus.State state, "
        "3 tensorflow.serving.StatusProto status"
    ),
    "tensorflow.serving.GetModelStatusRequest": "1 tensorflow.serving.ModelSpec model_spec",
    "tensorflow.serving.GetModelStatusResponse": (
        "1* tensorflow.serving.ModelVersionStatus model_version_status"
    ),
    "tensorflow.serving.PredictRequest": (
        "1 tensorflow.serving.ModelSpec model_spec, 2 map tensorflow.TensorProto inputs, "
        "3* string output_filter"
    ),
    "tensorflow.serving.PredictResponse": (
        "2 tensorflow.serving.ModelSpec model_spec, 1 map tensorflow.TensorProto outputs"
    ),
}


def _file(package: str, dependencies: list[str]) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3", dependency=dependencies
    )
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}

    def message(full_name: str) -> descriptor_pb2.DescriptorProto:
        if full_name not in messages:
            parent, _, name = full_name.rpartition(".")
            outer = file.message_type if parent == package else message(parent).nested_type
            messages[full_name] = outer.add(name=name)
        return messages[full_name]

    for full_name, fields in _MESSAGES.items():
        if _package(full_name) == package:
            _add_fields(message(full_name), full_name, fields)
    for full_name, values in _ENUMS.items():
        if _package(full_name) == package:
            parent, _, name = full_name.rpartition(".")
            enum = (file if parent == package else message(parent)).enum_type.add(name=name)
            for key, number in values.items():
                enum.value.add(name=key, number=number)
    return file


def _package(full_name: str) -> str:
    """Returns the package of a message or enum: its name up to the first part with a capital."""
    parts = full_name.split(".")
    return ".".join(parts[: next(n for n, part in enumerate(parts) if part[0].isupper())])


def _add_fields(message: descriptor_pb2.DescriptorProto, full_name: str, fields: str) -> None:
    for field in fields.split(", "):
        number, *is_map, kind, name = field.split()
        added = message.field.add(name=name, json_name=name, number=int(number.rstrip("*?")))
        added.label = _Field.LABEL_REPEATED if is_map or number.endswith("*") else _Field.LABEL_OPTIONAL
        if number.endswith("?"):
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            added.oneof_index = 0
        if is_map:
            entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            _add_fields(entry, f"{full_name}.{entry_name}", f"1 string key, 2 {kind} value")
            kind = f"{full_name}.{entry_name}"
        if kind in _SCALARS:
            added.type = _SCALARS[kind]
        else:
            added.type = _Field.TYPE_ENUM if kind in _ENUMS else _Field.TYPE_MESSAGE
            added.type_name = f".{kind}"


# Not the default pool, which has TensorFlow's own messages of these names where that is loaded.
_POOL = descriptor_pool.DescriptorPool()
for _known in _KNOWN:
    _POOL.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)
_POOL.Add(_file("tensorflow.error", []))
_POOL.Add(_file(_TENSORFLOW, []))
_POOL.Add(
    _file(
        _SERVING, [known.DESCRIPTOR.name for known in _KNOWN] + ["tensorflow.proto", "tensorflow.error.proto"]
    )
)


def _class(full_name: str):
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))


TensorProto, SignatureDef = _class("tensorflow.TensorProto"), _class("tensorflow.SignatureDef")
ModelSpec, SignatureDefMap = _class(f"{_SERVING}.ModelSpec"), _class(f"{_SERVING}.SignatureDefMap")
GetModelMetadataRequest = _class(f"{_SERVING}.GetModelMetadataRequest")
GetModelMetadataResponse = _class(f"{_SERVING}.GetModelMetadataResponse")
GetModelStatusRequest = _class(f"{_SERVING}.GetModelStatusRequest")
GetModelStatusResponse = _class(f"{_SERVING}.GetModelStatusResponse")
PredictRequest, PredictResponse = _class(f"{_SERVING}.PredictRequest"), _class(f"{_SERVING}.PredictResponse")
CODES = _ENUMS["tensorflow.error.Code"]
STATES = _ENUMS["tensorflow.serving.ModelVersionStatus.State"]
DATA_TYPES = _ENUMS["tensorflow.DataType"]
