"""HTTP/1.1 between uvicorn's sockets and the application, with limits on requests and slow clients.

uvicorn's own protocol takes 30 of the 54 µs of a submission without its store call, this one 11 of 25
(docs/http-server.md). uvicorn still owns the sockets, the order of stopping and the Date header.
"""
