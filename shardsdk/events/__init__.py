"""Kubernetes Events: what people see under `kubectl describe`."""
