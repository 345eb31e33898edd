"""In the user's process, over HTTP only: claims tasks, runs their handlers, reports what became of them."""
