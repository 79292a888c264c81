"""Adapters for programs built on something else; each needs its extra, such as `controller-sharding[kopf]`."""
