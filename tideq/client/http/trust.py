"""Whose certificates are believed, as httpx reads `verify` and the environment."""

import os
import ssl
from collections.abc import Mapping


def trust(verify: ssl.SSLContext | bool, environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Reading the list of authorities takes longer than ten calls: to be made with the first secure connection."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if not verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    if file := environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    import certifi

    return ssl.create_default_context(cafile=certifi.where())
