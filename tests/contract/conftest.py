"""The contract suite runs on every store that can be had; what cannot is told once, by test_stores.py.

Most of it also runs on a queue of four partitions, but not what looks into the keys of one.
"""

import inspect

import pytest

from tests.stores import STORES, missing

PARTITIONED = {
    f"test_{verb}"
    for verb in (
        *("submit", "claim", "start", "progress", "extend", "complete", "fail", "release", "cancel", "purge"),
        *("fleet", "fleet_members", "worker_death", "sweep", "controls", "buckets", "admission", "ended"),
    )
}
LEFT_OUT = {
    "test_submit_when_history_is_too_far_behind_is_refused": "each partition has an outbox of its own",
    "test_submit_under_memory_pressure_is_refused": "speaks to one partition's script",
    "test_claim_held_back_by_a_rate_says_when_it_refills": "the ledger lets out before the partition claims",
    "test_claim_assigns_the_task_and_hides_it_for_the_assignment_timeout": "a claim speaks of several instants",
    "test_sweep_moves_a_bounded_number_a_script": "speaks to one partition's script",
    "test_claim_recovers_a_bounded_number": "each partition recovers so many",
    "test_claim_repeated_with_its_poll_id_returns_the_same_tasks_and_leases": "answers have other numbers",
    "test_submit_answers_with_rank_and_place": "the place is reckoned from one partition",
    "test_sweep_forgets_dead_workers_after_an_hour": "counts what is left of one partition",
    "test_start_repeated_is_answered_like_the_first_time_and_changes_nothing": "moves the clock of all partitions",
    "test_a_member_is_what_it_registered_as": "partitions have clocks of their own",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kit" in metafunc.fixturenames:
        names = [name for name in STORES if not missing(name)]
        if not _holds_over_partitions(metafunc):
            names.remove("four_partitions")
        metafunc.parametrize("store", names, indirect=True)


def _holds_over_partitions(metafunc: pytest.Metafunc) -> bool:
    function = metafunc.function
    return (
        function.__module__.rpartition(".")[2] in PARTITIONED
        and function.__name__ not in LEFT_OUT
        and "kit.keys" not in inspect.getsource(function)
    )
