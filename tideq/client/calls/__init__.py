"""The calls of the client as data, shared by its blocking and its asynchronous form."""
