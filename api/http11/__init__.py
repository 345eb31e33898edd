"""HTTP/1.1 between uvicorn's sockets and the application: `README.md` says why."""
