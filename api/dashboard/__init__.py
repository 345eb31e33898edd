"""The web page: its sources are in `web/`, what is built of them in `static/`, and `pages.py` hands it out."""
