"""Reads which Kubernetes pod this process is in, from its environment and the files a pod may mount. Pure.

It does not ask the API server: a pod that serves models needs no rights there.
"""

from collections.abc import Mapping

from registry.kinds import Platform
from registry.text import clean

NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
POD_NAME = "/etc/podinfo/name"  # where the documentation of the downward API mounts it
POD_NAMESPACE = "/etc/podinfo/namespace"
LABELS = "/etc/podinfo/labels"
FILES = (NAMESPACE, POD_NAME, POD_NAMESPACE, LABELS)
QUEUE = "kueue.x-k8s.io/queue-name"  # the label that names a batch queue


def read(env: Mapping[str, str], files: Mapping[str, str]) -> Platform | None:
    """The pod as namespace/name, or None outside of one.

    Args:
        env: the environment of this process.
        files: contents by path, of those of `FILES` that exist.
    """
    if not env.get("KUBERNETES_SERVICE_HOST") and NAMESPACE not in files:
        return None
    name = _first(env.get("POD_NAME"), files.get(POD_NAME), env.get("HOSTNAME"))
    space = _first(env.get("POD_NAMESPACE"), files.get(POD_NAMESPACE), files.get(NAMESPACE))
    return Platform(
        kind="kubernetes",
        job=clean("/".join(part for part in (space, name) if part)),
        partition=clean(_labels(files.get(LABELS, "")).get(QUEUE, "")),
    )


def _first(*texts: str | None) -> str:
    return next((text.strip() for text in texts if text and text.strip()), "")


def _labels(text: str) -> dict[str, str]:
    """Labels as the downward API writes them: name="value" a line. Values of labels need no escapes."""
    rows = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip().strip('"') for name, _, value in rows if value}
