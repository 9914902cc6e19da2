"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from absl import logging

from xlnet_tf.errors import UserError, reason
from xlnet_tf.serving.answers.tensors import read_tensor, write_tensor
from xlnet_tf.serving.local import protos
from xlnet_tf.serving.local.guard import Limits
from xlnet_tf.serving.local.served_model import RequestError, invalid
from xlnet_tf.serving.local.service import Caller, Service, answered_spec

_STOP_SECONDS = 10


def _answering(method: Callable) -> Callable:
    @functools.wraps(method)
    def answer(self, request: Any, context: grpc.ServicerContext) -> Any:
        caller = Caller("GRPC")
        if not context.add_callback(caller.leave):  # once the call has ended: cancelled, late or answered
            caller.leave()
        try:
            return method(self, request, caller)
        except RequestError as error:
            code = getattr(grpc.StatusCode, error.code, grpc.StatusCode.UNKNOWN)
            return context.abort(code, str(error))
        except Exception as error:
            logging.error("%s failed: %r", method.__name__, error)
            return context.abort(grpc.StatusCode.INTERNAL, f"the server failed: {reason(error)}")

    return answer


class _Prediction:
    def __init__(self, service: Service, max_bytes: int):
        self._service, self._max_bytes = service, max_bytes

    @_answering
    def Predict(self, request, caller):
        inputs = {}
        for name, tensor in request.inputs.items():
            try:
                inputs[name] = read_tensor(tensor, self._max_bytes)
            except ValueError as error:
                raise invalid(f"Input {name} {error}") from error
        answer = self._service.predict(request.model_spec, inputs, caller)
        known = set(answer.outputs)
        if unknown := sorted(set(request.output_filter) - known):
            raise invalid(
                f"output tensor alias not found in signature: {unknown[0]} Outputs expected to be in the set "
                f"{{{','.join(sorted(known))}}}."
            )
        response = protos.PredictResponse(model_spec=answered_spec(request.model_spec, answer.version))
        for name in request.output_filter or sorted(known):
            write_tensor(answer.outputs[name], response.outputs[name])
        return response

    @_answering
    def GetModelMetadata(self, request, caller):
        return self._service.metadata(request.model_spec, request.metadata_field)


class _ModelState:
    def __init__(self, service: Service):
        self._service = service

    @_answering
    def GetModelStatus(self, request, caller):
        return self._service.models.status(request.model_spec)

    @_answering
    def HandleReloadConfigRequest(self, request, caller):
        raise RequestError(
            "UNIMPLEMENTED",
            "this server takes no settings from requests: edit models.config and start it again",
        )


def _handler(service: str, methods: Mapping[Callable, Any]) -> grpc.GenericRpcHandler:
    """Returns the handler of one of TensorFlow Serving's services, given its methods and their requests."""
    handlers = {
        method.__name__: grpc.unary_unary_rpc_method_handler(
            method, request and request.FromString, lambda response: response.SerializeToString()
        )
        for method, request in methods.items()
    }
    return grpc.method_handlers_generic_handler(f"tensorflow.serving.{service}", handlers)


class _Patience(grpc.ServerInterceptor):
    """Ends calls whose request takes more than `seconds` to arrive; they would use up all threads."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    def intercept_service(self, continuation, handler_call_details):
        method = continuation(handler_call_details)
        if method is None or method.unary_unary is None:
            return method

        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            late = threading.Timer(self._seconds, context.cancel)
            late.start()
            try:
                request = next(requests, None)
            finally:
                late.cancel()
            if request is None:
                return context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
            return method.unary_unary(request, context)

        return grpc.stream_unary_rpc_method_handler(
            answer, method.request_deserializer, method.response_serializer
        )


@contextlib.contextmanager
def serving(service: Service, address: str, limits: Limits) -> Iterator[int]:
    """Answers gRPC at HOST:PORT while the block runs; yields the port. Port 0 is any free one."""
    pool = concurrent.futures.ThreadPoolExecutor(limits.concurrency, "grpc")
    options = [
        ("grpc.max_receive_message_length", limits.max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # else a second server would take half of the requests
    ]
    patience, most = (_Patience(limits.timeout),), limits.concurrency
    server = grpc.server(pool, interceptors=patience, options=options, maximum_concurrent_rpcs=most)
    prediction, state = _Prediction(service, limits.max_bytes), _ModelState(service)
    server.add_generic_rpc_handlers(
        [
            _handler(
                "PredictionService",
                {
                    prediction.Predict: protos.PredictRequest,
                    prediction.GetModelMetadata: protos.GetModelMetadataRequest,
                },
            ),
            _handler(
                "ModelService",
                {state.GetModelStatus: protos.GetModelStatusRequest, state.HandleReloadConfigRequest: None},
            ),
        ]
    )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise UserError(
            f"{address} cannot be listened on for gRPC: is it taken? Give another --grpc_port"
        ) from None
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=_STOP_SECONDS).wait()
        pool.shutdown(wait=False)
