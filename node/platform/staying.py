"""What may start a node again here, and what ends it whatever it wants. Pure; `node.platform.surroundings` looks."""

from typing import NamedTuple


class Surroundings(NamedTuple):
    """What is true of this account on this host."""

    job: str = ""  # the Slurm job or the pod this is in; empty: none
    is_container: bool = False
    lingers: bool = False  # the account's services run without a login
    has_user_services: bool = False  # its service manager answers
    kills_at_logout: bool = False  # KillUserProcesses of logind
    has_crontab: bool = False  # the program is there
    runs_cron: bool = False  # and somebody reads what it writes


def way(around: Surroundings) -> str:
    """What starts a node here after a boot: "systemd", "cron", or nothing, which is an empty string."""
    if around.job or around.is_container:
        return ""
    if around.has_user_services and around.lingers:
        return "systemd"
    return "cron" if around.has_crontab and around.runs_cron else ""


def threats(around: Surroundings) -> tuple[str, ...]:
    """What ends a node here, each with what can be done about it; the worst first."""
    if around.job:
        return (f"{around.job} ends it: put `tela start` into the job script, and the job into a queue",)
    if around.is_container:
        return ("the container's end is its end: make `tela start` the command of the container",)
    found = []
    if around.kills_at_logout and not around.lingers:
        found.append("this host ends your processes when you log out (KillUserProcesses=yes)")
    if around.has_user_services and not around.lingers:
        found.append("your services end with your last login: `loginctl enable-linger` keeps them, where you may")
    if not around.has_user_services:
        found.append("no service manager of yours answers here (systemd --user)")
    if around.has_crontab and not around.runs_cron:
        found.append("crontab is here, but no cron that reads it")
    elif not around.has_crontab:
        found.append("there is no crontab that would start it after a boot")
    return tuple(found)
