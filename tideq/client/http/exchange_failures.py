"""Why there is no answer, by what the other side may have done."""


class ExchangeFailed(OSError):
    """No answer can be had."""


class Unsent(ExchangeFailed):
    """Not a byte of the request left: nobody can be reached, or is trusted, or no connection came free."""


class Lost(ExchangeFailed):
    """The request left, all or a part of it, and no whole answer came: it may have been carried out."""


class Stale(Lost):
    """A kept connection was gone before a byte of the answer came, most likely before the request."""


class Misunderstood(ExchangeFailed):
    """Asking again in the same way would not help."""
