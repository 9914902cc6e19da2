"""Whatever a server says, the client gives the right answer or one UserError, in bounded time."""

import concurrent.futures
import contextlib
import json
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse, SignatureDefMap
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from tests.helpers import http_server
from tests.helpers.profiles import examples
from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import signatures, tensors
from xlnet_tf.serving.client import connect


def definition(**outputs):
    """A signature with one input, `text`, in the JSON form of the REST API."""
    columns = {
        name: {"dtype": dtype, "tensor_shape": {"dim": [{"size": "-1"}] * rank}}
        for name, (dtype, rank) in outputs.items()
    }
    return {
        "inputs": {"text": {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}},
        "outputs": columns,
    }


def metadata(**definitions):
    return {"metadata": {"signature_def": {"signature_def": definitions}}}


TWO_OUTPUTS = metadata(serving_default=definition(label=("DT_STRING", 1), score=("DT_FLOAT", 2)))
GOOD = {"outputs": {"label": ["a", "b"], "score": [[0.5], [0.25]]}}


class Rest:
    """A REST server that answers what it is told to, each answer as bytes."""

    def __init__(self):
        self.metadata, self.answer, self.status, self.drip = b"", b"", 200, None
        rest = self

        class Handler(http_server.Handler):
            protocol_version = "HTTP/1.0"

            def do_GET(self):
                self.reply(rest.metadata, 200)

            def do_POST(self):
                self.body()
                self.reply(rest.answer, rest.status)

            def reply(self, body, status):
                self.send_response(status)
                self.end_headers()
                with contextlib.suppress(OSError):
                    for part in [bytes([byte]) for byte in body] if rest.drip else [body]:
                        self.wfile.write(part)
                        self.wfile.flush()
                        time.sleep(rest.drip or 0)

        self.handler = Handler


@pytest.fixture(scope="module")
def rest():
    made = Rest()
    with http_server.serving(made.handler) as port:
        made.address = f"localhost:{port}"
        yield made


def ask(rest, said, answer, **options):
    """What the client makes of a server that says this of its model, and answers so."""
    rest.metadata = said if isinstance(said, bytes) else json.dumps(said).encode()
    rest.answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    rest.status, rest.drip = options.get("status", 200), options.get("drip")
    return connect(rest.address, "toy", timeout=options.get("timeout", 20)).predict({"text": ["x", "y"]})


NAMES = (
    *("outputs", "metadata", "signature_def", "serving_default", "inputs", "dtype", "tensor_shape"),
    *("dim", "label", "score", "b64", "error", "DT_FLOAT"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def spoiled(draw, good):
    """A good answer with one part of it replaced by anything."""
    copy = json.loads(json.dumps(good))
    part, value = copy, draw(json_values)
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = draw(st.sampled_from(keys))
        if not isinstance(part[key], (dict, list)) or not part[key] or draw(st.integers(0, 3)) == 0:
            part[key] = value
            return copy
        part = part[key]


@given(said=st.just(TWO_OUTPUTS) | spoiled(TWO_OUTPUTS) | json_values, answer=spoiled(GOOD) | json_values)
@examples(150, 3000)
def test_any_json_is_an_answer_or_an_error(rest, said, answer):
    try:
        found = ask(rest, said, answer)
    except UserError as error:
        assert str(error).isprintable()
        return
    for values in found.values():
        assert np.ndim(values) == 0 or len(values) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"outputs": {"label": ["b"], "score": [[0.5], [0.5]]}}, "label has 1 rows; the request has 2"),
        ({"outputs": {"label": ["a", "b"], "score": [0.5, 0.5]}}, "score has 1 axes; its signature says 2"),
        ({"outputs": {"label": [1, 2], "score": [[0.5], [0.5]]}}, "label is not strings"),
        ({"outputs": {"label": ["a", "b"]}}, "lacks the output score"),
        ({"outputs": {"label": ["a", "b"], "score": [[0.5], [0.5, 1]]}}, "score is not float32"),
        *(
            ({"outputs": {"label": ["a", {"b64": text}], "score": [[0.5]] * 2}}, "label is not strings: ")
            for text in ("!!", "YQ", "YQ=", "Y Q==", "YR==", "YQ==YQ==", "é", 5)
        ),
        (b'{"outputs": {"label": ["a", "b"], "label": ["b"]}}', 'cannot be trusted: "label" is given twice'),
        (b"[" * 100_000, "expected a JSON object"),
    ],
)
def test_answers_of_other_rows_or_types_are_refused(rest, answer, message):
    with pytest.raises(UserError, match=message):
        ask(rest, TWO_OUTPUTS, answer)


