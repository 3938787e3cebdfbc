"""The metrics of a service: one table, from which Prometheus and OTLP have the same values.

Nothing here imports `prometheus_client`, which reads `PROMETHEUS_MULTIPROC_DIR` at its import.
"""
