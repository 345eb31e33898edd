"""In the user's process, over HTTP only: claims tasks, runs their handlers, reports their results."""