def test_a_signature_that_is_not_asked_for_disables_nothing(rest):
    said = metadata(
        serving_default=definition(label=("DT_STRING", 1), score=("DT_FLOAT", 2)),
        odd=definition(handle=("DT_RESOURCE", 0)),
        bare={"outputs": {}},
        broken=7,
    )
    assert ask(rest, said, GOOD)["label"].tolist() == [b"a", b"b"]
    with pytest.raises(UserError, match="'odd' of the model cannot be asked: handle has the type"):
        connect(rest.address, "toy", "odd").predict({})


def test_names_of_tensors_cannot_control_the_terminal(rest):
    for which in ("inputs", "outputs"):
        odd = definition(label=("DT_STRING", 1))
        odd[which] = {"\x1b[31m": odd[which].popitem()[1]}
        with pytest.raises(UserError, match=rf"its {which} is called \\x1b\[31m") as error:
            ask(rest, metadata(serving_default=odd), GOOD)
        assert str(error.value).isprintable()


def test_one_deadline_holds_for_the_whole_answer(rest):
    said, answer = json.dumps(TWO_OUTPUTS).encode(), json.dumps(GOOD).encode()
    begin = time.monotonic()
    with pytest.raises(UserError, match="no whole answer within 0.4 s"):
        ask(rest, said, answer, drip=0.05, timeout=0.4)
    assert time.monotonic() - begin < 5  # a drop every 0.05 s would take longer than 10


def test_long_bodies_and_messages_are_cut(rest, monkeypatch):
    with pytest.raises(UserError) as found:
        ask(rest, TWO_OUTPUTS, {"error": "\x1b[31mred" + "x" * 10**6}, status=400)
    message = str(found.value)
    assert message.isprintable() and len(message) < 800 and "\\x1b[31mred" in message
    monkeypatch.setattr("xlnet_tf.serving.client.MOST_BYTES", 1000)
    with pytest.raises(UserError, match="longer than"):
        ask(rest, TWO_OUTPUTS, b" " * 2000)


class Grpc:
    """A gRPC server that answers with any bytes."""

    def __init__(self):
        self.metadata, self.answer = b"", b""
        attributes = {"GetModelMetadata": "metadata", "Predict": "answer"}
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(lambda _, __, said=said: getattr(self, said))
            for name, said in attributes.items()
        }
        handler = grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", handlers)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[handler])
        self.address = f"grpc://localhost:{self.server.add_insecure_port('localhost:0')}"


@pytest.fixture(scope="module")
def grpc_any():
    made = Grpc()
    made.server.start()
    yield made
    made.server.stop(None)


def ask_grpc(server, said, answer):
    server.metadata, server.answer = said, answer
    return connect(server.address, "toy", timeout=60).predict({"text": ["x", "y"]})["score"]


def grpc_metadata(dtype=tf.float32.as_datatype_enum):
    definitions = SignatureDefMap()
    one = definitions.signature_def["serving_default"]
    for columns, name, kind in (
        (one.inputs, "text", tf.string.as_datatype_enum),
        (one.outputs, "score", dtype),
    ):
        columns[name].dtype = kind
        columns[name].tensor_shape.dim.add().size = -1
    response = GetModelMetadataResponse()
    response.metadata["signature_def"].Pack(definitions)
    return response.SerializeToString()


def grpc_answer(change=lambda _: None, name="score"):
    response = PredictResponse()
    response.outputs[name].CopyFrom(tf.make_tensor_proto([0.5, 0.25]))
    change(response.outputs[name])
    return response.SerializeToString()


def reshaped(*sizes):
    def change(tensor):
        del tensor.tensor_shape.dim[:]
        for size in sizes:
            tensor.tensor_shape.dim.add().size = size

    return change


def stored(values, field="float_val"):
    def change(tensor):
        tensor.tensor_content = b""
        getattr(tensor, field).extend(values)

    return change


def values_of(dtype, *numbers):
    """Returns TensorFlow's type of this name, and its values that stand for numbers from 0 to 2."""
    kind = tf.as_dtype(dtype.removeprefix("DT_").lower())
    return kind, [(b"", b"a", b"b")[n] for n in numbers] if kind == tf.string else np.array(
        numbers, kind.as_numpy_dtype
    )


