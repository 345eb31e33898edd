"""What the queue core costs its store, and the service its machine: `python -m bench`, or `make bench`.

A report, not a test: nothing fails when a machine is slow. Figures are comparable inside one run only, which is
why variants take turns round by round and every run measures an empty script and bare commands beside them.
"""
