"""Admission webhooks of an operator: functions that say yes or no, or change what is stored.

    from shardsdk.admission import Denied, Review

    @operator.validate(Website)
    def check(review: Review[Website]) -> None:
        if not review.object.spec.html:
            raise Denied("a website without a page", field="spec.html")

Guarantees:

- Whatever a function does, and whatever arrives, is answered: by the function,
  by the webhook's failure policy, or 4xx (tests/unit/shardsdk/admission).
- What a class does not know of an object stays as it came when a function changes
  the rest (tests/unit/shardsdk/admission/test_patching.py).
- A replica that is stopped answers what has begun, and a certificate is changed
  under load without a failed request (tests/integration/test_operator_webhooks.py).

Certificates and HTTPS are those of `shardsdk.serving`.
"""

from __future__ import annotations

from shardsdk.admission.review import AdmissionRequest, Operation, Outcome, User, Verdict
from shardsdk.admission.settings import Serving
from shardsdk.admission.webhook import Denied, FailurePolicy, Review, Sort, Webhook
from shardsdk.serving.certificate_spec import Lifetimes

__all__ = [
    "AdmissionRequest",
    "Denied",
    "FailurePolicy",
    "Lifetimes",
    "Operation",
    "Outcome",
    "Review",
    "Serving",
    "Sort",
    "User",
    "Verdict",
    "Webhook",
]
