"""The fleet in rows and words: nodes, models, engines, and one page that sums them up. Pure.

What comes in are the control API's objects; what goes out is text-ready and still has to pass a table or `clean`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from console.views.words import age, counted, gib, moment
from registry.text import clean

Row = Mapping[str, Any]
NODE_COLUMNS = ("name", "state", "roles", "serves", "load", "where", "up")
MODEL_COLUMNS = ("model", "state", "ready", "families", "context")
MAX_MODELS = 20  # of the page; `tela models` has all of them
REPLICA_COLUMNS = ("session", "slot", "state", "models", "why")


def state_of(node: Row) -> str:
    """The state of a node in one word: its rank, unless something more urgent is true."""
    if node["evicted"]:
        return "EVICTED"
    if node["suspect"]:
        return "SUSPECT"
    if node["draining"] and node["state"] == "SERVING":
        return "DRAINING"
    return str(node["state"])


def node_rows(view: Row, *, everything: bool) -> list[dict[str, Any]]:
    """A row for each node, in order of its name; those that left only when everything is wanted."""
    served = _served(view)
    shown = [node for node in view["nodes"] if everything or node["state"] != "LEFT"]
    return [
        {
            "name": node["name"],
            "state": state_of(node),
            "roles": ",".join(node["roles"]) or "none",
            "serves": "" if node["evicted"] else ", ".join(served.get(node["id"], ())),
            "load": _load(node),
            "where": where(node),
            "up": age(view["at"] - node["started"]) if node["started"] else "",
            "id": node["id"],
        }
        for node in sorted(shown, key=lambda each: (each["host"], each["slot"], each["name"]))
    ]


def model_rows(view: Row) -> list[dict[str, Any]]:
    """A row for each model."""
    return [
        {
            "model": model["id"],
            "state": model["state"],
            "ready": f"{model['routable']}/{model['wanted']}",
            "families": ", ".join(model["families"]),
            "context": model["context_tokens"],
        }
        for model in view["models"]
    ]


def replica_rows(view: Row) -> list[dict[str, Any]]:
    """A row for each replica that is not gone, and why it takes no requests."""
    return [
        {
            "session": replica["session"],
            "slot": replica["slot"],
            "state": "DRAINING" if replica["draining"] and replica["state"] == "SERVING" else replica["state"],
            "models": replica["models"],
            "why": replica["why_not"] or replica["phase"],
        }
        for replica in sorted(view["replicas"], key=lambda each: (each["session"], each["slot"]))
        if replica["state"] != "LEFT"
    ]


def where(node: Row) -> str:
    """What a node runs on: its job and when that ends, its GPUs."""
    platform, parts = node["platform"], []
    if platform is not None:
        ends = f" until {moment(platform['ends_at'])}" if platform["ends_at"] else ""
        parts.append(f"{platform['kind']} {platform['job']}{ends}".strip())
    parts += [f"{gpu['count']}x {gpu['name']} {gib(gpu['memory_b'])}" for gpu in node["gpus"]]
    return " · ".join(parts)


def summary(view: Row, about: Row) -> list[str]:
    """The page of `tela status`, as lines."""
    me = about["node"]
    state = "DRAINING" if me["draining"] and me["rank"] == "SERVING" else me["rank"]
    lines = [f"{view['fabric']['name']} · this node {me['name']}/{me['run']} {state}, pid {about['pid']}"]
    lines.append(f"hubs      {_hubs(about['hubs'], is_hub=bool(about['links']))}")
    lines.append(f"nodes     {_states(state_of(node) for node in view['nodes'] if node['state'] != 'LEFT')}")
    lines.append(f"models    {_states(model['state'] for model in view['models'])}")
    lines += _models(view["models"])
    lines += [f"engine    {_engine(engine)}" for engine in about["engines"]]
    if about["url"] or about["http"]:
        lines.append(f"door      {about['url'] or about['http']}")
    for warning in about["warnings"]:
        lines += [f"{warning['severity']:9} {warning['text']}", f"          {warning['remedy']}"]
    if view["refused_count"]:
        lines.append(f"refused   {counted(view['refused_count'], 'record')} of no effect; --json says which and why")
    if view["forks"]:
        lines.append(f"fork      {counted(len(view['forks']), 'charter')} not followed; tela operators list")
    return [clean(line, 400) for line in lines if line.strip()]


def next_step(view: Row) -> str:
    """What to do when there is nothing to see yet; empty when there is."""
    if not view["models"]:
        return 'no model yet; wrap an engine: tela start --process "vllm serve MODEL --port {port}"'
    return ""


def _models(models: Sequence[Row]) -> list[str]:
    """The models of the page, those in trouble first."""
    first = sorted(models, key=lambda model: (model["state"] == "UP", model["id"]))
    shown = first[:MAX_MODELS]
    lines = [f"          {each['id']} {each['state']} {each['routable']}/{each['wanted']}" for each in shown]
    left = len(first) - MAX_MODELS
    return lines + ([f"          and {left} more: tela models"] if left > 0 else [])


def _engine(engine: Row) -> str:
    models = f" {', '.join(engine['models'])}" if engine["models"] else ""
    phase = f": {engine['phase']}" if engine["phase"] else ""
    under_way = f", {counted(engine['in_flight'], 'request')}" if engine["in_flight"] else ""
    return f"{engine['slot']} {engine['state']}{models}{phase}{under_way}"


def _hubs(hubs: Row, *, is_hub: bool) -> str:
    if is_hub and not hubs["known"]:
        return "this node is the only one"
    return f"{hubs['linked']} of {hubs['known']} linked" + (", and this node is one" if is_hub else "")


def _load(node: Row) -> str:
    count = node["gauges"].get("in_flight")
    return "" if count is None else f"{count} req"


def _served(view: Row) -> dict[str, Sequence[str]]:
    served: dict[str, dict[str, None]] = {}
    for replica in view["replicas"]:
        if replica["state"] == "SERVING":
            served.setdefault(replica["node"], {}).update(dict.fromkeys(replica["models"]))
    return {node: tuple(models) for node, models in served.items()}


def _states(states: Iterable[object]) -> str:
    counts = Counter(states)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items(), key=str)) or "none"
