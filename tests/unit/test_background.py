"""Ending work that runs beside other work."""

import asyncio

from tideq.queue_core.background import background_task, cancel_and_wait, run_all


async def test_a_job_that_misses_its_first_cancellation_is_ended_all_the_same() -> None:
    missed = asyncio.Event()

    async def deaf_once() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            missed.set()
        await asyncio.Event().wait()

    job = asyncio.create_task(deaf_once())
    await asyncio.sleep(0)

    await cancel_and_wait(job)

    assert missed.is_set()
    assert job.cancelled()


async def test_a_job_that_failed_is_not_raised_again() -> None:
    async def fail() -> None:
        raise ValueError("no")

    job = asyncio.create_task(fail())
    await asyncio.wait([job])

    await cancel_and_wait(job)

    assert isinstance(job.exception(), ValueError)


async def test_work_beside_a_block_ends_with_it() -> None:
    async with background_task(_for_ever()) as job:
        assert not job.done()

    assert job.cancelled()


async def test_none_of_several_outlives_the_others_end() -> None:
    """One ends at once, the other needs its time and to be told twice: `asyncio.gather` would not wait for it."""
    cleaned_up = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await deaf_once()
        finally:
            await asyncio.sleep(0.01)
            cleaned_up.set()

    async def deaf_once() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async with background_task(run_all(_for_ever(), slow_to_end())):
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert cleaned_up.is_set()


async def _for_ever() -> None:
    await asyncio.Event().wait()
