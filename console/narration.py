"""What a node that runs in the foreground says, as one line for each event. Pure."""

from console.views.words import counted
from registry.text import clean

Event = dict[str, object]
OF_OTHERS = frozenset({"evict", "readmit", "revoke"})  # what a hub does to another node


def line_of(event: Event) -> str | None:
    """The line for an event; None for one that is not worth a line."""
    say = _LINES.get(str(event.get("event")))
    return None if say is None else clean(say(event), 400)


def _ready(event: Event) -> str:
    links, http = event.get("links"), event.get("http")
    parts = [f"up as {event.get('name') or event.get('id')}, run {event.get('run')}"]
    if isinstance(links, list) and links:
        parts.append("links at " + ", ".join(map(str, links)))
    if http:
        parts.append(f"door at {http}")
    return " · ".join(parts)


def _engine(event: Event) -> str:
    state, slot, phase = event.get("state"), event.get("slot"), event.get("phase")
    models = event.get("models")
    if state == "SERVING" and not event.get("draining"):
        serving = ", ".join(map(str, models)) if isinstance(models, list) else ""
        return f"{slot} serves {serving}" + (f" ({phase})" if phase else "")
    if event.get("draining") and state == "SERVING":
        return f"{slot} drains"
    where = f" · log {event['log']}" if state == "DOWN" and event.get("log") else ""
    return f"{slot} {state}" + (f": {phase}" if phase else "") + where


def _draining(event: Event) -> str:
    return f"draining {_count(event.get('in_flight'), 'request')}, {_seconds(event.get('within_s'))}; again = now"


def _left(event: Event) -> str:
    cut = event.get("cut")
    lost = f", {_count(cut, 'request')} cut off" if cut else ", none cut off"
    return f"left after {_seconds(event.get('lived_s'))}: {_count(event.get('served'), 'request')} served{lost}"


def _act(event: Event) -> str:
    reason = f": {event['reason']}" if event.get("reason") else ""
    whom = f" {event.get('target')}" if event.get("verb") in OF_OTHERS else ""
    return f"told to {event.get('verb')}{whom}{reason}"


def _evicted(event: Event) -> str:
    return f"this node was {event.get('text')}; nobody sends it anything, and it may not come back"


def _readmitted(_event: Event) -> str:
    return "this node may come back: it dials the hubs again"


def _outcome(event: Event) -> str:
    return f"{event.get('verb')} {event.get('state')}: {event.get('detail')}"


def _trouble(event: Event) -> str:
    hint = f"; {event['hint']}" if event.get("hint") else ""
    return f"trouble: {event.get('text')}{hint}"


_LINES = {
    "ready": _ready,
    "engine": _engine,
    "draining": _draining,
    "left": _left,
    "act": _act,
    "outcome": _outcome,
    "trouble": _trouble,
    "evicted": _evicted,
    "readmitted": _readmitted,
}


def _count(number: object, what: str) -> str:
    return counted(number, what) if isinstance(number, int) else f"? {what}s"


def _seconds(value: object) -> str:
    if not isinstance(value, int | float):
        return "?"
    seconds = int(value)
    hours, minutes = seconds // 3600, seconds // 60
    if hours and minutes >= 120:
        return f"{hours} h {minutes % 60} min"
    return f"{seconds} s" if seconds < 120 else f"{minutes} min"
