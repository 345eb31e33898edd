"""The handlers registered in this process: decorators and `tq` add to them, workers read them."""

import threading

from tideq.workers.runtime.handlers import Handlers

registered = Handlers()
"""Global, because decorators run at import time and receive no argument."""

has_started = threading.Event()
"""Set when this process runs handlers; `reminder` then stays silent."""
