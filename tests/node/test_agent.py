"""What a host says about itself."""

from gossip.memory import MemoryNetwork
from node.agent import Agent
from node.engine.state import EngineState
from node.platform.host import Facts
from registry.kinds import Cause, Node, Offer, Platform, Replica
from registry.lifecycle import Rank
from tests.autojump import run
from tests.mesh import MeshNode
from tests.people import MEMBER, Person, replica_record

ME = Person(80)
EMPTY = Facts(platform=None, gpus=(), memory_b=0)


class Bench:
    """An agent and what it published and said."""

    def __init__(self, **more):
        self.node, self.said = MeshNode(ME, MemoryNetwork().host("me"), run=7), []
        body = Node(host="h", member=MEMBER.key, roles=("worker",))
        self.agent = Agent(
            author=self.node.author, mesh=self.node.mesh, node=body, wall=lambda: 5.0, say=self.said.append, **more
        )

    def held(self, kind):
        return [(record, body) for record, body in self.node.replica.of_kind(kind)]


def told(script, **more):
    async def main():
        here = Bench(**more)
        script(here)
        return here

    return run(main())


def state(rank=Rank.SERVING, **more):
    return EngineState(slot="e0", run=9, rank=rank, phase="", offers=(Offer(id="m"),), **more)


def test_a_node_that_is_up_says_so():
    ((record, body),) = told(lambda here: here.agent.serve()).held("node")
    assert (record.order.rank, record.order.run, body.host) == (Rank.SERVING, 7, "h")


def test_the_url_of_a_door_is_told_with_it_and_a_socket_is_no_url():
    def script(here, url):
        here.agent.reached_at(url)
        here.agent.serve()

    assert (
        told(lambda here: script(here, "https://llm.example.org")).held("node")[0][1].url == "https://llm.example.org"
    )
    assert told(lambda here: script(here, "unix:/run/t.sock")).held("node")[0][1].url == ""


def test_what_the_host_turns_out_to_be_is_said_once():
    facts = EMPTY._replace(platform=Platform(kind="slurm", job="41"), memory_b=7)

    def script(here):
        here.agent.serve()
        here.agent.is_on(facts)
        here.agent.is_on(facts)

    ((record, body),) = told(script).held("node")
    assert (body.platform.job, body.memory_b, record.order.seq) == ("41", 7, 2)


def test_a_host_that_is_nothing_particular_is_no_news():
    assert told(lambda here: here.agent.is_on(EMPTY)).held("node") == []


def test_an_engine_is_told_with_whom_it_serves_and_narrated():
    here = told(lambda here: here.agent.engine_changed(state(), "vllm"), serve_to=("user:kim",))
    ((record, body),) = here.held("replica")
    assert (record.key.id, record.order.run, record.order.rank) == (f"{ME.id}/e0", 9, Rank.SERVING)
    assert (body.node_run, body.engine, body.serve_to, body.started) == (7, "vllm", ("user:kim",), 5.0)
    assert (here.said[0]["state"], here.said[0]["models"]) == ("SERVING", ["m"])


def test_why_an_engine_is_down_is_told():
    here = told(
        lambda here: here.agent.engine_changed(state(Rank.DOWN, cause=Cause(reason="killed", signal=9)), "vllm")
    )
    assert here.held("replica")[0][1].cause.signal == 9


def test_an_engine_an_earlier_run_lost_is_buried_in_its_own_run():
    here = told(lambda here: here.agent.bury(replica_record(ME, run=3, draining=True)))
    ((record, body),) = here.held("replica")
    assert isinstance(body, Replica)
    assert (record.order.run, record.order.rank, body.cause.reason, body.draining) == (3, Rank.LEFT, "lost", False)
