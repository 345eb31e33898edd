"""The dashboard: sources in `web/`, built files in `static/`, served by `pages.py`."""
