"""Queue, workers, and what fills the queue.

Guarantees: an item is never reconciled twice at once, and no event is lost
(tests/unit/shardsdk/queueing/test_queue.py, tests/properties/test_queue.py).
"""
