"""Runs and gates as Prometheus metrics: a fold over the journal, so live and from the file the numbers are the same.

`families` are the names, `fold` and `faults` fill them from events, `serve` shows them while a run goes on, `stored`
makes them of a folder. Dashboards and rules that ask for them are in `dashboards/`.
"""
