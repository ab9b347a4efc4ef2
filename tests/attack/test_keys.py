"""Keys: what one project's operator can do to another's, and what stays on a disk that should not hold any."""

from node.keeper import Keeper
from node.recordfile import frames
from registry.accounts import key_rows
from registry.validity import standing
from tests.people import FABRIC, FOUNDING, OPERATOR, Person, key_grant, operator, successor
from tests.people import Registry as Replica

NOW = 1_800_000_000.0
BO, EVE = Person(95), Person(96)
CHARTER = successor(
    FOUNDING.charter,
    operator(OPERATOR, "owner", "keys"),
    operator(EVE, "keys", scope="project:eve"),  # named before the other, which is all it takes
    operator(BO, "keys", scope="project:bo"),
)


def rows_of(*records):
    replica = Replica()
    for record in (FOUNDING.charter, CHARTER, *records):
        replica.apply(record)
    return key_rows(replica, standing(replica, FABRIC, NOW))[0]


def test_an_operator_of_one_project_takes_over_no_key_of_another():
    own = key_grant("k_1", by=BO, project="bo", user="bo", digest=b"b" * 32)
    same_id = key_grant("k_1", by=EVE, project="eve", user="eve", digest=b"b" * 32, models=())
    same_secret = key_grant("k_2", by=EVE, project="eve", user="eve", digest=b"b" * 32, models=())
    assert rows_of(own)["k_1"].project == "bo"
    for copy in (same_id, same_secret):
        rows = rows_of(own, copy)
        assert "k_1" in rows
        assert rows["k_1"].project == "bo"


def test_a_node_that_is_no_ingress_any_more_holds_no_keys(tmp_path):
    (tmp_path / "journal").write_bytes(frames([key_grant(user="alice").raw]))  # of its last run, as an ingress
    replica = Replica()
    keeper = Keeper(tmp_path, replica, now=lambda: 0.0, wall=lambda: NOW, say=lambda _: None)
    keeper.load(Person(97).key)  # however it is told that this run holds no accounts: what is held then is shown
    keeper.close()
    assert not list(replica.of_kind("key"))
