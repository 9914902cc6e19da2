"""The fields that the manifests of deploy/ use, of the schemas that Kubernetes, JobSet and Vertex AI publish.

Written from, and smaller than: JobSet's types (github.com/kubernetes-sigs/jobset, api/jobset/v1alpha2,
jobset_types.go, commit 0336a8fd), the Kubernetes API reference (batch/v1 JobSpec, core/v1 PodSpec), and the
messages of Vertex AI's v1 API in the Google Cloud SDK 528.0.0 (CustomJobSpec). A field that is not here is an
error: it is misspelt, or belongs here first.
"""

from typing import Any


def record(required=(), **properties) -> dict[str, Any]:
    """Returns the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def each(items: dict[str, Any], least: int = 1) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": items, "minItems": least}


def one_of(*values) -> dict[str, Any]:
    return {"enum": list(values)}


TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
TOPOLOGY = {"type": "string", "pattern": r"^\d+(x\d+)+$"}
DURATION = {"type": "string", "pattern": r"^\d+(\.\d+)?s$"}

_CHIPS = {"type": "object", "additionalProperties": {"type": ["integer", "string"]}}
_CONTAINER = record(
    ("name", "image"),
    name=NAME,
    image=TEXT,
    command=each(TEXT),
    env=each(record(("name", "value"), name=TEXT, value=TEXT)),
    ports=each(record(("containerPort",), containerPort={"type": "integer", "minimum": 1, "maximum": 65535})),
    resources=record(limits=_CHIPS, requests=_CHIPS),
)
_POD = record(
    ("containers", "restartPolicy"),
    # A podFailurePolicy needs Never.
    restartPolicy=one_of("Never"),
    terminationGracePeriodSeconds=NUMBER,
    serviceAccountName=NAME,
    nodeSelector=TEXTS,
    containers=each(_CONTAINER),
)
_ON_EXIT = record(
    ("operator", "values"),
    containerName=NAME,
    operator=one_of("In", "NotIn"),
    values={
        "type": "array",
        "items": {"type": "integer", "not": {"const": 0}},
        "uniqueItems": True,
        "maxItems": 255,
    },
)
_JOB = record(
    ("template",),
    completionMode=one_of("Indexed", "NonIndexed"),
    completions=NUMBER,
    parallelism=NUMBER,
    backoffLimit=NUMBER,
    activeDeadlineSeconds={"type": "integer", "minimum": 1},
    podFailurePolicy=record(
        ("rules",),
        rules=each(
            record(
                ("action",), action=one_of("FailJob", "Ignore", "Count", "FailIndex"), onExitCodes=_ON_EXIT
            )
        ),
    ),
    template=record(("spec",), spec=_POD),
)
JOB_SET = record(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion=one_of("jobset.x-k8s.io/v1alpha2"),
    kind=one_of("JobSet"),
    metadata=record(("name",), name=NAME, labels=TEXTS, annotations=TEXTS),
    spec=record(
        ("replicatedJobs",),
        network=record(enableDNSHostnames=FLAG, subdomain=NAME, publishNotReadyAddresses=FLAG),
        successPolicy=record(("operator",), operator=one_of("All", "Any"), targetReplicatedJobs=each(NAME)),
        failurePolicy=record(
            maxRestarts=NUMBER,
            restartStrategy=one_of("Recreate", "BlockingRecreate", "InPlaceRestart"),
            rules=each(record(
                ("name", "action"),
                name={"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
                action=one_of("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts",
                              "RestartJob", "RestartJobAndIgnoreMaxRestarts"),
                onJobFailureReasons=each(one_of("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes",
                                                "MaxFailedIndexesExceeded", "PodFailurePolicy")),
            )),
        ),
        replicatedJobs=each(record(
            ("name", "template"),
            name=NAME,
            replicas=NUMBER,
            template=record(("spec",), metadata=record(annotations=TEXTS, labels=TEXTS), spec=_JOB),
        )),
    ),
)  # fmt: skip

CUSTOM_JOB = record(
    ("workerPoolSpecs",),
    workerPoolSpecs=each(record(
        ("machineSpec", "replicaCount", "containerSpec"),
        machineSpec=record(("machineType",), machineType=TEXT, tpuTopology=TOPOLOGY,
                           acceleratorType=TEXT, acceleratorCount=NUMBER),
        replicaCount=NUMBER,
        containerSpec=record(("imageUri",), imageUri=TEXT, command=each(TEXT), args=each(TEXT),
                             env=each(record(("name", "value"), name=TEXT, value=TEXT))),
        diskSpec=record(bootDiskType=TEXT, bootDiskSizeGb=NUMBER),
    )),
    scheduling=record(timeout=DURATION, maxWaitDuration=DURATION, restartJobOnWorkerRestart=FLAG,
                      disableRetries=FLAG,
                      strategy=one_of("ON_DEMAND", "LOW_COST", "STANDARD", "SPOT", "FLEX_START")),
    serviceAccount=TEXT,
    baseOutputDirectory=record(("outputUriPrefix",), outputUriPrefix=TEXT),
)  # fmt: skip
