"""003: application.py, with its interface's calls."""

import tideq

tideq.init()


@tideq.task
def send_email(to: str) -> str:
    return f"sent to {to}"


@tideq.task(max_retries=5, timeout_seconds=30)
def resize(url: str, width: int) -> dict[str, object]:
    return {"url": url, "width": width}


if __name__ == "__main__":
    client = tideq.Client()

    # Submit
    task_id = send_email.options(delay_seconds=0, tags={"team": "web"}).submit("ann@example.org").task_id
    resized = resize.submit(url="a.png", width=640)

    # Monitor
    print("Submitted", client.get(task_id).status)
    client.get(resized.task_id, history=True)  # lists are read from history, which follows
    print("Waiting", *sorted(task.task_type for task in client.list(status="queued", page_size=100)))
    print(
        "Registered", *(f"{name} {function.__name__}" for name, (function, _) in tideq.get_registered_tasks().items())
    )
