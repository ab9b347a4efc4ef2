import json
from base64 import b64encode

import pytest

from registry.errors import RecordRefused
from registry.kinds import Charter, Doubt, Node, Opaque, Replica, encode_body, read_body
from registry.record import Audience, Draft, seal
from tests.people import (
    FOUNDING,
    MEMBER,
    OPERATOR,
    acceptance,
    act_record,
    certificate,
    doubt_record,
    invite,
    key_grant,
    membership,
    minted,
    node_record,
    replica_record,
    revocation,
)


def written(kind, subject, body, *, owner=MEMBER, **order):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return seal(Draft(kind, subject, raw, **order), owner.key, owner.sign)


KEY = b64encode(MEMBER.key).decode()


def node_fields(**changed):
    return {"host": "h", "member": "A" * 43 + "=", "roles": ["worker"], **changed}


@pytest.mark.parametrize("record", [
    FOUNDING.charter, membership(), certificate(MEMBER), node_record(MEMBER), replica_record(MEMBER),
    doubt_record(MEMBER, OPERATOR), invite(MEMBER), acceptance(MEMBER, OPERATOR, by=MEMBER),
    membership(not_after=None), act_record("drain", MEMBER), key_grant(), minted(by=MEMBER), revocation(),
])  # fmt: skip
def test_each_known_kind_reads_back(record):
    body = read_body(record)
    assert encode_body(body) == record.body


def test_an_extension_map_is_kept_and_ignored():
    body = read_body(written("node", MEMBER.id, node_fields(ext={"new": {"deep": [1]}})))
    assert isinstance(body, Node)
    assert bytes(body.ext["new"]) == b'{"deep": [1]}'


def test_an_unknown_kind_is_opaque():
    assert isinstance(read_body(written("future", "x", b"\xff not json")), Opaque)


def replica_fields(**changes):
    return {"node_run": 1, "engine": "x", "models": [], **changes}


@pytest.mark.parametrize(("kind", "subject", "body", "order", "reason"), [
    ("node", MEMBER.id, b"{", {}, "truncated"),
    ("node", MEMBER.id, b"[" * 3000, {}, "node"),
    ("node", MEMBER.id, node_fields(slot="0"), {}, "Expected `int`"),
    ("node", MEMBER.id, node_fields(unknown=1), {}, "unknown"),
    ("node", MEMBER.id, node_fields(host="a b"), {}, "regex"),
    ("node", MEMBER.id, node_fields(host="a\n"), {}, "regex"),
    ("node", MEMBER.id, node_fields(urls=["http://x"]), {}, "regex"),
    ("node", MEMBER.id, node_fields(roles=["r"] * 17), {}, "length"),
    ("node", MEMBER.id, node_fields(slot=10**300), {}, "slot"),
    ("node", MEMBER.id, node_fields(slot=-1), {}, "slot"),
    ("node", MEMBER.id, node_fields(capability=10**300), {}, "capability"),
    ("node", MEMBER.id, {"roles": []}, {}, "host"),
    ("replica", f"{MEMBER.id}/e0", replica_fields(node_run=10**300), {}, "node_run"),
    ("replica", f"{MEMBER.id}/e0", replica_fields(cause={"reason": "x", "exit_code": 10**300}), {}, "exit_code"),
    ("replica", f"{MEMBER.id}/e0", replica_fields(cause={"reason": "x", "signal": 10**300}), {}, "signal"),
    ("replica", f"{MEMBER.id}/e0", replica_fields(models=[{"id": "m", "created": 10**300}]), {}, "created"),
    ("replica", f"{MEMBER.id}/e0", replica_fields(models=[{"id": "m", "context_tokens": 10**300}]), {}, "context"),
    ("node", OPERATOR.id, node_fields(), {}, "owner's"),
    ("node", MEMBER.id, node_fields(), {"rank": 4}, "rank"),
    ("node", MEMBER.id, node_fields(), {"audience": Audience.ACCOUNTS}, "shelf"),
    ("replica", f"{OPERATOR.id}/e0", {"node_run": 1, "engine": "x", "models": []}, {}, "owner's"),
    ("doubt", MEMBER.id, {"run": 1, "seq": 1, "path": "p", "since": 1}, {}, "owner's"),
    ("doubt", OPERATOR.id, {"run": 1, "seq": 1, "path": "p", "since": -1}, {}, "since"),
    ("doubt", OPERATOR.id, {"run": 1, "seq": 1, "path": "p", "since": 1}, {"rank": 1}, "rank"),
    ("certificate", OPERATOR.id, {"node": "AAAA", "roles": [], "not_after": 1}, {}, "length"),
    ("charter", "1", {"name": "x", "operators": [], "hubs": []}, {"seq": 2}, "owner's"),
    ("invite", OPERATOR.id, {"key": KEY, "provider": "p", "roles": [], "accept_by": 1}, {}, "owner's"),
    ("invite", MEMBER.id, {"key": KEY, "provider": "p", "roles": [], "accept_by": 1, "days": 0}, {}, "days"),
    ("act", "drain/n", {"verb": "evict", "target": "n", "at": 1}, {}, "owner's"),
    ("act", "drain/n", {"verb": "drain", "target": "other", "at": 1}, {}, "owner's"),
    ("act", "steal/n", {"verb": "steal", "target": "n", "at": 1}, {}, "Invalid enum"),
    ("act", "drain/n", {"verb": "drain", "target": "n", "at": 1, "prev": "A" * 48}, {}, "length"),
    ("outcome", "what/n", {"act": KEY, "state": "done", "at": 1}, {}, "owner's"),
    ("key", "k_1", {}, {}, "shelf"),
    ("key", "nokey", {}, {"audience": Audience.ACCOUNTS}, "owner's"),
    ("mint", "k_1", {"digest": "AAAA", "at": 1}, {"audience": Audience.ACCOUNTS}, "length"),
    ("revocation", "k_1", {"at": 1}, {}, "shelf"),
])  # fmt: skip
def test_a_wrong_body_is_refused_with_the_reason(kind, subject, body, order, reason):
    with pytest.raises(RecordRefused, match=reason):
        read_body(written(kind, subject, body, **order))


def test_defaults_are_not_written():
    body = Replica(node_run=1, engine="vllm", models=())
    assert encode_body(body) == b'{"node_run":1,"engine":"vllm","models":[]}'
    assert b"cleared" not in encode_body(Doubt(run=1, seq=1, path="p", since=0))


def test_the_founding_charter_fits_the_envelope():
    assert isinstance(read_body(FOUNDING.charter), Charter)
    assert len(FOUNDING.charter.raw) < 600
