"""003: worker.py."""

import asyncio
import signal

from tests.application.programs import resize
from tideq import Worker


async def main() -> None:
    worker = Worker(concurrency=4)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


assert resize.resize.task_type == "resize"
asyncio.run(main())
