"""The whole service inside a test process: nothing to install, nothing to start, a clock the test moves.

With pytest the fixture `tideq_service` is there by itself:

    def test_a_mail_is_sent_again_after_a_failure(tideq_service):
        send.submit(to="ann@example.org")
        (failed,) = tideq_service.run_pending()
        assert failed.status == "queued"

        tideq_service.advance(60)
        (done,) = tideq_service.run_pending()
        assert done.status == "completed"

It is the real service and the real scripts, on fakeredis instead of a server; there is no history, so lists and dead
letter calls answer that there is none. Needs `pip install tideq[testing]`.
"""

from tideq.testing.local_service import LocalService, local_service

__all__ = ["LocalService", "local_service"]
