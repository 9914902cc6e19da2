"""Shared by REST and gRPC: looks up a request's version, answers the request and counts it."""

import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlnet_tf.serving.answers.signatures import SERVING_DEFAULT
from xlnet_tf.serving.local.batching import Closed
from xlnet_tf.serving.local.metrics import Metrics
from xlnet_tf.serving.local.protos import GetModelMetadataResponse, ModelSpec
from xlnet_tf.serving.local.served_model import RequestError, invalid
from xlnet_tf.serving.local.versions import Models, Version

SIGNATURES = "signature_def"  # the only field of metadata that there is
MAX_ROWS = 256  # of a request: they are answered as a whole


class Answer(NamedTuple):
    """A version's outputs by name, [B, ...]; strings are bytes in object arrays."""

    version: int
    outputs: dict[str, np.ndarray]


class Caller:
    """A client that waits for an answer by "REST" or "GRPC"; once it leaves, nothing is computed for it."""

    def __init__(self, entrypoint: str):
        self.entrypoint = entrypoint
        self._future: concurrent.futures.Future | None = None
        self._has_left = False

    def wait(self, future: concurrent.futures.Future, seconds: float) -> Any:
        """Returns the result of a future; raises RequestError if it takes too long, or the caller leaves."""
        self._future = future
        if self._has_left:
            future.cancel()
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise RequestError(
                "DEADLINE_EXCEEDED", f"no answer within {seconds:g} s: send fewer or shorter texts"
            ) from None
        except concurrent.futures.CancelledError:
            raise RequestError("CANCELLED", "the client has gone") from None

    def leave(self) -> None:
        """Ends the wait, from any thread."""
        self._has_left = True
        if self._future is not None:
            self._future.cancel()


class Service:
    """Answers requests to models, each within `timeout` seconds, and counts them."""

    def __init__(self, models: Models, metrics: Metrics, timeout: float):
        self.models, self.metrics, self.timeout = models, metrics, timeout

    def predict(
        self,
        spec: ModelSpec,
        inputs: Mapping[str, np.ndarray],
        caller: Caller,
        version: Version | None = None,
    ) -> Answer:
        """Calls a signature on inputs [B, ...]; blocks until it has answered.

        `version` is the one that the request was parsed for; None: it is looked up by the spec.
        """
        begun, status, rows = time.perf_counter(), "INTERNAL", 0
        try:
            number, rows, future = self._submit(spec, inputs, version)
            outputs = caller.wait(future, self.timeout)
            status = "OK"
            return Answer(number, outputs)
        except RequestError as error:
            status = error.code
            raise
        finally:
            if spec.name in self.models.configs:  # not any name that somebody makes up
                seconds = time.perf_counter() - begun
                self.metrics.add(spec.name, caller.entrypoint, status, seconds, rows)

    def _submit(self, spec: ModelSpec, inputs: Mapping[str, np.ndarray], version: Version | None):
        name = spec.signature_name or SERVING_DEFAULT
        while True:
            version = version or self.models.find(spec)
            if (rows := version.model.check(name, inputs)) > MAX_ROWS:
                raise invalid(f"the request has {rows} rows; this server takes {MAX_ROWS}")
            try:
                return version.number, rows, version.batcher.submit(name, inputs, self.timeout)
            except Closed:
                version = None  # a newer one is there

    def metadata(self, spec: ModelSpec, fields: Sequence[str] = (SIGNATURES,)) -> GetModelMetadataResponse:
        """Describes a version."""
        for field in fields:
            if field != SIGNATURES:
                raise invalid(f"Metadata field {field} is not supported")
        if not fields:
            raise invalid("the request names no metadata_field")
        version = self.models.find(spec)
        response = GetModelMetadataResponse(model_spec=answered_spec(spec, version.number))
        response.model_spec.signature_name = ""
        response.metadata[SIGNATURES].Pack(version.model.definition_map())
        return response


def answered_spec(asked: ModelSpec, number: int) -> ModelSpec:
    """Returns the version and signature that answered a request, for the answer."""
    spec = ModelSpec(name=asked.name, signature_name=asked.signature_name or SERVING_DEFAULT)
    spec.version.value = number
    return spec
