"""000, section 5.2: the programmatic API."""

from datetime import UTC, datetime

from tideq import tq

# Initialize once (app startup)
tq.init()


def send_email(payload: dict[str, str]) -> None:
    print("Mailing", payload["to"], flush=True)


def process_image(payload: dict[str, str]) -> None:
    print("Processing", payload["image_url"], flush=True)


# Setup workers (per task type)
tq("send_email").set_worker(send_email).set_worker_count(2).set_rate_limit(10).set_timeout(30)

tq("process_image").set_worker(process_image).set_worker_count(4).set_rate_limit(20).set_timeout(300)

tq.start()

# Enqueue tasks (anywhere in app)
tq("send_email").add({"to": "user@example.com", "subject": "Welcome", "body": "Hello!"})

tq("process_image").add({"image_url": "/uploads/photo.jpg"})

# Advanced: Custom options
tq("send_email").add(
    {"to": "vip@example.com", "subject": "Important"}, {"max_retries": 9, "run_at": datetime(2035, 12, 31, tzinfo=UTC)}
)

input()

# Global controls
tq.pause()  # Pause all workers
tq.resume()  # Resume all workers
stats = tq.stats()  # Get queue statistics
print("Waiting", stats.queue.by_type, flush=True)
tq.stop()  # Graceful shutdown