@pytest.mark.parametrize("dtype", [dtype for dtype in signatures.DTYPES if dtype != "DT_STRING"])
def test_all_types_are_read_over_rest(rest, dtype):
    extreme = {"DT_DOUBLE": 1e300, "DT_INT8": -128, "DT_UINT64": 2**64 - 1, "DT_INT64": -(2**63)}
    value = extreme.get(dtype, True if dtype == "DT_BOOL" else 1)
    said = metadata(serving_default=definition(x=(dtype, 1)))
    found = ask(rest, said, {"outputs": [value] * 2})["x"]
    assert found.dtype == signatures.DTYPES[dtype] and found[0] == value


@pytest.mark.parametrize("dtype", signatures.DTYPES)
def test_values_that_a_tensor_leaves_out_are_its_last_or_zero(dtype):
    """As TensorFlow itself reads them: tf.make_tensor_proto writes so, and so do other clients."""
    kind, (one, other, zero) = values_of(dtype, 2, 1, 0)
    field = tensors._FIELDS.get(dtype, "int_val")

    def proto(value):
        return tf.make_tensor_proto(np.array(value), kind, [1])

    tensor = tf.make_tensor_proto(np.array(other), kind, [1, 3])
    assert len(getattr(tensor, field)) == 1
    assert tensors.read_tensor(tensor).tolist() == [[other] * 3]
    getattr(tensor, field)[:] = [*getattr(proto(one), field), *getattr(proto(other), field)]
    reshaped(2, 2)(tensor)
    assert tensors.read_tensor(tensor).tolist() == [[one, other], [other, other]]
    getattr(tensor, field)[:] = []
    assert tensors.read_tensor(tensor).tolist() == [[zero, zero], [zero, zero]]
    reshaped(0, 2)(tensor)
    assert tensors.read_tensor(tensor).shape == (0, 2)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (1, 1), (1, 2), (2,)])
@pytest.mark.parametrize("dtype", signatures.DTYPES)
def test_tensors_are_written_as_tensorflow_writes_them(dtype, shape):
    """Clients that read float_val[0] of one text's answer continue to find it there."""
    kind = tf.as_dtype(dtype.removeprefix("DT_").lower())
    values = np.full(shape, b"a", object) if kind == tf.string else np.ones(shape, kind.as_numpy_dtype)
    found = TensorProto()
    tensors.write_tensor(values, found)
    assert found == tf.make_tensor_proto(values, kind)
    assert tensors.read_tensor(found).tolist() == values.tolist()


def test_a_compact_tensor_unpacks_to_a_bounded_size():
    text = tf.make_tensor_proto([b"a" * 1000], tf.string, [1])
    for tensor, count in ((text, 10), (tf.make_tensor_proto([1.0], tf.float32, [1]), 1200)):
        reshaped(count)(tensor)
        assert tensors.read_tensor(tensor, 10_000).shape == (count,)
        with pytest.raises(ValueError, match=r"has the shape \[\d+\], of more than 9,000 bytes"):
            tensors.read_tensor(tensor, 9_000)


@pytest.mark.parametrize(
    ("said", "answer", "message"),
    [
        (b"", b"", "has no signatures"),
        (b"\xff\xff", b"", "server at"),
        (grpc_metadata(dtype=99), b"", "score has the type 99"),
        (grpc_metadata(), grpc_answer(name="other"), "lacks the output score"),
        (grpc_metadata(), grpc_answer(reshaped(10**6, 10**6)), "score has the shape"),
        (grpc_metadata(), grpc_answer(reshaped(3)), "score"),
        (grpc_metadata(), grpc_answer(stored([0.5] * 3)), r"score has the shape \[2\] and 3 values"),
        (grpc_metadata(), grpc_answer(stored([1, 2], "int_val")), "score has values in int_val"),
        (grpc_metadata(), grpc_answer(lambda one: setattr(one, "tensor_content", b"abc")), "score is torn"),
        (grpc_metadata(), grpc_answer(lambda tensor: setattr(tensor, "dtype", 99)), "score"),
        (grpc_metadata(tf.float64.as_datatype_enum), grpc_answer(), "score has the type float32"),
    ],
)
def test_torn_grpc_answers_are_refused(grpc_any, said, answer, message):
    with pytest.raises(UserError, match=message):
        ask_grpc(grpc_any, said, answer)


@given(position=st.integers(0, 60), value=st.integers(0, 255), spoil=st.sampled_from(["metadata", "answer"]))
@examples(100, 3000)
def test_any_changed_byte_over_grpc_is_an_answer_or_an_error(grpc_any, position, value, spoil):
    said = {"metadata": grpc_metadata(), "answer": grpc_answer()}
    data = bytearray(said[spoil])
    data[position % len(data)] = value
    said[spoil] = bytes(data)
    with contextlib.suppress(UserError):
        assert len(ask_grpc(grpc_any, said["metadata"], said["answer"])) == 2
