"""Runs the whole service inside a test process, without a server to install or start, with a clock the test moves.

With pytest the fixture `tideq_service` is available automatically:

    def test_a_mail_is_sent_again_after_a_failure(tideq_service):
        send.submit(to="ann@example.org")
        (failed,) = tideq_service.run_pending()
        assert failed.status == "queued"

        tideq_service.advance(60)
        (done,) = tideq_service.run_pending()
        assert done.status == "completed"

The service and its scripts are the real ones, on fakeredis instead of a server. There is no history, so calls that list
tasks or dead letters are refused. Needs `pip install tideq[testing]`.
"""

from tideq.testing.local_service import LocalService, local_service

__all__ = ["LocalService", "local_service"]
