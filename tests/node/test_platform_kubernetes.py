"""What a pod sees, in the form the downward API writes it."""

from node.platform.kubernetes import LABELS, NAMESPACE, POD_NAME, POD_NAMESPACE, read

ENV = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
    "HOSTNAME": "vllm-7d9f6c5b8-x2x",
}
FILES = {
    NAMESPACE: "team-a",
    LABELS: 'app="vllm"\nkueue.x-k8s.io/queue-name="user-queue"\npod-template-hash="7d9f6c5b8"',
}


def test_a_pod_is_named_by_its_namespace_and_host_name():
    pod = read(ENV, FILES)
    assert (pod.kind, pod.job, pod.ends_at, pod.hosts) == ("kubernetes", "team-a/vllm-7d9f6c5b8-x2x", None, 1)


def test_what_the_downward_api_says_is_believed_before_the_host_name():
    files = {**FILES, POD_NAME: "vllm-0\n", POD_NAMESPACE: "team-b\n"}
    assert read(ENV, files).job == "team-b/vllm-0"
    assert read({**ENV, "POD_NAME": "vllm-1", "POD_NAMESPACE": "team-c"}, files).job == "team-c/vllm-1"


def test_the_queue_of_a_batch_pod_is_its_partition():
    assert read(ENV, FILES).partition == "user-queue"


def test_a_pod_that_mounts_nothing_is_still_a_pod():
    assert read(ENV, {}).job == "vllm-7d9f6c5b8-x2x"


def test_a_pod_without_service_variables_is_known_by_its_token():
    assert read({"HOSTNAME": "p"}, {NAMESPACE: "team-a"}).job == "team-a/p"


def test_outside_of_kubernetes_there_is_no_pod():
    assert read({"HOSTNAME": "login1"}, {}) is None


def test_labels_from_elsewhere_cannot_drive_a_terminal():
    files = {LABELS: 'kueue.x-k8s.io/queue-name="a\x1b[2Jb"'}
    assert "\x1b" not in read(ENV, files).partition
