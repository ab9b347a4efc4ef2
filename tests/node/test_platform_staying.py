"""What starts a node again, and what ends it."""

from node.platform.staying import Surroundings, threats, way

AT_HOME = Surroundings(lingers=True, has_user_services=True, has_crontab=True, runs_cron=True)


def test_a_service_manager_that_outlives_logins_is_the_way():
    assert way(AT_HOME) == "systemd"
    assert threats(AT_HOME) == ()


def test_without_linger_cron_is_the_way():
    around = AT_HOME._replace(lingers=False)
    assert way(around) == "cron"
    assert any("enable-linger" in threat for threat in threats(around))


def test_a_crontab_that_nobody_reads_is_no_way():
    around = Surroundings(has_crontab=True)
    assert way(around) == ""
    assert any("no cron that reads it" in threat for threat in threats(around))


def test_a_job_ends_what_runs_in_it_whatever_else_is_here():
    around = AT_HOME._replace(job="Slurm job 7")
    assert way(around) == ""
    assert threats(around) == ("Slurm job 7 ends it: put `tela start` into the job script, and the job into a queue",)


def test_a_container_ends_what_runs_in_it():
    around = AT_HOME._replace(is_container=True)
    assert way(around) == ""
    assert "container" in threats(around)[0]


def test_a_host_that_kills_at_logout_says_so():
    assert "KillUserProcesses" in threats(Surroundings(kills_at_logout=True))[0]
    assert threats(AT_HOME._replace(kills_at_logout=True)) == ()


def test_where_there_is_no_way_there_is_a_reason():
    assert len(threats(Surroundings())) == 2
