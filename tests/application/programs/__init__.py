"""Sample programs of the documents this was built from, run as they stand by `test_programs.py`.

Adapted: JavaScript became Python, names snake case, imports `tideq`; options and settings have the names the
specification gave them (`max_retries`, `run_at`, `url`), and `tq.start()` says where the work begins.
"""
