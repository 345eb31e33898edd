"""Every handler this process knows: what decorators and `tq` add to, and workers read."""

import threading

from tideq.workers.runtime.handlers import Handlers

registered = Handlers()
"""One a process, because decorators run when modules are imported and have nobody to be given one by."""

has_begun = threading.Event()
"""Whether this process runs handlers, or is there to: nobody has to be reminded of it then."""
