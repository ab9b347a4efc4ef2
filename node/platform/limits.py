"""How long a node may take to end before its platform ends it. Pure."""

from registry.kinds import Platform

KILL_AFTER_S = {
    "slurm": 30.0,  # KillWait, between SIGTERM and SIGKILL, where a site did not change it
    "kubernetes": 30.0,  # terminationGracePeriodSeconds of a pod that does not say
}
LEAVE_S = 5.0  # for what comes after the requests: engines end, the fabric hears LEFT, files are closed


def linger_s(platform: Platform | None, asked_s: float) -> float:
    """Seconds that requests under way may take after SIGTERM: what was asked for, or what the platform leaves."""
    allowed = KILL_AFTER_S.get(platform.kind) if platform is not None else None
    return asked_s if allowed is None else min(asked_s, allowed - LEAVE_S)


def warn_at(platform: Platform | None, asked_s: float) -> float | None:
    """When to begin to drain, so that requests have `asked_s` before the job ends; unix seconds, None: never.

    Slurm tells every process of a job at once that it ends, engines too; only who drains before that drains at all.
    """
    if platform is None or platform.ends_at is None:
        return None
    return platform.ends_at - asked_s - LEAVE_S
